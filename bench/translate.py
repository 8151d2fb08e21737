"""Sentences a second of every way to translate.

    python bench/translate.py --out FILE [--sentences 256] [--device cuda --precision tf32]

On German sentences of mixed lengths, with the models of the repository. A first translation of two
of them warms up and is not counted; the time is that of the whole call, the encoder's pass over the
sources included. FILE is written after every row, and what it holds already is not done again.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import Any

import torch

from maskov.benchmarks.machine import all_versions, machine
from maskov.models import choose_device, load
from maskov.models.registry import folder_of
from maskov.translation.api import translate
from maskov.translation.autoregressive import AutoregressiveTranslator
from maskov.translation.methods import TranslationMethod

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
# In an order that mixes lengths, so that any first part of them is like the whole.
SENTENCES = [
    f"{subject[0].upper()}{subject[1:]} {PREDICATES[(row + shift) % len(PREDICATES)]}"
    for shift in range(len(PREDICATES))
    for row, subject in enumerate(SUBJECTS)
]
METHODS = {
    "greedy": TranslationMethod("greedy"),
    "mask-predict": TranslationMethod("mask-predict", iterations=10, length_beam=1),
    "mask-predict, 5 lengths": TranslationMethod("mask-predict", iterations=10, length_beam=5),
    "gibbs": TranslationMethod("gibbs", epochs=20),
    "block-gibbs": TranslationMethod("block-gibbs", epochs=20),
    "mh raw": TranslationMethod("mh", energy="raw", epochs=20),
    "mh norm": TranslationMethod("mh", energy="norm", epochs=20),
    "block-mh norm": TranslationMethod("block-mh", energy="norm", epochs=20),
    "ar greedy": TranslationMethod("ar", beam=1),
    "ar beam 5": TranslationMethod("ar", beam=5),
}


def sources(count: int) -> list[str]:
    """Return so many sentences, from the first again where they do not suffice."""
    return [SENTENCES[number % len(SENTENCES)] for number in range(count)]


def main(arguments: list[str] | None = None) -> None:
    """Measure the rows that are not there yet."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", default="deroen-small")
    parser.add_argument("--twin", default="deroen-twin")
    parser.add_argument("--sentences", type=int, default=256)
    parser.add_argument("--methods", nargs="*", choices=list(METHODS), default=list(METHODS))
    parser.add_argument("--device", default="auto")
    parser.add_argument("--precision", default="float32")
    parser.add_argument("--out", type=Path, required=True)
    given = parser.parse_args(arguments)
    device = choose_device(given.device)
    model = load(given.model, given.device, given.precision)
    twin = AutoregressiveTranslator.load(
        folder_of(given.twin) or Path(given.twin), device, Path(given.twin).name
    )
    lines = sources(given.sentences)
    found: dict[str, Any] = {
        "model": model.name,
        "precision": given.precision,
        "sentences": given.sentences,
        "words": sum(len(line.split()) for line in lines) / len(lines),
        "machine": machine(device),
        "versions": all_versions(),
        "rows": {},
    }
    if given.out.exists():
        before = json.loads(given.out.read_text())
        if {**before, "rows": {}} != found:
            parser.error(f"'{given.out}' was measured otherwise; give another --out.")
        found = before
    for name in given.methods:
        if name in found["rows"]:
            continue
        method = METHODS[name]
        translate(model, lines[:2], method, twin)
        begun = time.perf_counter()
        translate(model, lines, method, twin)
        if device.type == "cuda":
            torch.cuda.synchronize()
        spent = time.perf_counter() - begun
        found["rows"][name] = {"seconds": spent, "sentences_per_second": given.sentences / spent}
        given.out.write_text(json.dumps(found, indent=1) + "\n")
        print(f"{name:24s} {given.sentences / spent:10.2f} sentences/s", flush=True)


if __name__ == "__main__":
    main()
