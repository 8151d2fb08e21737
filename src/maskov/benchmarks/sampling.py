"""maskov's rows: the time and counts of the epochs after burn-in.

Chains advance asynchronously, so no moment separates one epoch from the next. Instead, the run is
made twice, with burn-in alone and in full, and the times are subtracted. The chains make the same
moves in both, so the difference is exactly the time of the epochs after burn-in. Costs common to
both, such as the start and the wait for the last chains, cancel.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from maskov.benchmarks.effective import effective_sample_size
from maskov.benchmarks.flops import sampling_flops
from maskov.benchmarks.options import Options
from maskov.benchmarks.plain import special_tokens
from maskov.benchmarks.variants import Variant
from maskov.energies import parse_energy
from maskov.models import HuggingFaceModel
from maskov.runs import Run
from maskov.sampling import run_chains
from maskov.schedules import Schedule

# Chains of the run that estimates how many there is time for.
_PROBED = 4


class RunTimer:
    """Listens to a run and records its start, its end and its number of passes."""

    def __init__(self) -> None:
        self.start = self.end = 0.0
        self.passes = 0

    def begun(self, *_: Any, **__: Any) -> None:
        """Record the start."""
        self.start = time.perf_counter()

    def noted(self, *_: Any, **__: Any) -> None:
        """Ignore notes."""

    def moved(self, *_: Any, **__: Any) -> None:
        """Ignore moves."""

    def epoch_ended(self, epoch: int, values: Any, passes: int) -> None:
        """Record the time; the values are on the host, so the device is idle."""
        self.end, self.passes = time.perf_counter(), passes


@dataclass(frozen=True)
class TimedRun:
    """A run, the seconds of its steps and the number of passes that were executed."""

    run: Run
    seconds: float
    passes: int


def measure_sampling(model: HuggingFaceModel, options: Options, variant: Variant) -> dict[str, Any]:
    """Run one variant; time and count the epochs after burn-in."""
    asked = options.chains
    if options.limited:
        options = _within_seconds(model, options, variant)
    if model.device.type != "cpu":  # the first run compiles and selects kernels
        _time_run(model, options, variant, options.burn_in)
    burn_in_run = _time_run(model, options, variant, options.burn_in)
    full_run = _time_run(model, options, variant, options.epochs)
    traces = full_run.run.traces
    kept = {name: values[options.burn_in :] for name, values in traces.items()}
    notes = list(full_run.run.summary().notes)
    if options.chains < asked:
        notes.append(f"{options.chains} of {asked} chains, to take about {options.seconds:g} s")
    if not np.array_equal(burn_in_run.run.traces["passes"], traces["passes"][: options.burn_in]):
        notes.append("burn-in alone took other passes than within the run: the time is an estimate")
    seconds = full_run.seconds - burn_in_run.seconds
    if seconds <= 0:
        notes.append("burn-in alone took longer than the run: the machine is too busy to measure")
        seconds = full_run.seconds * float(kept["passes"].sum() / traces["passes"].sum())
    ids = [sample.ids for sample in full_run.run.samples]
    frame = sum(map(len, special_tokens(model)))
    steps, passes = kept["steps"].sum(0).tolist(), kept["passes"].sum(0).tolist()
    flops = [
        sampling_flops(model, len(sequence), frame, chain_passes, chain_steps, options.energy)
        for sequence, chain_passes, chain_steps in zip(ids, passes, steps, strict=True)
    ]
    tokens = sum(
        chain_passes * (len(sequence) + frame)
        for sequence, chain_passes in zip(ids, passes, strict=True)
    )
    return {
        "seconds": seconds,
        "seconds_of_run": full_run.seconds,
        "steps": sum(steps),
        "passes": sum(passes),
        "passes_by_engine": full_run.passes - burn_in_run.passes,
        "tokens": tokens,
        "novel_seen": int(kept["novel"].sum()),
        # Chains of different lengths have different targets, so no common sample size.
        "effective": effective_sample_size(kept["energy_target"]) if options.fixed_length else None,
        "flops": None if None in flops else sum(filter(None, flops)),
        "ids": ids,
        "signature": full_run.run.signature,
        "notes": notes,
    }


def _within_seconds(model: HuggingFaceModel, options: Options, variant: Variant) -> Options:
    """Return the options with as many chains as the time allows, by a run of a few of them."""
    few = replace(options, chains=min(_PROBED, options.chains))
    begin = time.perf_counter()
    _time_run(model, few, variant, 1)
    each = (time.perf_counter() - begin) / few.chains
    # Burn-in runs twice, with the other epochs and alone.
    chains = int(options.seconds / (each * (options.burn_in + options.epochs)))
    return replace(options, chains=max(1, min(options.chains, chains)))


def _time_run(model: HuggingFaceModel, options: Options, variant: Variant, epochs: int) -> TimedRun:
    timer = RunTimer()
    run = run_chains(
        model,
        variant.build_kernel(parse_energy(options.energy)),
        Schedule(epochs=epochs, burn_in=min(options.burn_in, epochs - 1)),
        chains=options.chains,
        length=options.length,
        seed=options.seed,
        listener=timer,
    )
    return TimedRun(run, timer.end - timer.start, timer.passes)
