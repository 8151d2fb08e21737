"""What many processes, many chains and going on again cost: one command, one file of results.

    python bench/scale.py --out results/bench/scale-cpu.json
    python bench/scale.py --only load ...

Each part is written as soon as it is measured, and is not measured again if it is there. Ray takes
the machine's own address; `unshare --net sh -c 'ip link set lo up; python bench/scale.py ...'`
gives it a network of its own. `bench/scale_table.py` puts the results into docs/scaling.md.
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
from collections.abc import Callable
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
from maskov.benchmarks.sampling import Clock
from maskov.kernels import Metropolis
from maskov.runs.checkpoint import Saved, pack
from maskov.runs.folder import RunFolder
from maskov.runs.group import Progress
from maskov.starts import Layout


class Watch(Clock):
    """Notes when steps begin and end, and how much memory is held at the end of each epoch."""

    def __init__(self) -> None:
        super().__init__()
        self.memory: list[float] = []

    def epoch_ended(self, epoch: int, values: Any, passes: int) -> None:
        """Note the time and the memory."""
        super().epoch_ended(epoch, values, passes)
        self.memory.append(_memory("VmRSS"))


def _memory(name: str) -> float:
    """Return a line of this process's status, in MiB."""
    with open("/proc/self/status") as file:
        return next(int(line.split()[1]) for line in file if line.startswith(name)) / 1024


