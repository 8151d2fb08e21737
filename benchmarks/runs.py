"""Runs of texts and what they came to: counts, rates, and the share of the ceiling."""

import re
import time
from argparse import Namespace
from pathlib import Path
from typing import Any

import maskov
from benchmarks.flops import measure_ceiling, sampling_flops
from benchmarks.models import load_model
from benchmarks.tools import length_of
from maskov.kernels.registry import named_kernel, parse_moves
from maskov.models import HuggingFaceModel
from maskov.runs.coordinator import Silent


class RunTimer(Silent):
    """Listens to a run: its start, first move and end, its passes, and each epoch.

    An epoch is the seconds since the start, the mean energy of the target, the mean passes of a
    chain, and the memory in use in MiB.
    """

    def __init__(self) -> None:
        self.start = self.first_move = self.end = 0.0
        self.passes = 0
        self.epochs: list[tuple[float, float, float, float]] = []

    def begun(self, *_: Any, **__: Any) -> None:
        """Record the start."""
        self.start = time.perf_counter()

    def moved(self, *_: Any, **__: Any) -> None:
        """Record the first move."""
        self.first_move = self.first_move or time.perf_counter()

    def epoch_ended(self, epoch: int, values: Any, passes: int) -> None:
        """Record the time; the values are on the host, so the device is idle."""
        self.end, self.passes = time.perf_counter(), passes
        energy, each = (float(values[name].mean()) for name in ("energy_target", "passes"))
        self.epochs.append((self.end - self.start, energy, each, memory("VmRSS")))


def memory(field: str) -> float:
    """Return VmRSS (current) or VmHWM (peak) of this process in MiB; Linux only."""
    return int(re.findall(rf"{field}:\s*(\d+)", Path("/proc/self/status").read_text())[0]) / 1024


def run_texts(model: HuggingFaceModel, options: Namespace) -> tuple[maskov.Run, RunTimer]:
    """Sample texts as the options say; return the run and its times."""
    moves, weights, _ = parse_moves(options.moves)
    delayed, timer = maskov.DelayedAcceptance(options.delayed), RunTimer()
    kernel = named_kernel("mh", options.energy, moves, weights, delayed=delayed)
    schedule = maskov.Schedule(
        options.epochs, options.burn_in, burn_in_energy=options.burn_in_energy
    )
    run = maskov.sample(
        model, kernel, schedule, chains=options.chains, length=length_of(options.length),
        seed=options.seed, listener=timer,
    )  # fmt: skip
    return run, timer


def ceiling_of(name: str, device: str, precision: str, seconds: float) -> float | None:
    """Measure the ceiling with the arithmetic of the passes, which needs the plain network."""
    return measure_ceiling(load_model(name, device, precision, plain=True), seconds)


def counts(
    model: HuggingFaceModel, run: maskov.Run, energy: str, seconds: float, first: int = 0
) -> dict[str, Any]:
    """Count what the epochs from the first on did in so many seconds."""
    steps, passes = (run.traces[name][first:].sum(0).tolist() for name in ("steps", "passes"))
    lengths = [len(sample.ids) for sample in run.samples]
    tokens = (
        made * (length + model.frame.size) for made, length in zip(passes, lengths, strict=True)
    )
    return {
        "seconds": seconds,
        "steps": sum(steps),
        "passes": sum(passes),
        "tokens": sum(tokens),
        "novel_seen": int(run.traces["novel"][first:].sum()),
        "flops": sampling_flops(model, lengths, passes, steps, energy),
    }


def rates(
    counted: dict[str, Any], limit: float | None, chain: dict[str, Any] | None = None
) -> dict[str, Any]:
    """Return counts with their rates; novel moves and effective size per step are a `chain`'s.

    By default, that of the counts.
    """
    seconds, steps, passes = counted["seconds"], counted["steps"], counted["passes"]
    chain = chain or counted
    novel = chain["novel_seen"] / chain["steps"]
    effective = chain.get("effective") and chain["effective"] / chain["steps"]
    teraflops = counted["flops"] and counted["flops"] / seconds / 1e12
    return {key: value for key, value in counted.items() if key not in ("ids", "flops")} | {
        "steps_per_second": steps / seconds,
        "passes_per_step": passes / steps,
        "passes_per_second": passes / seconds,
        "tokens_per_second": counted["tokens"] / seconds,
        "novel_per_step": novel,
        "novel_per_pass": novel * steps / passes,
        "novel_per_second": novel * steps / seconds,
        "effective_per_second": effective and effective * steps / seconds,
        "teraflops": teraflops,
        "share_of_ceiling": teraflops and limit and teraflops / limit,
    }
