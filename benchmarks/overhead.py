"""The overhead of workers, Ray, checkpoints, resuming and many chains, and of starting the command.

    python -m benchmarks overhead --ray --out results/bench/scale-cpu.json
    python -m benchmarks overhead --only start

Ray uses the machine's own address; `unshare --net sh -c 'ip link set lo up; python -m ...'` gives
it a separate network.
"""

import argparse
import hashlib
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any
from unittest import mock

import torch

import maskov
from benchmarks.runs import RunTimer, memory
from benchmarks.tools import in_process, parser, write
from maskov.config import ModelSource
from maskov.kernels import Metropolis
from maskov.runs.manifest import load_model
from maskov.runs.store import Store


def timed_run(options: argparse.Namespace, folder: Path, **how: Any) -> dict[str, Any]:
    """Sample into a folder; return the time, the memory and a hash of the samples."""
    model = maskov.load(options.model, "cpu")
    timer, before = RunTimer(), memory("VmRSS")
    maskov.sample(
        model, Metropolis(maskov.Raw()), maskov.Schedule(epochs=options.epochs),
        chains=options.chains, length=options.length, out=folder / "run", listener=timer,
        source=ModelSource(options.model), **how,
    )  # fmt: skip
    run = maskov.Run.open(folder / "run")
    seconds, passes = timer.end - timer.start, int(run.traces["passes"].sum())
    return {
        "seconds": seconds,
        "passes_per_second": passes / seconds,
        "samples": hashlib.sha256((folder / "run" / "samples.jsonl").read_bytes()).hexdigest()[:12],
        "threads": run.manifest.config.execution.threads,
        "chains": options.chains,
        "group": run.manifest.config.execution.resident,
        "mib": [before, timer.epochs[0][3], timer.epochs[-1][3], memory("VmHWM")],
    }


def _fresh(options: argparse.Namespace, **how: Any) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder:
        return timed_run(options, Path(folder), **how)


def workers(options: argparse.Namespace) -> dict[str, Any]:
    """Measure N workers, and Ray, against one process with N threads; the fastest run counts."""
    cores = len(os.sched_getaffinity(0))
    ways = {}
    for count in (count for count in sorted({1, 2, 4, 8, 16, 32, cores}) if count <= cores):
        ways[f"one process, {count} threads"] = maskov.Workers(threads=count)
        ways[f"{count} workers"] = maskov.Workers(count)
        if options.ray:
            ways[f"ray, {count} workers"] = maskov.Workers(count, engine="ray")

    def fastest(way: maskov.Workers) -> dict[str, Any]:
        rows = [_fresh(options, workers=way, resident=options.resident) for _ in repeats]
        return min(rows, key=lambda row: float(row["seconds"]))

    repeats = range(options.repeat)
    return {name: fastest(way) for name, way in ways.items()}


def checkpoints(options: argparse.Namespace) -> dict[str, Any]:
    """Measure the time of checkpoints at the default interval of 60 seconds."""
    times, save = list[float](), Store.save

    def timed_save(*arguments: Any) -> None:
        begin = time.perf_counter()
        save(*arguments)
        times.append(time.perf_counter() - begin)

    with mock.patch.object(Store, "save", timed_save):
        row = _fresh(options, workers=maskov.Workers(threads=1), resident=options.resident)
    each = statistics.median(times)
    return {"seconds_each": each, "share_at_interval": each / 60, "count": len(times),
            "share_of_run": sum(times) / row["seconds"]}  # fmt: skip


def resume(options: argparse.Namespace) -> dict[str, Any]:
    """Measure the time from calling `resume` to the first move, after loading the model."""
    with tempfile.TemporaryDirectory() as folder:
        polls = iter(range(10**9))
        with suppress(maskov.errors.Interrupted):
            timed_run(
                options, Path(folder), workers=0, resident=options.resident,
                stop=lambda: next(polls) > 40,
            )  # fmt: skip
        return dict(in_process(_resume, Path(folder) / "run"))


def _resume(run: Path) -> dict[str, float]:
    begin, timer = time.perf_counter(), RunTimer()
    manifest = maskov.Run.open(run).manifest
    model = load_model(manifest.config.model, manifest.inputs.sources)
    loaded = time.perf_counter()
    with suppress(maskov.errors.Interrupted):
        maskov.resume(run, model, listener=timer, stop=lambda: bool(timer.first_move))
    return {"load": loaded - begin, "sampling": timer.first_move - loaded}


def load(options: argparse.Namespace) -> dict[str, Any]:
    """Measure memory and time of many short chains of a tiny model in one run folder."""
    tiny = {"model": "untrained", "length": 3, "epochs": 3}
    return {
        str(chains): in_process(_fresh, argparse.Namespace(**tiny, chains=chains))
        for chains in (options.load // 10, options.load)
    }


def start(options: argparse.Namespace) -> dict[str, Any]:
    """Measure the median seconds until the command answers what needs no model."""
    times: dict[str, list[float]] = {"--version": [], "--help": [], "sample --help": []}
    for words in list(times) * 5:
        begin = time.perf_counter()
        command = [sys.executable, "-m", "maskov", *words.split()]
        subprocess.run(command, stdout=subprocess.DEVNULL, check=True)
        times[words].append(time.perf_counter() - begin)
    return {words: statistics.median(seconds) for words, seconds in times.items()}


PARTS = {part.__name__: part for part in (workers, checkpoints, resume, load, start)}


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure the selected parts that are not in the file yet."""
    made = parser(
        __doc__, model="wiki-small", chains=64, length=20, epochs=12, resident=8, repeat=3,
        load=100_000,
    )  # fmt: skip
    made.add_argument("--only", nargs="*", choices=PARTS, default=list(PARTS))
    made.add_argument("--ray", action="store_true", help="also on a Ray cluster of this machine")
    options = made.parse_args(arguments)
    results: dict[str, Any] = {"kind": "scale"}
    for part in options.only:
        results[part] = PARTS[part](options)
        print(f"{part}: {json.dumps(results[part], indent=1)}", flush=True)
        write(options, torch.device("cpu"), results)