def timed(options: argparse.Namespace, workers: maskov.Workers) -> dict[str, Any]:
    """Make the run of the comparison with some workers; return its time and a hash of it."""
    model = maskov.load(options.model, "cpu")
    folder, watch = Path(tempfile.mkdtemp()), Watch()
    try:
        maskov.sample(
            model, Metropolis(maskov.Raw()), maskov.Schedule(epochs=options.epochs),
            chains=options.chains, length=options.length, resident=options.resident,
            out=folder / "run", listener=watch, workers=workers,
        )  # fmt: skip
        found = maskov.Run.open(folder / "run")
        passes = int(found.traces["passes"].sum())
        samples = (folder / "run" / "samples.jsonl").read_bytes()
    finally:
        shutil.rmtree(folder)
    seconds = watch.end - watch.start
    return {
        "seconds": seconds,
        "passes": passes,
        "passes_per_second": passes / seconds,
        "samples": hashlib.sha256(samples).hexdigest()[:12],
        "threads": found.manifest["threads"],
        "groups": -(-found.manifest["chains"] // found.manifest["resident"]),
        "signature": found.signature,
    }


def repeated(options: argparse.Namespace, workers: maskov.Workers) -> dict[str, Any]:
    """Repeat a timed run; the least time is the one that others disturbed least."""
    rows = [timed(options, workers) for _ in range(options.repeat)]
    best = min(rows, key=lambda row: row["seconds"])
    return best | {"all_seconds": [row["seconds"] for row in rows]}


def measure_workers(options: argparse.Namespace) -> dict[str, Any]:
    """Throughput against the number of workers, beside one process with as many threads."""
    cores = len(os.sched_getaffinity(0))
    counts = sorted({1, 2, cores} | {2**k for k in range(6) if 2**k <= cores})
    rows = {}
    for count in (c for c in counts if c <= cores):
        rows[f"one process, {count} threads"] = repeated(options, maskov.Workers(threads=count))
        rows[f"{count} workers"] = repeated(options, maskov.Workers(count))
    return {"cores": cores, "rows": rows}


def measure_ray(options: argparse.Namespace) -> dict[str, Any]:
    """Throughput on a Ray cluster of this machine alone."""
    cores = len(os.sched_getaffinity(0))
    rows = {}
    for count in sorted({1, cores}):
        workers = maskov.Workers(count, engine="ray")
        rows[f"ray, {count} workers"] = repeated(options, workers)
    return {"cores": cores, "rows": rows}


def measure_checkpoints(options: argparse.Namespace) -> dict[str, Any]:
    """How long the checkpoints of a run take, at the default interval."""
    spent: list[float] = []
    save = RunFolder.save

    def clocked(self: RunFolder, group: int, saved: Any) -> None:
        begun = time.perf_counter()
        save(self, group, saved)
        spent.append(time.perf_counter() - begun)

    RunFolder.save = clocked  # type: ignore[method-assign]
    try:
        row = timed(options, maskov.Workers(threads=1))
    finally:
        RunFolder.save = save  # type: ignore[method-assign]
    # A group is written once in 60 seconds of its own; a whole run of groups in turn, likewise.
    return row | {
        "checkpoints": len(spent),
        "seconds_each": statistics.median(spent),
        "seconds_of_checkpoints": sum(spent),
        "share_of_run": sum(spent) / row["seconds"],
        "share_at_interval": statistics.median(spent) / 60.0,
    }


_RESUME = """
import json, sys, time
import maskov
from maskov.benchmarks.sampling import Clock
from maskov.runs.rebuild import load_model

class First(Clock):
    moment = 0.0
    def moved(self, *_, **__):
        self.moment = self.moment or time.perf_counter()

begun, first = time.perf_counter(), First()
model = load_model(maskov.Run.open(sys.argv[1]).manifest)
loaded = time.perf_counter()
try:
    maskov.resume(sys.argv[1], model, listener=first, stop=lambda: bool(first.moment))
except maskov.errors.Interrupted:
    pass
print(json.dumps({"load": loaded - begun, "sampling": first.moment - loaded}))
"""


def measure_resume(options: argparse.Namespace) -> dict[str, Any]:
    """From calling `resume`, the model loaded, to chains that move."""
    folder, looks = Path(tempfile.mkdtemp()), iter(range(10**9))
    try:
        with suppress(maskov.errors.Interrupted):
            maskov.sample(
                maskov.load(options.model, "cpu"), Metropolis(maskov.Raw()),
                maskov.Schedule(epochs=options.epochs), chains=options.chains,
                length=options.length, resident=options.resident, out=folder / "run",
                source={"name": options.model}, stop=lambda: next(looks) > 400,
            )  # fmt: skip
        command = [sys.executable, "-c", _RESUME, str(folder / "run")]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
    finally:
        shutil.rmtree(folder)
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def measure_wire(options: argparse.Namespace) -> dict[str, Any]:
    """Pack and unpack a group as large as one of a GPU: what the driver does for every turn."""
    vectors = torch.zeros((2 * 1365, 24, 768))
    model = maskov.load("untrained", "cpu")
    state = Layout.blank(model, [24]).state(model, range(1), 24)
    progress = replace(Progress.fresh(state, 1), flight={"hidden": vectors})
    begun = time.perf_counter()
    body = pack(Saved(progress))
    packed = time.perf_counter()
    safetensors.torch.load(body)
    ended = time.perf_counter()
    return {"mib": len(body) / 2**20, "pack": packed - begun, "unpack": ended - packed}


def measure_load(options: argparse.Namespace) -> dict[str, Any]:
    """Memory and time of a hundred thousand chains of a tiny model in one run folder."""
    sizes = {}
    for chains in (options.load // 10, options.load):
        script = (
            "import json, sys; sys.argv = ['scale']; sys.path.insert(0, 'bench');"
            f"from scale import load_run; print(json.dumps(load_run({chains})))"
        )
        done = subprocess.run(
            [sys.executable, "-c", script], capture_output=True, text=True, check=True
        )
        sizes[str(chains)] = json.loads(done.stdout.splitlines()[-1])
    return {"runs": sizes}


def load_run(chains: int) -> dict[str, Any]:
    """Make one run of so many short chains; return what it took."""
    model = maskov.load("untrained", "cpu")
    folder, watch, before = Path(tempfile.mkdtemp()), Watch(), _memory("VmRSS")
    try:
        begun = time.perf_counter()
        maskov.sample(
            model, Metropolis(maskov.Raw()), maskov.Schedule(epochs=3), chains=chains, length=3,
            out=folder / "run", listener=watch,
        )  # fmt: skip
        run = maskov.Run.open(folder / "run")
        passes = int(run.traces["passes"].sum())
        with open(folder / "run" / "samples.jsonl", "rb") as file:
            lines = sum(1 for _ in file)
        resident = run.manifest["resident"]
    finally:
        shutil.rmtree(folder)
    return {
        "chains": chains,
        "group": resident,
        "samples": lines,
        "passes": passes,
        "seconds": time.perf_counter() - begun,
        "mib_before": before,
        "mib_by_epoch": watch.memory,
        "mib_peak": _memory("VmHWM"),
    }


PARTS: dict[str, Callable[[argparse.Namespace], dict[str, Any]]] = {
    "workers": measure_workers,
    "checkpoints": measure_checkpoints,
    "resume": measure_resume,
    "wire": measure_wire,
    "ray": measure_ray,
    "load": measure_load,
}


def main() -> None:
    """Measure the parts that are asked for and not there yet."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("results/bench/scale-cpu.json"))
    parser.add_argument("--only", nargs="*", choices=PARTS, default=list(PARTS))
    parser.add_argument("--model", default="wiki-small")
    parser.add_argument("--chains", type=int, default=64)
    parser.add_argument("--length", type=int, default=20)
    parser.add_argument("--epochs", type=int, default=12)
    parser.add_argument("--resident", type=int, default=8)
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--load", type=int, default=100_000)
    options = parser.parse_args()
    found = json.loads(options.out.read_text()) if options.out.is_file() else {}
    found |= {
        "kind": "scale",
        "options": {k: value for k, value in vars(options).items() if k not in ("out", "only")},
        "machine": machine(torch.device("cpu")),
        "versions": all_versions(),
    }
    for part in options.only:
        if part in found:
            continue
        print(f"{part} ...", file=sys.stderr, flush=True)
        found[part] = {"date": datetime.now(UTC).isoformat(timespec="seconds")}
        found[part] |= PARTS[part](options)
        write_json(options.out, found)


if __name__ == "__main__":
    main()
