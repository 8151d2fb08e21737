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

from benchmarks.models import mixed
from benchmarks.tools import MODEL, now, parser, write
from maskov import translate
from maskov.errors import refuse
from maskov.evaluation import compare
from maskov.models import load
from maskov.models.autoregressive import AutoregressiveTranslator
from maskov.models.conditional import ConditionalModel
from maskov.shipped import folder_of
from maskov.translation import TranslationMethod, run_method, translations_of

_SUBJECTS = """
Die alte Bibliothek am Fluss
Eine kleine Gruppe von Studenten aus dem Dorf
Er
Der Bericht, den der Ausschuss im vergangenen Jahr vorgelegt hat,
Die neue Brücke
Die Kommission
Niemand in der Stadt
Der Präsident des Parlaments
"""
_PREDICATES = """
wurde im Winter wegen Reparaturen geschlossen.
hat so etwas noch nie gesehen.
ist im ganzen Land für die Qualität seiner Arbeit bekannt.
ging.
kam erst am Ende des Sommers zurück, als die Straßen wieder offen waren.
erhielt mehrere Preise.
stieß auf starken Widerstand der örtlichen Regierung.
gilt oft als das Wichtigste ihrer Zeit, obwohl sich nur wenige daran erinnern, warum das so ist.
"""
SENTENCES = mixed(_SUBJECTS, _PREDICATES)
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


def sources(count: int, file: Path | None = None) -> list[str]:
    """Return `count` sentences: the first ones of a file, or our own, repeated if necessary."""
    if file is not None:
        return file.read_text(encoding="utf-8").splitlines()[:count]
    return [SENTENCES[number % len(SENTENCES)] for number in range(count)]


def measure(
    model: ConditionalModel,
    lines: list[str],
    method: TranslationMethod,
    twin: AutoregressiveTranslator | None = None,
) -> tuple[dict[str, float], list[str]]:
    """Translate once, after a warm-up; return what it cost and came to, and the texts."""

    def translated(method: TranslationMethod, lines: list[str]) -> tuple[Any, Any]:
        if method.name == "ar":
            return None, translate(model, lines, method, twin, progress=False)
        run = run_method(model.given(lines), method)
        return run, translations_of(run, method)

    cpu, first = model.device.type == "cpu", method
    if not cpu and method.name not in ("greedy", "mask-predict", "ar"):
        # Every kernel is compiled by then; the steps are recorded anew in each run.
        first = replace(method, epochs=method.schedule().force_accept + 2)
    translated(first, lines[:2] if cpu else lines)
    begin = now(model.device)
    run, found = translated(method, lines)
    seconds = now(model.device) - begin
    row = {"seconds": seconds, "sentences_per_second": len(lines) / seconds}
    if run is not None:
        passes = float(run.traces["passes"].sum())
        row |= {"passes_per_second": passes / seconds, "passes_per_sentence": passes / len(lines)}
        for energy in ("energy_raw", "energy_norm"):
            row[energy] = sum(getattr(one, energy) for one in found) / len(lines)
    return row, [one.text for one in found]


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
        "sentences": len(lines),
        "sources": "built in" if options.sources is None else options.sources.name,
        "words": sum(len(line.split()) for line in lines) / len(lines),
        "rows": {},
    }
    for name in options.methods:
        row, texts = measure(model, lines, METHODS[name], twin)
        if options.references is not None:
            row["bleu"] = compare(texts, sources(len(lines), options.references), 1).bleu
        results["rows"][name] = row
        write(options, device, results)
        print(f"{name:24s} {row['sentences_per_second']:10.2f} sentences/s", flush=True)
