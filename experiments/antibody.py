"""Antibodies: exactness on a lattice, published pseudo-perplexities, humanisation.

    python -m experiments.antibody scores DATA --out FILE [--rows 2048]
    python -m experiments.antibody lattice DATA --out FILE [--places 10] [--model antiberty]
    python -m experiments.antibody humanise DATA --out FOLDER [--evaluator humab_eval.py]

DATA holds `d44_antiberty_perplexity.csv`, `cr6261_h1_kd.csv` and `humab25/`. Sizes are small by
default: a CPU takes seven seconds for AntiBERTy's pseudo-perplexity of one chain. `--rows 2048` and
`--places 10` are the whole of both, for a GPU.
"""

from __future__ import annotations

import argparse
import csv
import importlib.util
import itertools
import json
import math
import time
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import torch

import maskov
from maskov import AllowedTokens, MaskedConditional, Metropolis, Record, Schedule, Site
from maskov.energies.distances import Hamming
from maskov.fasta import to_fasta
from maskov.models import MaskedModel
from maskov.schedules import LinearSchedule

# What systems proposed, as points beside our curve (`humab_eval.py` has their numbers).
PUBLISHED = ("humab", "straight_grafts", "vernier_grafts", *(f"sapiens{k}" for k in range(1, 6)))

THRESHOLDS = (0.002, 0.005, 0.01, 0.02, 0.03, 0.05, 0.07, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.7, 0.9)


def rows_of(file: Path) -> list[dict[str, str]]:
    """Read a table."""
    with file.open(encoding="utf-8") as lines:
        return list(csv.DictReader(lines))


def spread(count: int, most: int) -> list[int]:
    """Return evenly spaced indices."""
    return sorted({round(index) for index in np.linspace(0, count - 1, min(most, count))})


def scores(data: Path, model: MaskedModel, rows: int) -> dict[str, Any]:
    """Compare pseudo-perplexities exp(E_norm / length) with the published ones."""
    table = rows_of(data / "d44_antiberty_perplexity.csv")
    published = {
        row[chain]: float(row[f"{chain}_perplexity"])
        for index in spread(len(table), rows)
        for row in [table[index]]
        for chain in ("heavy", "light")
    }
    began = time.monotonic()
    found = maskov.score(model, [Record(one, one) for one in published], maskov.Norm())
    ours = [math.exp(one.energy / len(one.terms)) for one in found]
    theirs = list(published.values())
    relative = [abs(a - b) / b for a, b in zip(ours, theirs, strict=True)]
    return {
        "sequences": len(found),
        "largest_relative_difference": max(relative),
        "mean_relative_difference": float(np.mean(relative)),
        "largest": dict(
            zip(("ours", "published"), (ours[at := int(np.argmax(relative))], theirs[at]),
                strict=True)
        ),
        "seconds": round(time.monotonic() - began, 1),
    }  # fmt: skip


def frozen(sequence: str, letters: dict[int, str]) -> AllowedTokens:
    """Allow some letters at some places, counted from 0, and the sequence's own elsewhere."""
    return AllowedTokens(
        tuple((at + 1, at + 1, letters.get(at, own)) for at, own in enumerate(sequence))
    )


