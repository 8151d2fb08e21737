"""Run a benchmark with two versions of maskov in turn, to compare them side by side.

    git worktree add OLD COMMIT
    python -m benchmarks versions OLD/src src --repeat 3 --out both.json -- paper --chains 64

Runs alternate, so that other work on the machine disturbs both alike. The benchmarks are those of
this folder, so both versions need what they import. For each speed, the best run of each version
and their ratio are printed.
"""

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import torch

from benchmarks.tools import parser, write


def speeds(results: Any, name: str = "") -> Iterator[tuple[str, float]]:
    """Yield the numbers of results that are a speed, by name."""
    if isinstance(results, list | dict):
        found = results.items() if isinstance(results, dict) else enumerate(results)
        for key, value in found:
            yield from speeds(value, f"{name} {key}".strip())
    elif isinstance(results, float) and name.endswith("_per_second"):
        yield name, results


def main(arguments: Sequence[str] | None = None) -> None:
    """Run both in turn, print and write."""
    made = parser(__doc__, repeat=3)
    made.add_argument("old", type=Path, help="folder that holds the package of the old version")
    made.add_argument("new", type=Path, help="that of the new one")
    made.add_argument("command", nargs="+", help="after --: a benchmark and its options")
    options = made.parse_args(arguments)
    found: dict[str, list[Any]] = {"old": [], "new": []}
    for _ in range(options.repeat):
        for name in found:
            path = str(vars(options)[name].resolve())
            with tempfile.TemporaryDirectory() as folder:
                file = Path(folder) / "results.json"
                command = [sys.executable, "-m", "benchmarks", *options.command, "--out", str(file)]
                subprocess.run(command, check=True, env=os.environ | {"PYTHONPATH": path})
                found[name].append(json.loads(file.read_text()))
    old, new = ([dict(speeds(one)) for one in runs] for runs in found.values())
    for key in old[0]:
        best = [max(run[key] for run in runs) for runs in (old, new)]
        print(f"{key:40s} {best[0]:12,.4g} {best[1]:12,.4g} {best[1] / best[0]:8.2f} ×")
    write(options, torch.device("cpu"), found)
