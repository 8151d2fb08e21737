"""maskov's own rows: what the epochs after burn-in add to a run, in time and in counts.

Chains go each at its own pace, so that no moment separates one epoch from the next. Instead, the
same run is made with its burn-in only and whole, and the difference is what counts: the chains
make the same moves, so that the counts of the epochs after burn-in are exactly those of the time
left. What both have, such as the start and the waiting for the last chains, drops out.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

import numpy as np

from maskov.benchmarks.effective import effective_sample_size
from maskov.benchmarks.flops import sampling_flops
from maskov.benchmarks.options import Options
from maskov.benchmarks.plain import frame_of
from maskov.benchmarks.variants import Variant
from maskov.energies import parse_energy
from maskov.models import HuggingFaceModel
from maskov.runs import Run
from maskov.sampling import sample
from maskov.schedules import Schedule


class Clock:
    """Listens to a run and notes its first and last moment, and the passes it had run by then."""

    def __init__(self) -> None:
        self.start = self.end = 0.0
        self.passes = 0

    def begun(self, *_: Any, **__: Any) -> None:
        """Hear that the first step is next."""
        self.start = time.perf_counter()

    def noted(self, *_: Any, **__: Any) -> None:
        """Hear something that the user should know."""

    def moved(self, *_: Any, **__: Any) -> None:
        """Hear that chains may have moved."""

    def epoch_ended(self, epoch: int, values: Any, passes: int) -> None:
        """Note the time; the values have been fetched, so that no work is left on the device."""
        self.end, self.passes = time.perf_counter(), passes


@dataclass(frozen=True)
class Timed:
    """A run, the seconds of its steps and the passes of its engine."""

    run: Run
    seconds: float
    passes: int


def measure_sampling(model: HuggingFaceModel, options: Options, variant: Variant) -> dict[str, Any]:
    """Run one variant; count and time what the epochs after burn-in add."""
    if model.device.type != "cpu":  # kernels are compiled and chosen in the first run
        _timed(model, options, variant, options.burn_in)
    short = _timed(model, options, variant, options.burn_in)
    whole = _timed(model, options, variant, options.epochs)
    traces = whole.run.traces
    kept = {name: values[options.burn_in :] for name, values in traces.items()}
    notes = list(whole.run.summary().notes)
    if not np.array_equal(short.run.traces["passes"], traces["passes"][: options.burn_in]):
        notes.append("burn-in alone took other passes than within the run: its time is a guess")
    seconds = whole.seconds - short.seconds
    if seconds <= 0:
        notes.append("burn-in alone took longer than the run: the machine is too busy to measure")
        seconds = whole.seconds * float(kept["passes"].sum() / traces["passes"].sum())
    ids = [found.ids for found in whole.run.samples]
    frame = sum(map(len, frame_of(model)))
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
        "seconds_of_run": whole.seconds,
        "steps": sum(steps),
        "passes": sum(passes),
        "passes_by_engine": whole.passes - short.passes,
        "tokens": tokens,
        "novel_seen": int(kept["novel"].sum()),
        # Chains of different lengths have different targets, and no common sample size.
        "effective": effective_sample_size(kept["energy_target"]) if options.fixed_length else None,
        "flops": None if None in flops else sum(filter(None, flops)),
        "ids": ids,
        "signature": whole.run.signature,
        "notes": notes,
    }


def _timed(model: HuggingFaceModel, options: Options, variant: Variant, epochs: int) -> Timed:
    clock = Clock()
    run = sample(
        model,
        variant.build_kernel(parse_energy(options.energy)),
        Schedule(epochs=epochs, burn_in=min(options.burn_in, epochs - 1)),
        chains=options.chains,
        length=options.length,
        seed=options.seed,
        listener=clock,
        **variant.sample,
    )
    return Timed(run, clock.end - clock.start, clock.passes)
