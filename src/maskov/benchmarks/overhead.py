"""The overhead of workers, Ray, checkpoints, resuming and many chains.

    python -m maskov.benchmarks.overhead --out results/bench/scale-cpu.json
    python -m maskov.benchmarks.overhead --only load ...

Each part is written as soon as it is measured; parts already in the file are not measured again.
Ray uses the machine's own address; `unshare --net sh -c 'ip link set lo up; python -m ...'` gives
it a separate network. `maskov.benchmarks.overhead_table` writes the results into
docs/reference/scaling.md.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import safetensors.torch
import torch

import maskov
from maskov.benchmarks.files import write_json
from maskov.benchmarks.machine import all_versions, machine
from maskov.benchmarks.memory import resident_bytes
from maskov.benchmarks.sampling import RunTimer
from maskov.config import ModelSource
from maskov.kernels import Metropolis
from maskov.runs.checkpoint import pack
from maskov.runs.folder import RunFolder
from maskov.runs.group import GroupState
from maskov.starts import Layout


class MemoryTimer(RunTimer):
    """Records the start, the end, and the memory in use at the end of each epoch."""

    def __init__(self) -> None:
        super().__init__()
        self.memory: list[float] = []

    def epoch_ended(self, epoch: int, values: Any, passes: int) -> None:
        """Record the time and the memory."""
        super().epoch_ended(epoch, values, passes)
        self.memory.append(resident_bytes("VmRSS") / 2**20)


def timed_run(options: argparse.Namespace, workers: maskov.Workers) -> dict[str, Any]:
    """Sample with the given workers; return the time and a hash of the samples."""
    model = maskov.load(options.model, "cpu")
    folder, timer = Path(tempfile.mkdtemp()), MemoryTimer()
    try:
        maskov.sample(
            model, Metropolis(maskov.Raw()), maskov.Schedule(epochs=options.epochs),
            chains=options.chains, length=options.length, resident=options.resident,
            out=folder / "run", listener=timer, workers=workers,
        )  # fmt: skip
        run = maskov.Run.open(folder / "run")
        passes = int(run.traces["passes"].sum())
        samples = (folder / "run" / "samples.jsonl").read_bytes()
    finally:
        shutil.rmtree(folder)
    seconds = timer.end - timer.start
    return {
        "seconds": seconds,
        "passes": passes,
        "passes_per_second": passes / seconds,
        "samples": hashlib.sha256(samples).hexdigest()[:12],
        "threads": run.manifest.config.execution.threads,
        "groups": -(-run.manifest.chains // run.manifest.config.execution.resident),
        "signature": run.signature,
    }


def fastest_run(options: argparse.Namespace, workers: maskov.Workers) -> dict[str, Any]:
    """Repeat a timed run; return the fastest, which other processes disturbed least."""
    rows = [timed_run(options, workers) for _ in range(options.repeat)]
    best = min(rows, key=lambda row: row["seconds"])
    return best | {"all_seconds": [row["seconds"] for row in rows]}


def measure_workers(options: argparse.Namespace) -> dict[str, Any]:
    """Measure the throughput of N workers against one process with N threads."""
    cores = len(os.sched_getaffinity(0))
    counts = sorted({1, 2, cores} | {2**k for k in range(6) if 2**k <= cores})
    rows = {}
    for count in (c for c in counts if c <= cores):
        rows[f"one process, {count} threads"] = fastest_run(options, maskov.Workers(threads=count))
        rows[f"{count} workers"] = fastest_run(options, maskov.Workers(count))
    return {"cores": cores, "rows": rows}


def measure_ray(options: argparse.Namespace) -> dict[str, Any]:
    """Measure the throughput on a Ray cluster of this machine."""
    cores = len(os.sched_getaffinity(0))
    rows = {}
    for count in sorted({1, cores}):
        workers = maskov.Workers(count, engine="ray")
        rows[f"ray, {count} workers"] = fastest_run(options, workers)
    return {"cores": cores, "rows": rows}


def measure_checkpoints(options: argparse.Namespace) -> dict[str, Any]:
    """Measure the time of checkpoints at the default interval."""
    times: list[float] = []
    save = RunFolder.save

    def timed_save(self: RunFolder, group: int, state: Any) -> None:
        begin = time.perf_counter()
        save(self, group, state)
        times.append(time.perf_counter() - begin)

    RunFolder.save = timed_save  # type: ignore[method-assign]
    try:
        row = timed_run(options, maskov.Workers(threads=1))
    finally:
        RunFolder.save = save  # type: ignore[method-assign]
    # Checkpoints are 60 seconds apart, for one group and for a run of several.
    return row | {
        "checkpoints": len(times),
        "seconds_each": statistics.median(times),
        "seconds_of_checkpoints": sum(times),
        "share_of_run": sum(times) / row["seconds"],
        "share_at_interval": statistics.median(times) / 60.0,
    }


_RESUME = """
import json, sys, time
import maskov
from maskov.benchmarks.sampling import RunTimer
from maskov.runs.rebuild import load_model

class FirstMove(RunTimer):
    time = 0.0
    def moved(self, *_, **__):
        self.time = self.time or time.perf_counter()

