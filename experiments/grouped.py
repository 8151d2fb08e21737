"""Quality at equal masked passes: energies of grouped positions against the ordinary ones.

    python -m experiments.grouped --out results/grouped --lengths 20 45
    python -m experiments.grouped --out results/grouped-proteins --model antiberty --lengths 120

Every row is an exact kernel for its own target; all start from the same masked starts, with single
sites and spans of 2 in turns unless --moves says otherwise. Whatever the target, quality is
measured by the ordinary E_raw and E_norm, by the share of positions that changed since the point
before, and by a causal judge where there is one. Points are at 25, 50, 100 and 200 masked passes
per token and chain unless given.
"""

from __future__ import annotations

import argparse
import json
import math
import time
from pathlib import Path
from typing import Any

import numpy as np
from benchmarks.models import load_model

import maskov
from maskov.kernels.registry import named_kernel
from maskov.models import DEFAULT_MODEL
from maskov.shipped import default_judge

POINTS = (25, 50, 100, 200)
MOVES: dict[str, tuple[maskov.Move, ...]] = {
    "both": (maskov.Site(), maskov.Span(sizes=(2,))),
    "site": (maskov.Site(),),
    "span": (maskov.Span(sizes=(1, 2, 3)),),
}
# The target, the early tests, and the energy of burn-in, which takes the first half of the epochs.
Row = tuple[str, int, str | None]
_FIRST_EPOCHS, _MOST_EPOCHS, _KEPT = 2, 4000, 32


def rows_of(energy: str, groups: list[int]) -> list[Row]:
    """Return the rows of one energy."""
    grouped = [f"{energy}(groups={count})" for count in groups]
    return [
        (energy, 0, None),
        (energy, 2, None),
        *((name, 0, None) for name in grouped),
        *((name, 1, None) for name in grouped),
        *((energy, 2, name) for name in grouped),
    ]


def run_row(
    model: maskov.MaskedModel, row: Row, length: int, options: argparse.Namespace
) -> tuple[maskov.Run, float]:
    """Run one kernel until its chains have spent the passes of the last point."""
    energy, nearest, first = row
    needed, epochs = options.points[-1] * length, _FIRST_EPOCHS
    moves = MOVES[options.moves]
    kernel = named_kernel(
        "mh", energy, moves, (1.0,) * len(moves), delayed=maskov.DelayedAcceptance(nearest)
    )
    while True:
        burn_in = 0 if first is None else epochs // 2
        schedule = maskov.Schedule(epochs=epochs, burn_in=burn_in, burn_in_energy=first)
        begin = time.perf_counter()
        run = maskov.sample(
            model, kernel, schedule, chains=options.chains, length=length, seed=options.seed,
            thin=max(1, (epochs - burn_in) // _KEPT),
        )  # fmt: skip
        spent = run.traces["passes"].mean(1).sum()
        if spent >= needed or epochs >= _MOST_EPOCHS:
            return run, time.perf_counter() - begin
        epochs = min(math.ceil(1.1 * epochs * needed / max(spent, 1.0)), _MOST_EPOCHS)


def measure(
    run: maskov.Run, points: list[int], length: int, judge: maskov.Autoregressive | None
) -> dict[str, Any]:
    """Return the quality at each point, by the first samples kept from there on."""
    spent = run.traces["passes"].mean(1).cumsum()
    kept = np.flatnonzero(~np.isnan(run.traces["energy_raw"]).any(1))
    found: dict[str, Any] = {}
    before = None
    for point in points:
        after = [epoch for epoch in kept if spent[epoch] >= point * length]
        if not after:
            continue
        epoch = int(after[0])
        tokens = run.traces["tokens"][epoch]
        found[str(point * length)] = {
            "passes": float(spent[epoch]),
            **{
                name: {"mean": float(values.mean()), "standard_error": _error(values)}
                for name in ("energy_raw", "energy_norm")
                for values in (run.traces[name][epoch],)
            },
            "changed": None if before is None else float((tokens != before).mean()),
            "judge": None if judge is None else _judged(judge, run, epoch),
        }
        before = tokens
    return found


def _error(values: np.ndarray[Any, Any]) -> float:
    return float(values.std(ddof=1) / len(values) ** 0.5)


def _judged(judge: maskov.Autoregressive, run: maskov.Run, epoch: int) -> float:
    """Return −log p per token of the samples of an epoch under the causal model."""
    texts = [sample.text for sample in run.samples if sample.epoch == epoch]
    terms = judge.token_terms([judge.tokenise(text) for text in texts])
    return float(sum(part.sum() for part in terms) / sum(len(part) for part in terms))


def main(arguments: list[str] | None = None) -> None:
    """Measure every row and write them as they come."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--model", default=DEFAULT_MODEL)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--chains", type=int, default=128)
    parser.add_argument("--lengths", type=int, nargs="+", default=[20, 45])
    parser.add_argument("--groups", type=int, nargs="+", default=[3, 4, 6, 10])
    parser.add_argument("--energies", nargs="+", default=["raw", "norm"])
    parser.add_argument("--moves", choices=MOVES, default="both")
    parser.add_argument("--points", type=int, nargs="+", default=list(POINTS))
    parser.add_argument("--precision", default="float32")
    parser.add_argument("--targets", nargs="+", help="only rows of these, such as 'norm(groups=4)'")
    parser.add_argument("--judge", help="causal LM; that of the package for its own models")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args(arguments)
    options.out.mkdir(parents=True, exist_ok=True)
    model = load_model(options.model, options.device, options.precision)
    name = options.judge or (default_judge() if options.model == DEFAULT_MODEL else None)
    judge = None if name is None else maskov.Autoregressive(name, model.device)
    rows = []
    for length in options.lengths:
        for row in (row for energy in options.energies for row in rows_of(energy, options.groups)):
            if options.targets and row[0] not in options.targets:
                continue
            run, seconds = run_row(model, row, length, options)
            target, nearest, first = row
            quality = measure(run, options.points, length, judge)
            rows.append(
                {"target": target, "delayed": nearest, "burn_in_energy": first, "length": length,
                 "signature": run.signature, "seconds": seconds, "quality": quality}
            )  # fmt: skip
            shown = {
                passes: f"{point['energy_raw']['mean']:.1f}/{point['energy_norm']['mean']:.1f}"
                + ("" if point["judge"] is None else f" judge {math.exp(point['judge']):.0f}")
                for passes, point in quality.items()
            }
            print(length, *row, shown, f"{seconds:.0f} s", flush=True)
            settings = {key: str(value) for key, value in vars(options).items()}
            content = {"settings": settings, "rows": rows}
            (options.out / "grouped.json").write_text(json.dumps(content, indent=1) + "\n")


if __name__ == "__main__":
    main()
