"""Proteins at equal masked passes: single sites, spans, and energies of grouped positions.

    python -m experiments.studies.proteins --out results/mixing/sapiens [--length 120]
    python -m experiments.studies.proteins --page --out results/mixing/sapiens

An epoch of 120 letters takes thousands of masked passes, so chains are measured within epochs: at
the first step after each point, by the ordinary energy, whatever the row's target is. All rows
start from the same masked starts. All passes count that come after these, those of the first
energies and of the change after burn-in included, but not those of the measurement.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.models import load_model

import maskov
from experiments.lib import style
from maskov.config import BURN_IN
from maskov.kernels import Kernel
from maskov.kernels.base import ended, epoch
from maskov.kernels.registry import DEFAULT_SIZES, named_kernel
from maskov.models.scorer import Scorer
from maskov.random import CounterRng
from maskov.runs.task_runner import both_energies
from maskov.starts import Layout, fill
from maskov.types import Chains, Tensor

POINTS = (500, 1000, 1500, 2000, 3000, 4000)


@dataclass(frozen=True)
class Row:
    """A kernel: its move, the groups of its target, and those of its burn-in."""

    move: maskov.Move
    groups: int | None = None
    burn_in: int | None = None


SITE, SPANS = maskov.Site(), maskov.Span(sizes=DEFAULT_SIZES)
ROWS = {
    "single sites": Row(SITE),
    "spans of 1 to 3": Row(SPANS),
    "single sites, burn-in with 4 groups": Row(SITE, burn_in=4),
    "spans, burn-in with 4 groups (the default)": Row(SPANS, burn_in=4),
    "single sites, burn-in with 8 groups": Row(SITE, burn_in=8),
    "spans, burn-in with 8 groups": Row(SPANS, burn_in=8),
    "target of 4 groups, single sites": Row(SITE, groups=4),
    "target of 4 groups, spans": Row(SPANS, groups=4),
    "target of 8 groups, single sites": Row(SITE, groups=8),
    "target of 8 groups, spans": Row(SPANS, groups=8),
}


def kernel_of(row: Row, energy: str, groups: int | None) -> Kernel:
    """Return the kernel for an energy, or for that of its groups of positions."""
    kernel = named_kernel("mh", energy, (row.move,), (), delayed=maskov.DelayedAcceptance(2))
    if groups is None:
        return kernel
    return kernel.with_energy(maskov.parse_energy(f"{energy}(groups={groups})"))


def steps(row: Row, energy: str, chains: Chains, scorer: Scorer, seed: int) -> Iterator[Chains]:
    """Yield the chains after every step, first of burn-in, if there is one, then of the target."""
    rng, number = CounterRng(seed), 0
    while True:
        burning = row.burn_in is not None and number < BURN_IN
        kernel = kernel_of(row, energy, row.burn_in if burning else row.groups)
        for after, _ in epoch(kernel, chains, scorer, rng):
            chains = after
            yield chains
        chains = ended(chains)
        number += 1


def measure(
    model: maskov.MaskedModel, name: str, energy: str, options: argparse.Namespace
) -> dict[str, Any]:
    """Run one kernel until its chains have spent the passes of the last point."""
    begin = time.perf_counter()
    scorer, ruler = Scorer(model), Scorer(model)
    layout = Layout.blank(model, [[options.length] * options.chains])
    start = layout.chains(model, range(options.chains), options.length)
    start = fill(start, "masked", SITE.conditional, scorer, CounterRng(options.seed))
    first, before, left = scorer.passes, start.tokens, list(options.points)
    points: list[dict[str, float]] = []
    for chains in steps(ROWS[name], energy, start, scorer, options.seed):
        spent = (scorer.passes - first) / options.chains
        if spent < left[0]:
            continue
        values = both_energies(chains.sequences, ruler)[energy == "norm"]
        points.append(
            {
                "passes": spent,
                "steps": float((chains.step - start.step).double().mean()),
                "energy": float(values.mean()),
                "standard_error": float(values.std() / len(values) ** 0.5),
                "changed": float((chains.tokens != before).double().mean()),
                "distance": distance(chains.tokens),
            }
        )
        before, left = chains.tokens, [point for point in left if point > spent]
        if not left:
            break
    return {
        "row": name, "energy": energy, "points": points, "last_energies": values.tolist(),
        "seconds": round(time.perf_counter() - begin, 1),
        "texts": [model.decode(tokens).replace(" ", "") for tokens in before.tolist()],
    }  # fmt: skip


def distance(tokens: Tensor) -> float:
    """Return the mean share of positions at which two chains differ."""
    count = len(tokens)
    different = (tokens[:, None] != tokens[None]).double().mean(2)
    return float(different.sum() / (count * (count - 1)))


def draw(rows: list[dict[str, Any]], path: Path) -> None:
    """Draw the energies against passes, one panel an energy."""
    energies = list(dict.fromkeys(row["energy"] for row in rows))
    figure, axes = style.plt.subplots(
        1, len(energies), figsize=(5.6 * len(energies), 5), squeeze=False
    )
    lines: dict[str, Any] = {}
    for axis, energy in zip(axes[0], energies, strict=True):
        for row in rows:
            if row["energy"] == energy:
                kind = ROWS[row["row"]]
                groups = kind.groups or kind.burn_in
                lines[row["row"]] = axis.errorbar(
                    [point["passes"] for point in row["points"]],
                    [point["energy"] for point in row["points"]],
                    [point["standard_error"] for point in row["points"]],
                    color={None: "black", 4: "C0", 8: "C1"}[groups],
                    linestyle="-" if kind.groups is None else ":",
                    marker="o" if kind.move == SITE else "s",
                    markersize=4, capsize=2,
                )  # fmt: skip
        axis.set_xlabel("masked passes per chain")
        axis.set_title(f"mean E_{energy}", fontsize=10)
        axis.grid(alpha=0.2)
    figure.legend(lines.values(), lines, loc="lower center", ncols=2, frameon=False, fontsize=8)
    figure.tight_layout(rect=(0, 0.045 * -(-len(lines) // 2), 1, 1))
    style.write(figure, path)


def write_page(out: Path) -> None:
    """Write the tables and the figure of what was measured."""
    content = json.loads((out / "proteins.json").read_text())
    settings, rows = content["settings"], content["rows"]
    lines = [
        "# Proteins at equal masked passes",
        "",
        f"`{settings['model']}`, {settings['length']} letters, {settings['chains']} chains from",
        "masked starts; how: `experiments.studies.proteins`. Mean ordinary energy ± its standard",
        "error at the first step after so many masked passes of a chain. `changed` is the share of",
        "letters that differ between the last two points, `distance` the mean share of positions",
        "at which two chains differ at the end.",
        "",
        "![curves](proteins.svg)",
    ]
    for energy in dict.fromkeys(row["energy"] for row in rows):
        points = settings["points"]
        header = ["row", *(f"{point:,}" for point in points), "steps", "changed", "distance"]
        lines += ["", f"## E_{energy}", "", f"| {' | '.join(header)} |", "|---" * len(header) + "|"]
        lines += [_line(row, points) for row in rows if row["energy"] == energy]
    (out / "README.md").write_text("\n".join(lines) + "\n")
    draw(rows, out / "proteins.svg")


def _line(row: dict[str, Any], points: list[int]) -> str:
    cells = [row["row"]]
    for point in points:
        known = [one for one in row["points"] if one["passes"] >= point]
        cells.append(f"{known[0]['energy']:.1f} ± {known[0]['standard_error']:.1f}")
    last = row["points"][-1]
    cells += [f"{last['steps']:,.0f}", f"{last['changed']:.2f}", f"{last['distance']:.2f}"]
    return f"| {' | '.join(cells)} |"


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure the rows and write them as they come, or write the page of what was measured."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--model", default="sapiens-vh")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--length", type=int, default=120)
    parser.add_argument("--chains", type=int, default=16)
    parser.add_argument("--points", type=int, nargs="+", default=list(POINTS))
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--energies", nargs="+", default=["norm"], choices=("raw", "norm"))
    parser.add_argument("--rows", nargs="+", default=list(ROWS), choices=ROWS)
    parser.add_argument("--page", action="store_true", help="only write tables and figure")
    options = parser.parse_args(arguments)
    file = options.out / "proteins.json"
    if not options.page:
        options.out.mkdir(parents=True, exist_ok=True)
        model = load_model(options.model, options.device)
        names = ("model", "length", "chains", "points", "seed")
        settings = {name: getattr(options, name) for name in names}
        known = json.loads(file.read_text()) if file.exists() else {"settings": settings}
        if known["settings"] != settings:
            raise SystemExit(f"{file} has rows of other settings: choose another folder.")
        rows = {(row["energy"], row["row"]): row for row in known.get("rows", [])}
        for energy in options.energies:
            for name in options.rows:
                row = rows[energy, name] = measure(model, name, energy, options)
                shown = {round(one["passes"]): round(one["energy"], 1) for one in row["points"]}
                print(energy, name, shown, f"{row['seconds']:.0f} s", flush=True)
                order = sorted(rows, key=lambda key: (key[0], list(ROWS).index(key[1])))
                content = {"settings": settings, "rows": [rows[key] for key in order]}
                file.write_text(json.dumps(content) + "\n")
    write_page(options.out)


if __name__ == "__main__":
    main()