begin, first = time.perf_counter(), FirstMove()
model = load_model(maskov.Run.open(sys.argv[1]).manifest)
loaded = time.perf_counter()
try:
    maskov.resume(sys.argv[1], model, listener=first, stop=lambda: bool(first.time))
except maskov.errors.Interrupted:
    pass
print(json.dumps({"load": loaded - begin, "sampling": first.time - loaded}))
"""


def measure_resume(options: argparse.Namespace) -> dict[str, Any]:
    """Measure the time from calling `resume` to the first move, after loading the model."""
    folder, polls = Path(tempfile.mkdtemp()), iter(range(10**9))
    try:
        with suppress(maskov.errors.Interrupted):
            maskov.sample(
                maskov.load(options.model, "cpu"), Metropolis(maskov.Raw()),
                maskov.Schedule(epochs=options.epochs), chains=options.chains,
                length=options.length, resident=options.resident, out=folder / "run",
                source=ModelSource(options.model), stop=lambda: next(polls) > 400,
            )  # fmt: skip
        command = [sys.executable, "-c", _RESUME, str(folder / "run")]
        process = subprocess.run(command, capture_output=True, text=True, check=True)
    finally:
        shutil.rmtree(folder)
    times: dict[str, Any] = json.loads(process.stdout.splitlines()[-1])
    return times


def measure_serialization(options: argparse.Namespace) -> dict[str, Any]:
    """Measure packing and unpacking of a group of GPU size, which every task does."""
    vectors = torch.zeros((2 * 1365, 24, 768))
    model = maskov.load("untrained", "cpu")
    chains = Layout.blank(model, [24]).chains(model, range(1), 24)
    state = replace(GroupState.fresh(chains, 1), buffers={"hidden": vectors})
    begin = time.perf_counter()
    body = pack(state)
    packed = time.perf_counter()
    safetensors.torch.load(body)
    ended = time.perf_counter()
    return {"mib": len(body) / 2**20, "pack": packed - begin, "unpack": ended - packed}


def measure_load(options: argparse.Namespace) -> dict[str, Any]:
    """Measure memory and time of 100,000 chains of a tiny model in one run folder."""
    sizes = {}
    for chains in (options.load // 10, options.load):
        script = (
            "import json; from maskov.benchmarks.overhead import load_run;"
            f"print(json.dumps(load_run({chains})))"
        )
        process = subprocess.run(
            [sys.executable, "-c", script], capture_output=True, text=True, check=True
        )
        sizes[str(chains)] = json.loads(process.stdout.splitlines()[-1])
    return {"runs": sizes}


def load_run(chains: int) -> dict[str, Any]:
    """Sample so many short chains; return time and memory."""
    model = maskov.load("untrained", "cpu")
    folder, timer, before = Path(tempfile.mkdtemp()), MemoryTimer(), resident_bytes("VmRSS") / 2**20
    try:
        begin = time.perf_counter()
        maskov.sample(
            model, Metropolis(maskov.Raw()), maskov.Schedule(epochs=3), chains=chains, length=3,
            out=folder / "run", listener=timer,
        )  # fmt: skip
        run = maskov.Run.open(folder / "run")
        passes = int(run.traces["passes"].sum())
        with open(folder / "run" / "samples.jsonl", "rb") as file:
            lines = sum(1 for _ in file)
        resident = run.manifest.config.execution.resident
    finally:
        shutil.rmtree(folder)
    return {
        "chains": chains,
        "group": resident,
        "samples": lines,
        "passes": passes,
        "seconds": time.perf_counter() - begin,
        "mib_before": before,
        "mib_by_epoch": timer.memory,
        "mib_peak": resident_bytes("VmHWM") / 2**20,
    }


PARTS: dict[str, Callable[[argparse.Namespace], dict[str, Any]]] = {
    "workers": measure_workers,
    "checkpoints": measure_checkpoints,
    "resume": measure_resume,
    "wire": measure_serialization,
    "ray": measure_ray,
    "load": measure_load,
}


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure the selected parts that are not in the file yet."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path("results/bench/scale-cpu.json"))
    parser.add_argument("--only", nargs="*", choices=PARTS, default=list(PARTS))
    parser.add_argument("--model", default="wiki-small")
    parser.add_argument("--chains", type=int, default=64)
    parser.add_argument("--length", type=int, default=20)
    parser.add_argument("--epochs", type=int, default=12)
    parser.add_argument("--resident", type=int, default=8)
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--load", type=int, default=100_000)
    options = parser.parse_args(arguments)
    results = json.loads(options.out.read_text()) if options.out.is_file() else {}
    results |= {
        "kind": "scale",
        "options": {k: value for k, value in vars(options).items() if k not in ("out", "only")},
        "machine": machine(torch.device("cpu")),
        "versions": all_versions(),
    }
    for part in options.only:
        if part in results:
            continue
        print(f"{part} ...", file=sys.stderr, flush=True)
        results[part] = {"date": datetime.now(UTC).isoformat(timespec="seconds")}
        results[part] |= PARTS[part](options)
        write_json(options.out, results)


if __name__ == "__main__":
    main()