def lattice(
    data: Path, model: MaskedModel, places: int, chains: int, epochs: int, seed: int = 0
) -> dict[str, Any]:
    """Return the total variation between samples of E_norm on a lattice and the enumerated law."""
    sequences = sorted({row["heavy"] for row in rows_of(data / "cr6261_h1_kd.csv")})
    letters = [sorted(set(column)) for column in zip(*sequences, strict=True)]
    varied = [at for at, found in enumerate(letters) if len(found) == 2][:places]
    parent = sequences[0]
    every = []
    for chosen in itertools.product(*(letters[at] for at in varied)):
        made = list(parent)
        for at, letter in zip(varied, chosen, strict=True):
            made[at] = letter
        every.append("".join(made))
    began = time.monotonic()
    exact = maskov.score(model, [Record(one, one) for one in every], maskov.Norm())
    law = torch.softmax(torch.tensor([-one.energy for one in exact], dtype=torch.float64), 0)
    enumerated = time.monotonic() - began
    allowed = frozen(parent, {at: "".join(letters[at]) for at in varied})
    kernel = Metropolis(maskov.Norm(), Site(MaskedConditional(constraints=(allowed,))))
    burn_in = max(epochs // 10, 1)
    run = maskov.sample(
        model, kernel, Schedule(epochs=epochs, burn_in=burn_in), chains=chains,
        texts=[Record("parent", parent)], thin=1, seed=seed,
    )  # fmt: skip
    drawn = Counter("".join(sample.tokens) for sample in run.samples)
    share = torch.tensor([drawn[one] for one in every], dtype=torch.float64) / drawn.total()
    assert drawn.keys() <= set(every), "a sample left the lattice"
    summary, size = run.summary(), drawn.total()
    # The mean total variation of as many independent draws.
    noise = 0.5 * (2 * law * (1 - law) / (math.pi * size)).sqrt().sum()
    return {
        "model": model.name,
        "sequences": len(every),
        "samples": size,
        "total_variation": 0.5 * float((share - law).abs().sum()),
        "of_independent_draws": float(noise),
        "entropy_bits": float(-(law * law.log2()).sum()),
        "novel_rate": summary.novel_rate,
        "passes": int(run.traces["passes"].sum()),
        "seconds_enumerated": round(enumerated, 1),
        "seconds": round(time.monotonic() - began, 1),
        "signature": run.signature,
    }


def evaluator(file: Path) -> Any:
    """Load `humab_eval.py`."""
    spec = importlib.util.spec_from_file_location("humab_eval", file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def marginals(
    model: MaskedModel, record: Record, cdr: set[int], options: argparse.Namespace
) -> list[Counter[str]]:
    """Sample a chain with its CDRs frozen; return the letters seen at each place."""
    every = "ACDEFGHIKLMNPQRSTVWY"
    free = {at: every for at in range(len(record.sequence)) if at not in cdr}
    conditional = MaskedConditional(constraints=(frozen(record.sequence, free),))
    energy: Any = maskov.parse_energy(options.energy)
    if options.keep:
        energy = energy + options.keep * Hamming()
    temperature = LinearSchedule(options.temperature, 0.0, options.temperature)
    schedule = Schedule(
        epochs=options.epochs, burn_in=options.epochs // 3, target_temperature=temperature
    )
    run = maskov.sample(
        model, Metropolis(energy, Site(conditional)), schedule, chains=options.chains,
        texts=[record], thin=1, seed=options.seed,
    )  # fmt: skip
    return [Counter(column) for column in zip(*(one.tokens for one in run.samples), strict=True)]


def own_answers(model: MaskedModel, record: Record, cdr: set[int]) -> list[Counter[str]]:
    """Return the model's unmasked probabilities, Sapiens' own way to score letters."""
    ids = model.encode(" ".join(record.sequence))
    network: Any = model
    logits = network.network(
        input_ids=torch.tensor([[*network._before, *ids, *network._after]])
    ).logits[0, len(network._before) : -len(network._after)]
    shares = logits.masked_fill(model.forbidden, -torch.inf).double().softmax(-1)
    return _counted(model, shares, record, cdr)


def masked_answers(model: MaskedModel, record: Record, cdr: set[int]) -> list[Counter[str]]:
    """Return the masked conditionals of the parent: one pass for each place."""
    ids = torch.tensor([model.encode(" ".join(record.sequence))], device=model.device)
    size = ids.shape[1]
    places = torch.arange(size, device=model.device)
    lengths = torch.full((size,), size, device=model.device)
    hidden = model.hidden_at(ids.expand(size, -1), lengths, places)
    shares = model.logits(hidden).masked_fill(model.forbidden, -torch.inf).double().softmax(-1)
    return _counted(model, shares, record, cdr)


def _counted(
    model: MaskedModel, shares: torch.Tensor, record: Record, cdr: set[int]
) -> list[Counter[str]]:
    """Return probabilities by letter; those of frozen places are the parent's."""
    names = model.token_strings(range(model.vocabulary_size))
    found = []
    for at, row in enumerate(shares.tolist()):
        known = {name: value for name, value in zip(names, row, strict=True) if value > 0}
        found.append(Counter({record.sequence[at]: 1.0} if at in cdr else known))  # type: ignore[arg-type]
    return found


def product(first: list[Counter[str]], second: list[Counter[str]]) -> list[Counter[str]]:
    """Return the normalised geometric mean of two rankings, place by place."""
    found = []
    for one, other in zip(first, second, strict=True):
        means = {name: math.sqrt(one[name] * other[name]) for name in one}
        total = sum(means.values())
        found.append(Counter({name: value / total for name, value in means.items()}))  # type: ignore[arg-type]
    return found


def proposal(parent: str, seen: list[Counter[str]], threshold: float) -> str:
    """Take the best letter where the parent's share has fallen below a threshold."""
    made = []
    for own, counts in zip(parent, seen, strict=True):
        best = max(counts, key=lambda letter: (counts[letter], letter))
        made.append(best if counts[own] < threshold * counts.total() else own)
    return "".join(made)


def humanise(data: Path, options: argparse.Namespace) -> dict[str, Any]:
    """Humanise parents by marginals over samples; return precision and recall as curves.

    Thresholds on the parent's share at a place make the curve. `chosen` pairs are every other one:
    the threshold of `humanised.fa` is chosen on them. Beside samples there are cheap rankings:
    the unmasked and the masked answers of the model for the parent, and their geometric mean. They
    are all there is without chains.
    """
    tool = evaluator(options.evaluator)
    folder = data / "humab25"
    parent, lab = tool.fasta(folder / "parental.fa"), tool.fasta(folder / "experimental.fa")
    marks = tool.cdrs()
    names = list(parent)[: options.most]
    models = {kind: maskov.load(f"sapiens-{kind}", options.device) for kind in ("vh", "vl")}
    began = time.monotonic()
    seen: dict[str, dict[str, list[Counter[str]]]] = {"one pass": {}, "masked": {}, "both": {}}
    if options.chains:
        seen["samples"] = {}
    for name in names:
        model, record = models[name[-2:].lower()], Record(name, parent[name])
        seen["one pass"][name] = own_answers(model, record, marks[name])
        seen["masked"][name] = masked_answers(model, record, marks[name])
        seen["both"][name] = product(seen["one pass"][name], seen["masked"][name])
        if options.chains:
            seen["samples"][name] = marginals(model, record, marks[name], options)
    pairs = {name: number for number, name in enumerate(dict.fromkeys(n[:-3] for n in names))}
    halves = {
        "chosen on": {name for name in names if pairs[name[:-3]] % 2 == 0},
        "rest": {name for name in names if pairs[name[:-3]] % 2},
        "all": set(names),
    }

    def judged(system: dict[str, str], part: set[str]) -> Any:
        kept = {name: parent[name] for name in names if name in part}
        return tool.scores(system, kept, lab, marks)

    curves: dict[str, Any] = {}
    made: dict[tuple[str, float], dict[str, str]] = {}
    for how, found in seen.items():
        for threshold in THRESHOLDS:
            system = {name: proposal(parent[name], found[name], threshold) for name in names}
            made[how, threshold] = system
            for part, members in halves.items():
                row = {"threshold": threshold, **judged(system, members)}
                curves.setdefault(how, {}).setdefault(part, []).append(row)
    points = {}
    for system in PUBLISHED:
        sequences = tool.fasta(folder / f"{system}.fa")
        points[system] = {part: judged(sequences, members) for part, members in halves.items()}

    def balance(row: dict[str, float]) -> float:
        both = row["precision"] + row["recall"]
        return 2 * row["precision"] * row["recall"] / both if both else 0.0

    how = "samples" if options.chains else "both"
    best = max(curves[how]["chosen on"], key=balance)["threshold"]
    options.out.mkdir(parents=True, exist_ok=True)
    library = made[how, best]
    (options.out / "humanised.fa").write_text(
        to_fasta(Record(name, sequence) for name, sequence in library.items())
    )
    return {
        "settings": {
            name: value for name, value in vars(options).items() if not isinstance(value, Path)
        },
        "chosen": {"how": how, "threshold": best},
        "curves": curves,
        "published": points,
        "seconds": round(time.monotonic() - began, 1),
    }


def main(arguments: list[str] | None = None) -> None:
    """Run one of the three."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("what", choices=("scores", "lattice", "humanise"))
    parser.add_argument("data", type=Path)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--model", default="antiberty")
    parser.add_argument("--rows", type=int, default=8)
    parser.add_argument("--places", type=int, default=3)
    parser.add_argument("--chains", type=int, default=2)
    parser.add_argument("--epochs", type=int, default=12)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--energy", default="norm(groups=8)", help="of humanise")
    parser.add_argument("--keep", type=float, default=0.0, help="weight of changes in humanise")
    parser.add_argument("--temperature", type=float, default=1.0)
    parser.add_argument("--most", type=int, default=50, help="chains to humanise")
    parser.add_argument("--evaluator", type=Path)
    options = parser.parse_args(arguments)
    if options.evaluator is None:
        options.evaluator = options.data.resolve().parents[1] / "tools" / "humab_eval.py"
    if options.what == "humanise":
        found = humanise(options.data, options)
        file = options.out / "humanise.json"
    else:
        model, file = maskov.load(options.model, options.device), options.out
        if options.what == "scores":
            found = scores(options.data, model, options.rows)
        else:
            sizes = (options.places, options.chains, options.epochs, options.seed)
            found = lattice(options.data, model, *sizes)
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps(found, indent=1) + "\n")
    print(json.dumps(found if options.what != "humanise" else found["chosen"], indent=1))


if __name__ == "__main__":
    main()
