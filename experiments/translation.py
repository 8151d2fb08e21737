"""Compare translation methods: BLEU, energies, and sentences per second.

    python -m experiments.translation TESTS --set europarl.dev.deen --most 200 --out FILE

TESTS is a folder of NAME.LANGUAGE files, such as europarl.dev.deen.de. Rows already in FILE are
not run again, so an interrupted run can be continued. Every row has its settings, its time and
sacreBLEU's signature. A source that is too long for the models counts as an empty translation. The
texts go to FILE with the suffix .txt, one block per row.
"""

from __future__ import annotations

import argparse
import json
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from maskov.errors import InputError
from maskov.evaluation.translation import compare
from maskov.models import choose_device, device_name, load
from maskov.models.conditional.model import ConditionalModel, read_source
from maskov.models.fingerprints import model_weights_hash
from maskov.shipped import folder_of, model_for
from maskov.translation.api import Translation, energies_of, translate
from maskov.translation.autoregressive import AutoregressiveTranslator
from maskov.translation.methods import TranslationMethod

# The rows of the paper's Table 5, and rows that separate energy from quality.
ROWS: dict[str, TranslationMethod] = {
    "warm start": TranslationMethod("greedy"),
    "gibbs 0.8": TranslationMethod("gibbs", temperature=0.8),
    "mask-predict 10": TranslationMethod("mask-predict", iterations=10),
    "mask-predict 10, 5 lengths": TranslationMethod("mask-predict", iterations=10, length_beam=5),
    "mh raw": TranslationMethod("mh", energy="raw", force_accept=2),
    "mh norm": TranslationMethod("mh", energy="norm", force_accept=2),
    "mh raw, anneal 0.04": TranslationMethod(
        "mh", energy="raw", anneal=0.04, epochs=25, force_accept=2
    ),
    "mh norm, anneal 0.04": TranslationMethod(
        "mh", energy="norm", anneal=0.04, epochs=25, force_accept=2
    ),
    # A chain that starts to reject far from a good translation stays there.
    "mh raw, anneal 0.04, forced 8": TranslationMethod(
        "mh", energy="raw", anneal=0.04, epochs=25, force_accept=8
    ),
    "mh norm, anneal 0.04, forced 8": TranslationMethod(
        "mh", energy="norm", anneal=0.04, epochs=25, force_accept=8
    ),
    "mh norm, anneal 0.04, forced 8, lowest of 5 lengths": TranslationMethod(
        "mh",
        energy="norm",
        anneal=0.04,
        epochs=25,
        force_accept=8,
        chains=5,
        lengths="top",
        pick="lowest",
    ),
    "mh raw, mbr of 5": TranslationMethod("mh", energy="raw", chains=5, pick="mbr", force_accept=2),
    "block mh norm": TranslationMethod("block-mh", energy="norm", force_accept=2),
    "block gibbs": TranslationMethod("block-gibbs"),
    "autoregressive, greedy": TranslationMethod("ar", beam=1),
    "autoregressive, beam 5": TranslationMethod("ar", beam=5),
}


def read(path: Path, most: int | None) -> list[str]:
    """Read lines."""
    return path.read_text(encoding="utf-8").removesuffix("\n").split("\n")[:most]


def readable(model: ConditionalModel, sources: list[str]) -> list[bool]:
    """Return which sources the model can read."""
    fits = []
    for source in sources:
        try:
            read_source(model, source, "line")
        except InputError:
            fits.append(False)
        else:
            fits.append(True)
    return fits


def row_of(
    translations: list[Translation],
    texts: list[str],
    references: list[str],
    seconds: float,
    method: TranslationMethod,
) -> dict[str, Any]:
    """Return the numbers of one row; energies are means over sentences with standard errors."""
    score = compare(texts, references)
    raw = np.array([translation.energy_raw for translation in translations])
    norm = np.array([translation.energy_norm for translation in translations])
    error = len(translations) ** -0.5
    return {
        "method": {name: value for name, value in asdict(method).items() if value is not None},
        **score.to_dict(),
        "energy_raw": float(raw.mean()),
        "energy_raw_standard_error": float(raw.std(ddof=1) * error),
        "energy_norm": float(norm.mean()),
        "energy_norm_standard_error": float(norm.std(ddof=1) * error),
        "seconds": seconds,
        "sentences_per_second": len(translations) / seconds,
    }


def main(arguments: list[str] | None = None) -> None:
    """Run the selected rows that are not in FILE yet."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("tests", type=Path)
    parser.add_argument("--pair", default="de-en")
    parser.add_argument("--set", dest="name", default="europarl.dev.deen")
    parser.add_argument("--model")
    parser.add_argument("--twin")
    parser.add_argument("--most", type=int, help="maximum number of sentences")
    parser.add_argument("--rows", nargs="*", choices=list(ROWS), default=list(ROWS))
    parser.add_argument("--device", default="auto")
    parser.add_argument("--precision", default="float32")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args(arguments)
    languages = options.name.rsplit(".", 1)[1]
    sources = read(options.tests / f"{options.name}.{languages[:2]}", options.most)
    references = read(options.tests / f"{options.name}.{languages[2:]}", options.most)
    name = options.model or model_for(options.pair, "translation")
    model = load(name, options.device, options.precision)
    assert isinstance(model, ConditionalModel)
    twin_name = options.twin or model_for(options.pair, "twin")
    device = choose_device(options.device)
    twin = AutoregressiveTranslator.load(folder_of(twin_name) or Path(twin_name), device, twin_name)
    fits = readable(model, sources)
    read_sources = [source for source, fit in zip(sources, fits, strict=True) if fit]
    results: dict[str, Any] = {
        "set": options.name,
        "sentences": len(sources),
        "too_long": fits.count(False),
        "model": {"name": Path(model.name).name, "fingerprint": model_weights_hash(model)},
        "twin": Path(twin.name).name,
        "seed": options.seed,
        "precision": options.precision,
        "device": device_name(device),
        "rows": {},
    }
    if options.out.exists():
        stored = json.loads(options.out.read_text(encoding="utf-8"))
        if {**stored, "rows": {}} != results:
            parser.error(f"'{options.out}' contains another experiment; give another --out.")
        results = stored
    else:
        kept = [reference for reference, fit in zip(references, fits, strict=True) if fit]
        raw, norm = energies_of(model.given(read_sources), kept)
        results["rows"]["reference"] = {
            "energy_raw": float(np.mean(raw)), "energy_norm": float(np.mean(norm)),
        }  # fmt: skip
    texts = options.out.with_suffix(".txt")
    for row in options.rows:
        if row in results["rows"]:
            continue
        method, start = ROWS[row], time.monotonic()
        settings = {} if method.name == "ar" else {"seed": options.seed}
        translations = translate(model, read_sources, method, twin, **settings)
        seconds, remaining = time.monotonic() - start, iter(translations)
        outputs = [next(remaining).text if fit else "" for fit in fits]
        result = row_of(translations, outputs, references, seconds, method)
        results["rows"][row] = result
        options.out.write_text(json.dumps(results, indent=1, ensure_ascii=False) + "\n")
        with texts.open("a", encoding="utf-8") as file:
            file.write(f"== {row}\n" + "".join(text + "\n" for text in outputs))
        print(
            f"{row:28s} BLEU {result['bleu']:5.2f} ± {result['bleu_interval']:.2f}  "
            f"ratio {result['length_ratio']:.3f}  E_norm {result['energy_norm']:6.2f}  "
            f"E_raw {result['energy_raw']:7.2f}  {result['sentences_per_second']:.2f} /s",
            flush=True,
        )


if __name__ == "__main__":
    main()
