"""Effective samples per masked pass, where chains agree: templates with blanks, and short texts.

    python -m experiments.studies.effective sample --out results/effective [--targets ...]
    python -m experiments.studies.effective page --out results/effective

Free sentences of 20 tokens do not converge in any run that we can pay for, so that their effective
samples say little (results/mixing). The targets here are small enough that chains which start
apart agree in the end; R-hat is given with every number. `sample` runs single sites with one
early test, the first version's default, and spans of 1 to 3 with one early test, today's, on
each target for about the same number of passes, after a burn-in of a fifth of the epochs.
`page` needs ArviZ: effective samples of the energy, and of the slowest and the fastest token
statistic that `diagnose` reports, of a chain per 1,000 passes. A ratio is today's number
over the first version's.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import maskov
from maskov.diagnostics.convergence import Group, convergence
from maskov.diagnostics.tokens import token_statistics
from maskov.kernels.registry import named_kernel
from maskov.models import DEFAULT_MODEL

FIRST, DEFAULT = "single sites", "spans of 1 to 3"
ROWS: dict[str, maskov.Move] = {FIRST: maskov.Site(), DEFAULT: maskov.Span(sizes=(1, 2, 3))}


@dataclass(frozen=True)
class Target:
    """What is sampled: templates, each with its own target, or free texts of a length."""

    templates: tuple[str, ...] = ()
    length: int = 0


# Blanks of one phrase, blanks that stand apart, and texts of which nothing is given.
TARGETS = {
    "two neighbours": Target(
        (
            "the album was released in [MASK] [MASK] by the band .",
            "he was born in a small town near [MASK] [MASK] in 1912 .",
            "the first [MASK] [MASK] was built by the city in the 1890s .",
            "she received the award for her [MASK] [MASK] in the film .",
        )
    ),
    "three neighbours": Target(
        (
            "the old man [MASK] [MASK] [MASK] the river with his son .",
            "the game was played on [MASK] [MASK] [MASK] in front of a large crowd .",
            "the song was written by [MASK] [MASK] [MASK] and recorded in london .",
            "the species is found in [MASK] [MASK] [MASK] and parts of africa .",
        )
    ),
    "three apart": Target(
        (
            "the [MASK] man walked [MASK] the river with his [MASK] .",
            "the game was [MASK] on the first day of [MASK] in front of a [MASK] crowd .",
            "the [MASK] was written by the [MASK] and recorded in [MASK] .",
            "the species is [MASK] in the north of [MASK] and parts of [MASK] .",
        )
    ),
    "free, 5 tokens": Target(length=5),
}


def measure(
    model: maskov.MaskedModel, name: str, energy: str, row: str, options: argparse.Namespace
) -> dict[str, Any]:
    """Run one kernel on one target; keep its energies and the tokens of the free places."""
    target = TARGETS[name]
    kernel = named_kernel("mh", energy, (ROWS[row],), delayed=maskov.DelayedAcceptance(2))
    places: dict[str, Any] = {"length": target.length}
    if target.templates:
        places = {"templates": list(target.templates)}
    schedule = maskov.Schedule(epochs=options.epochs, burn_in=options.epochs // 5)
    begin = time.perf_counter()
    run = maskov.sample(
        model, kernel, schedule, chains=options.chains, seed=options.seed, **places
    )  # fmt: skip
    seconds, kept = time.perf_counter() - begin, slice(schedule.burn_in, None)
    tokens = run.traces["tokens"]
    free = (tokens != tokens[:1]).any(0)
    number = list(TARGETS).index(name)
    file = options.out / f"{energy}-{number}-{list(ROWS).index(row)}.npz"
    np.savez_compressed(
        file,
        energy=run.traces["energy_target"][kept].astype(np.float32),
        tokens=_packed(tokens[kept], free),
    )
    return {
        "target": name,
        "energy": energy,
        "row": row,
        "file": file.name,
        "signature": run.signature,
        "seconds": seconds,
        "chains": options.chains,
        "groups": max(len(target.templates), 1),
        "passes": run.traces["passes"][kept].sum(0).tolist(),
        "novel_per_1000_passes": float(
            1000 * run.traces["novel"][kept].sum() / run.traces["passes"][kept].sum()
        ),
        "texts": [sample.text for sample in run.samples[:: max(len(run.samples) // 8, 1)]],
    }


def _packed(tokens: Any, free: Any) -> Any:
    """Return the tokens of the places that vary in a chain's target, the first of them first."""
    places = free.reshape(-1, free.shape[-1])
    width = int(places.sum(1).max())
    order = np.argsort(~places, axis=1, kind="stable")[:, :width]
    return np.take_along_axis(tokens, order[None], axis=2).astype(np.int32)


