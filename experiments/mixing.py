"""Energy against masked passes per chain, for single sites and spans.

    python -m experiments.mixing --out results/mixing [--model wiki-small] [--device cuda]

Every row is an exact kernel for the same target; all start from the same masked starts. A point is
the mean over chains at the end of an epoch, after so many masked passes per chain. Rows run until
they have spent `--passes`.
"""

from __future__ import annotations

import argparse
import json
import math
import time
from pathlib import Path
from typing import Any

import numpy as np

import maskov
from maskov.kernels.registry import named_kernel
from maskov.models.registry import default_judge

EARLY = maskov.DelayedAcceptance(2)
MOVES: dict[str, tuple[tuple[maskov.Move, ...], tuple[float, ...]]] = {
    "single sites": ((maskov.Site(),), ()),
    "spans of 2": ((maskov.Span(sizes=(2,)),), ()),
    "spans of 2 and 3": ((maskov.Span(sizes=(2, 3)),), ()),
    "single sites and spans of 2 and 3": (
        (maskov.Site(), maskov.Span(sizes=(2, 3))),
        (1.0, 2.0),
    ),
}
# Epochs of the runs that are tried until one has spent the passes.
_FIRST_EPOCHS, _MOST_EPOCHS = 20, 4000


def measure(
    model: maskov.MaskedModel, energy: str, name: str, options: argparse.Namespace
) -> dict[str, Any]:
    """Run one kernel until its chains have spent the passes; return its curve."""
    moves, weights = MOVES[name]
    kernel = named_kernel("mh", energy, moves, weights, delayed=EARLY)
    epochs = _FIRST_EPOCHS
    while True:
        begin = time.perf_counter()
        run = maskov.sample(
            model, kernel, maskov.Schedule(epochs=epochs), chains=options.chains,
            length=options.length, seed=options.seed,
        )  # fmt: skip
        seconds = time.perf_counter() - begin
        spent = run.traces["passes"].mean(1).cumsum()
        if spent[-1] >= options.passes or epochs >= _MOST_EPOCHS:
            break
        epochs = min(math.ceil(epochs * 1.2 * options.passes / spent[-1]), _MOST_EPOCHS)
    energies = run.traces[f"energy_{energy}"].mean(1)
    texts = [sample.text for sample in run.samples]
    return {
        "moves": name,
        "energy": energy,
        "signature": run.signature,
        "seconds": seconds,
        "passes": spent.tolist(),
        "mean_energy": energies.tolist(),
        "standard_error": (run.traces[f"energy_{energy}"].std(1) / options.chains**0.5).tolist(),
        "novel_per_1000_passes": 1000 * run.traces["novel"].sum() / run.traces["passes"].sum(),
        "texts": texts[:16],
    }


def at(row: dict[str, Any], passes: float) -> float:
    """Return a row's mean energy after so many passes."""
    return float(np.interp(passes, row["passes"], row["mean_energy"]))


def draw(rows: list[dict[str, Any]], path: Path) -> None:
    """Draw the curves, one panel an energy."""
    import matplotlib.pyplot as plt

    energies = list(dict.fromkeys(row["energy"] for row in rows))
    figure, axes = plt.subplots(1, len(energies), figsize=(5 * len(energies), 3.6), squeeze=False)
    for axis, energy in zip(axes[0], energies, strict=True):
        for row in rows:
            if row["energy"] == energy:
                axis.plot(row["passes"], row["mean_energy"], label=row["moves"])
        axis.set_xlabel("masked passes per chain")
        axis.set_ylabel(f"mean E_{energy}")
        axis.set_xscale("log")
    axes[0][0].legend(frameon=False, fontsize=8)
    figure.tight_layout()
    figure.savefig(path, dpi=150)


def main() -> None:
    """Measure every row, write them and draw them."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--model", default="wiki-small")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--chains", type=int, default=128)
    parser.add_argument("--length", type=int, default=20)
    parser.add_argument("--passes", type=int, default=4000, help="masked passes per chain")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--energies", nargs="+", default=["raw", "norm"])
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    model = maskov.load(options.model, options.device)
    name = default_judge()
    judge = None if name is None else maskov.Autoregressive(name, model.device)
    rows = []
    for energy in options.energies:
        for moves in MOVES:
            row = measure(model, energy, moves, options)
            if judge is not None:
                row["judge_energy"] = _judged(judge, row["texts"])
            rows.append(row)
            shown = {passes: round(at(row, passes), 1) for passes in (500, 1000, 2000, 4000)}
            print(energy, moves, shown, f"{row['seconds']:.0f} s", flush=True)
            settings = {key: str(value) for key, value in vars(options).items()}
            content = {"settings": settings, "rows": rows}
            (options.out / "mixing.json").write_text(json.dumps(content, indent=1) + "\n")
    draw(rows, options.out / "mixing.png")


def _judged(judge: maskov.Autoregressive, texts: list[str]) -> float:
    """Return −log p per token of the texts under the causal model."""
    terms = judge.token_terms([judge.tokenise(text) for text in texts])
    return float(sum(part.sum() for part in terms) / sum(len(part) for part in terms))


if __name__ == "__main__":
    main()
