"""Antibodies: exactness on a lattice, published pseudo-perplexities, humanisation.

    python -m experiments.studies.antibody scores DATA WORK --out FILE [--rows 2048]
    python -m experiments.studies.antibody answer DATA WORK [--part 0/2] # the passes of the lattice
    python -m experiments.studies.antibody plan DATA WORK --out FILE     # how many samples it needs
    python -m experiments.studies.antibody lattice DATA WORK --out FILE
    python -m experiments.studies.antibody rank DATA WORK            # ranks mutations
    python -m experiments.studies.antibody humanise DATA WORK --out FOLDER
    python -m experiments.studies.antibody page RESULTS              # the figures
    python experiments/studies/antibody/peer.py LATTICE --out FILE   # EvoProtGrad, elsewhere

DATA holds `d44_antiberty_perplexity.csv`, `cr6261_h1_kd.csv` and `humab25/`. WORK keeps what was
computed, so that every step can be stopped and run again. A core of a CPU runs about 15 passes of
AntiBERTy a second: `answer` needs 119,000 of them, `scores --rows 2048` 228,000.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import numpy as np

import maskov


def _options() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="experiments.studies.antibody", description=__doc__.splitlines()[0]
    )
    steps = parser.add_subparsers(dest="step", required=True)

    def step(name: str, about: str) -> argparse.ArgumentParser:
        added = steps.add_parser(name, help=about)
        added.add_argument("data", type=Path)
        added.add_argument("work", type=Path)
        added.add_argument("--device", default="auto")
        return added

    scores = step("scores", "pseudo-perplexities against published ones")
    scores.add_argument("--out", type=Path, required=True)
    scores.add_argument("--rows", type=int, default=8, help="rows of the table, evenly spaced")
    for name, about in (
        ("answer", "run the passes of the lattice"),
        ("plan", "expected total variation of samples"),
        ("lattice", "sample it"),
    ):
        added = step(name, about)
        added.add_argument("--model", default="antiberty")
        added.add_argument("--places", type=int, default=10)
        if name == "answer":
            added.add_argument("--part", default="0/1", help="0/2 and 1/2 share the passes")
        else:
            added.add_argument("--chains", type=int, default=1024)
            added.add_argument("--epochs", type=int, default=100)
            added.add_argument("--seed", type=int, default=0)
            added.add_argument("--out", type=Path, required=True)
    for name, about in (("rank", "probabilities of letters"), ("humanise", "curves")):
        added = step(name, about)
        added.add_argument("--evaluator", type=Path, help="default: DATA/../../tools/humab_eval.py")
        added.add_argument("--most", type=int, help="chains to humanise (default: all)")
        if name == "humanise":
            added.add_argument("--out", type=Path, required=True)
            continue
        added.add_argument("--chains", type=int, default=0, help="0: without samples")
        added.add_argument("--epochs", type=int, default=12)
        added.add_argument("--seed", type=int, default=0)
        added.add_argument("--energy", default="norm(groups=8)")
        added.add_argument("--keep", type=float, default=0.0, help="weight of the changes")
        added.add_argument("--temperature", type=float, default=1.0)
    page = steps.add_parser("page", help="draw the figures")
    page.add_argument("results", type=Path)
    return parser


def main(arguments: list[str] | None = None) -> None:
    """Run one step."""
    options = _options().parse_args(arguments)
    if options.step == "page":
        from experiments.studies.antibody.page import draw

        draw(options.results)
    elif options.step == "scores":
        from experiments.studies.antibody.scores import compare

        model = maskov.load("antiberty", options.device)
        _write(options.out, compare(options.data, model, options.rows, options.work))
    elif options.step in ("answer", "plan", "lattice"):
        _lattice(options)
    elif options.step == "rank":
        _rank(options)
    else:
        _humanise(options)


def _lattice(options: argparse.Namespace) -> None:
    from experiments.studies.antibody.answers import Answers
    from experiments.studies.antibody.lattice import Lattice
    from experiments.studies.antibody.law import enumerate_law, sampled

    lattice = Lattice.read(options.data, options.places)
    answers = Answers(maskov.load(options.model, options.device))
    folder = options.work / f"answers-{options.model}-{options.places}"
    if options.step == "answer":
        part, parts = map(int, options.part.split("/"))
        contexts = lattice.contexts(answers)
        for done in answers.fill(contexts, folder, part, parts):
            print(f"{done} of {len(contexts)}", flush=True)
        return
    answers.load(folder)
    law = enumerate_law(lattice, answers)
    if options.step == "plan":
        from experiments.studies.antibody.plan import expected, transitions

        energies = np.array(law["energies"])
        chances = np.exp(energies.min() - energies)
        chances /= chances.sum()
        matrix, places = transitions(lattice, answers, chances), len(lattice.letters)
        _write(options.out, expected(places, matrix, chances, options.chains, options.epochs))
        return
    found = sampled(lattice, answers, law, options.chains, options.epochs, options.seed)
    _write(options.out, {**law, "sampled": found, "passes_asked_anew": answers.asked})


def _rank(options: argparse.Namespace) -> None:
    from experiments.studies.antibody.humanise import save
    from experiments.studies.antibody.rankings import masked, one_pass, samples

    panel = _panel(options)
    sapiens = {kind: maskov.load(f"sapiens-{kind}", options.device) for kind in ("vh", "vl")}
    own = {name: sapiens[name[-2:].lower()] for name in panel.parents}
    folder = options.work / "rankings"
    if options.chains:
        found = {}
        for name, parent in panel.parents.items():
            found[name] = samples(
                own[name], name, parent, panel.held[name], energy=options.energy,
                keep=options.keep, temperature=options.temperature, chains=options.chains,
                epochs=options.epochs, seed=options.seed,
            )  # fmt: skip
            print(name, flush=True)
        save(folder / "samples.npz", found)
        return
    antiberty = maskov.load("antiberty", options.device)
    for kind, ranking in {
        "one-pass": {name: one_pass(own[name], one) for name, one in panel.parents.items()},
        "masked": {name: masked(own[name], one) for name, one in panel.parents.items()},
        "antiberty": {name: masked(antiberty, one) for name, one in panel.parents.items()},
    }.items():
        save(folder / f"{kind}.npz", ranking)


def _humanise(options: argparse.Namespace) -> None:
    from experiments.studies.antibody.humanise import humanise, load
    from maskov import Record
    from maskov.fasta import to_fasta

    found, made = humanise(_panel(options), load(options.work / "rankings"))
    _write(options.out / "humanise.json", found, shown=("weights", "gains", "kept"))
    text = to_fasta(Record(name, sequence) for name, sequence in made.items())
    (options.out / "humanised.fa").write_text(text)


def _panel(options: argparse.Namespace) -> Any:
    from experiments.studies.antibody.panel import Panel

    usual = options.data.resolve().parents[1] / "tools" / "humab_eval.py"
    return Panel.read(options.data, options.evaluator or usual, options.most)


def _write(file: Path, found: dict[str, Any], shown: tuple[str, ...] = ()) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps(found) + "\n")
    keys = shown or [key for key in found if key != "energies"]
    print(json.dumps({key: found[key] for key in keys}, indent=1))


if __name__ == "__main__":
    main()