def effective(row: dict[str, Any], traces: Any) -> list[dict[str, Any]]:
    """Return the figures of each template: effective samples of a chain per 1,000 passes."""
    found = []
    for group in range(row["groups"]):
        own = np.arange(group * row["chains"], (group + 1) * row["chains"])
        passes = float(np.array(row["passes"])[own].sum())
        energy = convergence(traces["energy"][:, own].astype(np.float64))
        tokens = traces["tokens"][:, own]
        lengths = np.full(tokens.shape[:2], tokens.shape[2])
        of_tokens = token_statistics(tokens, lengths, [Group(0, None, np.arange(len(own)))])
        slowest, fastest = of_tokens[0], of_tokens[-1]
        found.append(
            {
                "r_hat": max(energy.r_hat or np.inf, *(one.r_hat or np.inf for one in of_tokens)),
                "energy": 1000 * (energy.ess_bulk or len(own)) / passes,
                "tokens_slowest": 1000 * slowest.ess / passes,
                "tokens_fastest": 1000 * fastest.ess / passes,
                "mean_energy": float(traces["energy"][:, own].mean()),
                "error": energy.mcse,
            }
        )
    return found


def sample(options: argparse.Namespace) -> None:
    """Run every row of the chosen targets and energies."""
    options.out.mkdir(parents=True, exist_ok=True)
    model = maskov.load(options.model, options.device)
    rows: list[dict[str, Any]] = []
    for name in options.targets:
        for energy in options.energies:
            for row in ROWS:
                rows.append(measure(model, name, energy, row, options))
                print(name, energy, row, f"{rows[-1]['seconds']:.0f} s", flush=True)
                settings = {key: str(value) for key, value in vars(options).items()}
                content = {"settings": settings, "rows": rows}
                part = "-".join([options.energies[0], str(list(TARGETS).index(options.targets[0]))])
                (options.out / f"{part}.json").write_text(json.dumps(content) + "\n")


_KINDS = {"energy": "energy", "tokens_slowest": "slowest token", "tokens_fastest": "fastest token"}


def page(options: argparse.Namespace) -> None:
    """Write the figures of all rows, and the table."""
    rows, settings = list[dict[str, Any]](), dict[str, str]()
    for file in sorted(options.out.glob("*-*.json")):
        content = json.loads(file.read_text())
        settings, rows = content["settings"], rows + content["rows"]
    for row in rows:
        with np.load(options.out / row["file"]) as traces:
            row["figures"] = effective(row, traces)
    lines = [
        "# Effective samples per masked pass",
        "",
        f"`{settings['model']}`, {settings['chains']} chains for each template; how:",
        "`experiments.studies.effective`. Effective samples of a chain per 1,000 passes after",
        "burn-in, single sites → spans of 1 to 3, both with one early test; the mean over the",
        "templates of a target, and the geometric mean of their ratios. R-hat is the largest of",
        "the energy and all token statistics.",
        "",
        "| target | templates | R-hat "
        + "".join(f"| {one} | ratio " for one in _KINDS.values())
        + "|",
        "|" + "---|" * (3 + 2 * len(_KINDS)),
    ]
    table = []
    for energy, name in dict.fromkeys((row["energy"], row["target"]) for row in rows):
        pair = {
            r["row"]: r["figures"] for r in rows if (r["energy"], r["target"]) == (energy, name)
        }
        if set(pair) != set(ROWS):
            continue
        line = compare(pair[FIRST], pair[DEFAULT])
        table.append({"energy": energy, "target": name, "effective": line})
        shown = [f"E_{energy}, {name}", str(len(pair[FIRST]))]
        shown.append(" → ".join(f"{one:.3f}" for one in line["r_hat"]))
        for kind in _KINDS:
            first, second = line[kind]["means"]
            shown += [f"{first:.2f} → {second:.2f}", f"**{line[kind]['ratio']:.2f}**"]
        lines.append(f"| {' | '.join(shown)} |")
    (options.out / "README.md").write_text("\n".join(lines) + "\n")
    content = {"settings": settings, "table": table, "rows": rows}
    (options.out / "effective.json").write_text(json.dumps(content) + "\n")


def compare(first: list[dict[str, Any]], second: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the means and the ratios of two rows, template by template."""
    found: dict[str, Any] = {"r_hat": [max(one["r_hat"] for one in row) for row in (first, second)]}
    for kind in _KINDS:
        values = np.array([[one[kind] for one in row] for row in (first, second)])
        found[kind] = {
            "means": values.mean(1).tolist(),
            "ratio": float(np.exp(np.log(values[1] / values[0]).mean())),
            "ratios": (values[1] / values[0]).tolist(),
        }
    return found


def main(arguments: Sequence[str] | None = None) -> None:
    """Sample, or write the page."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("command", choices=["sample", "page"])
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--model", default=DEFAULT_MODEL)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--chains", type=int, default=32, help="chains for each template")
    parser.add_argument("--epochs", type=int, default=2000)
    parser.add_argument("--targets", nargs="+", default=list(TARGETS), choices=TARGETS)
    parser.add_argument("--energies", nargs="+", default=["raw", "norm"])
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args(arguments)
    (sample if options.command == "sample" else page)(options)


if __name__ == "__main__":
    main()
