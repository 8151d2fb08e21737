"""The ways to translate side by side: BLEU, energies, and sentences per second.

    python -m experiments.translation TESTS --set europarl.dev.deen --most 200 --out FILE

TESTS is a folder of NAME.LANGUAGE files, such as europarl.dev.deen.de. What FILE holds already is
not done again, so that a run that was stopped goes on; every row has its settings, its time and the
signature of sacreBLEU. A source longer than the models read counts as an empty translation. Texts
go to FILE with .txt in place of .json, one block a row.
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
from maskov.models.registry import folder_of, model_for
from maskov.translation.api import Translation, energies_of, translate
from maskov.translation.autoregressive import AutoregressiveTranslator
from maskov.translation.methods import TranslationMethod

# The rows of the paper's Table 5, and what tells energy from quality.
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
    # A chain that is still far from good when it begins to reject stays where it is.
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
    """Say which sources the model can read."""
    found = []
    for source in sources:
        try:
            read_source(model, source, "line")
        except InputError:
            found.append(False)
        else:
            found.append(True)
    return found


def row_of(
    found: list[Translation],
    texts: list[str],
    references: list[str],
    seconds: float,
    method: TranslationMethod,
) -> dict[str, Any]:
    """Return the numbers of one row; energies are means over sentences, with standard errors."""
    score = compare(texts, references)
    raw = np.array([translation.energy_raw for translation in found])
    norm = np.array([translation.energy_norm for translation in found])
    error = len(found) ** -0.5
    return {
        "method": {name: value for name, value in asdict(method).items() if value is not None},
        **score.to_dict(),
        "energy_raw": float(raw.mean()),
        "energy_raw_standard_error": float(raw.std(ddof=1) * error),
        "energy_norm": float(norm.mean()),
        "energy_norm_standard_error": float(norm.std(ddof=1) * error),
        "seconds": seconds,
        "sentences_per_second": len(found) / seconds,
    }


def main(arguments: list[str] | None = None) -> None:
    """Run the rows that are asked for and not there yet."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("tests", type=Path)
    parser.add_argument("--pair", default="de-en")
    parser.add_argument("--set", dest="name", default="europarl.dev.deen")
    parser.add_argument("--model")
    parser.add_argument("--twin")
    parser.add_argument("--most", type=int, help="the first so many sentences")
    parser.add_argument("--rows", nargs="*", choices=list(ROWS), default=list(ROWS))
    parser.add_argument("--device", default="auto")
    parser.add_argument("--precision", default="float32")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, required=True)
    given = parser.parse_args(arguments)
    languages = given.name.rsplit(".", 1)[1]
    sources = read(given.tests / f"{given.name}.{languages[:2]}", given.most)
    references = read(given.tests / f"{given.name}.{languages[2:]}", given.most)
    name = given.model or model_for(given.pair, "translation")
    model = load(name, given.device, given.precision)
    assert isinstance(model, ConditionalModel)
    twin_name = given.twin or model_for(given.pair, "twin")
    device = choose_device(given.device)
    twin = AutoregressiveTranslator.load(folder_of(twin_name) or Path(twin_name), device, twin_name)
    fits = readable(model, sources)
    read_sources = [source for source, fit in zip(sources, fits, strict=True) if fit]
    found: dict[str, Any] = {
        "set": given.name,
        "sentences": len(sources),
        "too_long": fits.count(False),
        "model": {"name": Path(model.name).name, "fingerprint": model.fingerprint()},
        "twin": Path(twin.name).name,
        "seed": given.seed,
        "precision": given.precision,
        "device": device_name(device),
        "rows": {},
    }
    if given.out.exists():
        before = json.loads(given.out.read_text(encoding="utf-8"))
        if {**before, "rows": {}} != found:
            parser.error(f"'{given.out}' holds another experiment; give another --out.")
        found = before
    else:
        kept = [reference for reference, fit in zip(references, fits, strict=True) if fit]
        raw, norm = energies_of(model.given(read_sources), kept)
        found["rows"]["reference"] = {
            "energy_raw": float(np.mean(raw)), "energy_norm": float(np.mean(norm)),
        }  # fmt: skip
    texts = given.out.with_suffix(".txt")
    for row in given.rows:
        if row in found["rows"]:
            continue
        method, begun = ROWS[row], time.monotonic()
        settings = {} if method.name == "ar" else {"seed": given.seed}
        lines = translate(model, read_sources, method, twin, **settings)
        spent, left = time.monotonic() - begun, iter(lines)
        outputs = [next(left).text if fit else "" for fit in fits]
        result = row_of(lines, outputs, references, spent, method)
        found["rows"][row] = result
        given.out.write_text(json.dumps(found, indent=1, ensure_ascii=False) + "\n")
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
