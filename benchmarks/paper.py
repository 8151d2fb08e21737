"""Time the paper's unconditional run: 500 chains of 15 to 45 tokens, 100 epochs.

    python -m benchmarks paper --model wiki-small-grown --precision bfloat16 --out FILE.json

With `--moves span --delayed 2 --burn-in 8 --burn-in-energy 'raw(groups=4)'` it is the
default of `maskov sample`; the energies of its first epochs are then those of burn-in. Use a
trained model for meaningful rates. The time includes all of `maskov.sample` after the model is
loaded: the initial fill, the first energies, every step, all traces and samples. The ceiling of
matrix products is measured in the same process. With --profile, the run is made once more and the
kernels that take the most time are listed.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence
from itertools import accumulate
from typing import Any

import torch
from torch.profiler import ProfilerActivity, profile

import maskov
from benchmarks.flops import measure_ceiling, sampling_flops
from benchmarks.models import load_model
from benchmarks.tools import MODEL, RunTimer, about, length_of, parser, show, write
from maskov.kernels.registry import named_kernel, parse_moves


def _run(model: Any, options: argparse.Namespace, timer: RunTimer) -> maskov.Run:
    moves, weights, _ = parse_moves(options.moves)
    delayed = maskov.DelayedAcceptance(options.delayed)
    kernel = named_kernel("mh", options.energy, moves, weights, delayed=delayed)
    return maskov.sample(
        model,
        kernel,
        maskov.Schedule(options.epochs, options.burn_in, burn_in_energy=options.burn_in_energy),
        chains=options.chains,
        length=length_of(options.length),
        listener=timer,
    )


def main(arguments: Sequence[str] | None = None) -> None:
    """Run, print and write the results."""
    made = parser(
        __doc__, **MODEL, energy="raw", chains=500, length="15:45", epochs=100, burn_in=0,
        moves="site", seconds=1.0,
    )  # fmt: skip
    made.add_argument("--delayed", type=int, help="nearest positions (default: chosen by a pilot)")
    made.add_argument("--burn-in-energy", help="the energy of burn-in")
    made.add_argument("--profile", type=int, default=0, help="kernels to list")
    options = made.parse_args(arguments)
    model = load_model(options.model, options.device, options.precision)
    timer, begin = RunTimer(), time.perf_counter()
    run = _run(model, options, timer)
    end = time.perf_counter()
    traces, seconds = run.traces, end - timer.start
    steps, passes, novel = (int(traces[name].sum()) for name in ("steps", "passes", "novel"))
    made_passes, made_steps = (traces[name].sum(0).tolist() for name in ("passes", "steps"))
    lengths = [len(sample.ids) for sample in run.samples]
    flops = sampling_flops(model, lengths, made_passes, made_steps, options.energy) or 0
    teraflops = flops / seconds / 1e12
    cuda = model.device.type == "cuda"
    # The ceiling uses the arithmetic of the passes, so it needs the plain network.
    plain = load_model(options.model, options.device, options.precision, plain=True)
    ceiling = measure_ceiling(plain, options.seconds)
    results = {
        "kind": "paper",
        "signature": run.signature,
        "seconds": end - begin,
        "seconds_of_steps": seconds,
        "steps": steps,
        "passes": passes,
        "novel": novel,
        "novel_rate": novel / steps,
        "passes_per_step": passes / steps,
        "passes_per_second": passes / seconds,
        "novel_per_second": novel / seconds,
        "teraflops": teraflops,
        "ceiling_teraflops": ceiling,
        "share_of_ceiling": ceiling and teraflops / ceiling,
        "peak_mib": torch.cuda.max_memory_allocated() / 2**20 if cuda else None,
        # Of each epoch: seconds since the first step, mean energy, passes of a chain so far.
        "progress": [
            (e[0], e[1], total)
            for e, total in zip(timer.epochs, accumulate(e[2] for e in timer.epochs), strict=True)
        ],
        "samples": [sample.text for sample in run.samples[:10]],
        **about(model.device),
    }
    show([results], *(name for name, value in results.items() if isinstance(value, float | int)))
    write(options.out, results)
    if options.profile:
        with profile(activities=[ProfilerActivity.CUDA if cuda else ProfilerActivity.CPU]) as seen:
            _run(model, options, RunTimer())
        sort = "self_device_time_total" if cuda else "self_cpu_time_total"
        print(seen.key_averages().table(sort_by=sort, row_limit=options.profile))
