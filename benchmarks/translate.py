"""Sentences per second of every translation method.

    python -m benchmarks translate --out FILE [--sentences 256] [--device cuda]

The sources are German sentences of mixed lengths, or with --sources the first ones of a file; the
models are those of the repository. On a CPU two sentences warm up, on a GPU all of them, chains for
a few epochs; the time is that of one whole call, with the encoder's pass over the sources. With
--references, a file of their translations, rows have BLEU too. FILE is written after every row.
"""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

from benchmarks.tools import MODEL, about, now, parser, write
from maskov import translate
from maskov.errors import refuse
from maskov.evaluation import compare
from maskov.models import load
from maskov.models.autoregressive import AutoregressiveTranslator
from maskov.models.conditional import ConditionalModel
from maskov.shipped import folder_of
from maskov.translation import TranslationMethod, run_method, translations_of

SUBJECTS = """
die alte Bibliothek am Fluss
eine kleine Gruppe von Studenten aus dem Dorf
er
der Bericht, den der Ausschuss im vergangenen Jahr vorgelegt hat,
die neue Brücke
die Kommission
niemand in der Stadt
der Präsident des Parlaments
""".strip().splitlines()
PREDICATES = """
wurde im Winter wegen Reparaturen geschlossen.
hat so etwas noch nie gesehen.
ist im ganzen Land für die Qualität seiner Arbeit bekannt.
ging.
kam erst am Ende des Sommers zurück, als die Straßen wieder offen waren.
erhielt mehrere Preise.
stieß auf starken Widerstand der örtlichen Regierung.
gilt oft als das Wichtigste ihrer Zeit, obwohl sich nur wenige daran erinnern, warum das so ist.
""".strip().splitlines()
# The order mixes lengths, so any prefix resembles the whole.
SENTENCES = [
    f"{subject[0].upper()}{subject[1:]} {PREDICATES[(row + shift) % len(PREDICATES)]}"
    for shift in range(len(PREDICATES))
    for row, subject in enumerate(SUBJECTS)
]
METHODS = {
    "greedy": TranslationMethod("greedy"),
    "mask-predict": TranslationMethod("mask-predict", iterations=10, length_beam=1),
    "mask-predict, 5 lengths": TranslationMethod("mask-predict", iterations=10, length_beam=5),
    "gibbs": TranslationMethod("gibbs"),
    "block-gibbs": TranslationMethod("block-gibbs"),
    "mh raw": TranslationMethod("mh", energy="raw"),
    **{
        f"mh raw, early tests: {tests}": TranslationMethod("mh", energy="raw", delayed=tests)
        for tests in ("off", "1", "2", "4", "1,4", "1,4,16")
    },
    "mh norm": TranslationMethod("mh", energy="norm"),
    "block-mh norm": TranslationMethod("block-mh", energy="norm"),
    "ar greedy": TranslationMethod("ar", beam=1),
    "ar beam 5": TranslationMethod("ar", beam=5),
}


def load_translator(name: str, device: str, precision: str) -> ConditionalModel:
    """Load a translation model."""
    model = load(name, device, precision)
    refuse((not isinstance(model, ConditionalModel), f"'{name}' is not a translation model."))
    return cast(ConditionalModel, model)


def short(method: TranslationMethod) -> TranslationMethod:
    """Return a method of a few epochs: every kernel is compiled by their end."""
    return replace(method, epochs=method.schedule().force_accept + 2)


def sources(count: int, file: Path | None = None) -> list[str]:
    """Return `count` sentences: the first ones of a file, or our own, repeated if necessary."""
    if file is not None:
        return file.read_text(encoding="utf-8").splitlines()[:count]
    return [SENTENCES[number % len(SENTENCES)] for number in range(count)]


def measure(
    model: ConditionalModel,
    lines: list[str],
    method: TranslationMethod,
    twin: AutoregressiveTranslator | None,
) -> tuple[dict[str, float], list[str]]:
    """Translate once; return what a sentence cost and came to, if it has passes, and the texts."""
    if method.name == "ar":
        return {}, [line.text for line in translate(model, lines, method, twin)]
    run = run_method(model.given(lines), method)
    found = translations_of(run, method)
    row = {
        "passes_per_sentence": float(run.traces["passes"].sum()) / len(lines),
        "energy_raw": sum(line.energy_raw for line in found) / len(lines),
        "energy_norm": sum(line.energy_norm for line in found) / len(lines),
    }
    return row, [line.text for line in found]


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure the methods that are not in FILE yet."""
    made = parser(
        __doc__, **MODEL | {"model": "deroen-small", "twin": "deroen-twin"}, sentences=256
    )
    made.add_argument("--sources", type=Path, help="file of German sentences, one per line")
    made.add_argument("--references", type=Path, help="translations of --sources, for BLEU")
    made.add_argument("--methods", nargs="*", choices=list(METHODS), default=list(METHODS))
    options = made.parse_args(arguments)
    model = load_translator(options.model, options.device, options.precision)
    twin, device = None, model.device
    if any(METHODS[name].name == "ar" for name in options.methods):
        folder = folder_of(options.twin) or Path(options.twin)
        twin = AutoregressiveTranslator.load(folder, device, folder.name)
    lines = sources(options.sentences, options.sources)
    results: dict[str, Any] = {
        "kind": "translate",
        "model": Path(model.name).name,
        "precision": options.precision,
        "sentences": len(lines),
        "sources": "built in" if options.sources is None else options.sources.name,
        "words": sum(len(line.split()) for line in lines) / len(lines),
        **about(device),
        "rows": {},
    }
    for name in options.methods:
        method = first = METHODS[name]
        if device.type != "cpu" and method.name not in ("greedy", "mask-predict"):
            first = short(method)  # the steps are recorded anew in each run
        translate(model, lines[:2] if device.type == "cpu" else lines, first, twin, progress=False)
        begin = now(device)
        row, texts = measure(model, lines, method, twin)
        seconds = now(device) - begin
        row |= {"seconds": seconds, "sentences_per_second": len(lines) / seconds}
        if options.references is not None:
            row["bleu"] = compare(texts, sources(len(lines), options.references), 1).bleu
        results["rows"][name] = row
        write(options.out, results)
        print(f"{name:24s} {len(lines) / seconds:10.2f} sentences/s", flush=True)
