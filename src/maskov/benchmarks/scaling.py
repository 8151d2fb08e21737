"""Speed against the number of chains, their length or the model size.

    python -m maskov.benchmarks.scaling --over chains --out FILE.json

One variant is run over a grid, in a fresh process for each point. `maskov.benchmarks.plot` draws
the files.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from maskov.benchmarks import worker
from maskov.benchmarks.files import check_writable, write_json
from maskov.benchmarks.jobs import run_in_subprocess
from maskov.benchmarks.machine import all_versions
from maskov.benchmarks.models import PRECISIONS
from maskov.benchmarks.options import ENERGIES, Options
from maskov.benchmarks.rows import make_row
from maskov.benchmarks.side_by_side import RunJob
from maskov.benchmarks.variants import VARIANTS, find_variant
from maskov.errors import InputError, MaskovError

GRIDS: dict[str, tuple[str, ...]] = {
    "chains": ("1", "4", "16", "64", "256", "1024"),
    "length": ("8", "16", "32", "64", "128"),
    "size": ("2x128", "4x256", "4x512", "8x512", "12x768"),
}


def measure_scaling(
    options: Options,
    over: str,
    values: Sequence[str],
    variant: str = VARIANTS[0].name,
    say: Callable[[str], None] | None = None,
    run_job: RunJob = run_in_subprocess,
) -> Iterator[dict[str, Any]]:
    """Run one variant at every value; after each, yield all points so far as plain data."""
    selected = find_variant(variant)
    grid = [(value, options_at(options, over, value)) for value in values]
    points: list[dict[str, Any]] = []
    for value, point_options in grid:
        if say is not None:
            say(f"measuring {over} {value}")
        job_options = point_options.to_dict()
        measured = run_job({"options": job_options, "task": "sampling", "variant": variant})
        ceiling = run_job({"options": job_options, "task": "ceiling"})
        row = make_row(variant, selected.what, measured, measured, variant, ceiling["teraflops"])
        points.append({"value": value, **row.to_dict(), "model": measured["model"]})
        yield {
            "kind": "scaling",
            "over": over,
            "variant": variant,
            "date": datetime.now(UTC).isoformat(timespec="seconds"),
            "options": options.to_dict() | {"model": measured["model"]["name"]},
            "machine": measured["machine"],
            "versions": all_versions(),
            "points": points,
        }


def options_at(options: Options, over: str, value: str) -> Options:
    """Return the options at one point of a grid."""
    if over == "size":
        return replace(options, model=f"bert-{value}-shaped")
    try:
        number = int(value)
    except ValueError:
        raise InputError(f"'{value}' is no number of {over}; write for example 1,4,16.") from None
    if over == "chains":
        return replace(options, chains=number)
    return replace(options, length=(number, number))


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure and write the file."""
    parser = argparse.ArgumentParser(
        prog="python -m maskov.benchmarks.scaling", description=__doc__.splitlines()[0]
    )
    parser.add_argument("--over", choices=GRIDS, required=True)
    parser.add_argument("--values", help="points of the grid, such as 1,4,16 or 2x128,12x768")
    parser.add_argument("--variant", default=VARIANTS[0].name, help="row of the benchmark to run")
    parser.add_argument("--model", default="bert-base-shaped")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--precision", choices=PRECISIONS, default="float32")
    parser.add_argument("--energy", choices=ENERGIES, default="raw")
    parser.add_argument("--chains", type=int, default=64)
    parser.add_argument("--length", type=int, default=20)
    parser.add_argument("--epochs", type=int, default=8)
    parser.add_argument("--burn-in", type=int, default=4)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--in-process",
        action="store_true",
        help="use one process for all points: faster, but peak memory includes earlier points",
    )
    parser.add_argument("--out", type=Path, required=True, help="JSON file to write")
    given = parser.parse_args(arguments)
    try:
        check_writable(given.out)
        options = Options(
            model=given.model,
            device=given.device,
            precision=given.precision,
            energy=given.energy,
            chains=given.chains,
            length=(given.length, given.length),
            epochs=given.epochs,
            burn_in=given.burn_in,
            seed=given.seed,
        )
        values = given.values.split(",") if given.values else GRIDS[given.over]
        run_job = worker.run_job if given.in_process else run_in_subprocess
        # Write every point, so an interrupted grid keeps what it has.
        for results in measure_scaling(options, given.over, values, given.variant, _say, run_job):
            write_json(given.out, results)
    except MaskovError as error:
        _say(f"maskov: {error}")
        sys.exit(2)


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
