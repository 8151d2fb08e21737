"""Where the time of a round goes on a GPU: time per round, and the kernels that take it.

    python bench/rounds.py --model bert-base-shaped --chains 500 --length 15:45
    python bench/rounds.py --model bert-base-shaped --chains 1 --length 30:30

With one chain a round is what a proposal that differs costs, so this is also the latency.
"""

from __future__ import annotations

import argparse
import time

import torch
from torch.profiler import ProfilerActivity, profile

from maskov import DelayedAcceptance, MaskedConditional, Metropolis
from maskov.benchmarks.models import load_model
from maskov.cli.sampling import parse_length
from maskov.energies import parse_energy
from maskov.execution.buffers import Buffers
from maskov.execution.cuda_graphs import RecordedSampler
from maskov.models.scorer import Scorer
from maskov.random import CounterRng
from maskov.starts import Layout, draw_lengths, fill

_WARM = 40
_MEASURED = 40
_PROFILED = 5
_EPOCHS = 1000


def main() -> None:
    """Fly some rounds, time them and list their kernels."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", default="bert-base-shaped")
    parser.add_argument("--precision", default="bfloat16")
    parser.add_argument("--energy", default="raw")
    parser.add_argument("--chains", type=int, default=500)
    parser.add_argument("--length", default="15:45")
    parser.add_argument("--nearest", type=int, default=4)
    parser.add_argument("--lanes", type=int, default=1)
    parser.add_argument("--rows", type=int, default=25, help="kernels to list")
    given = parser.parse_args()
    model = load_model(given.model, "cuda", given.precision)
    engine, draws = Scorer(model), CounterRng(0)
    lengths = draw_lengths(model, *parse_length(given.length), given.chains, 0)
    kernel = Metropolis(parse_energy(given.energy), delayed=DelayedAcceptance(given.nearest))
    layout = Layout.blank(model, lengths)
    state = layout.state(model, range(given.chains), max(lengths)).to(model.device)
    state = kernel.init(fill(state, "greedy", MaskedConditional(), engine, draws), engine)
    stages = kernel.delayed.stages
    buffers = Buffers.of(state, 0, given.lanes, len(stages), ring=4, choices=0)
    temperatures = torch.ones(_EPOCHS, dtype=torch.float64)
    flow = RecordedSampler(kernel, stages, engine, None, draws, buffers, temperatures)
    flow.limit.fill_(_EPOCHS)
    for _ in range(_WARM):
        flow.advance()
    torch.cuda.synchronize()
    begun = time.perf_counter()
    for _ in range(_MEASURED):
        flow.advance()
    torch.cuda.synchronize()
    print(f"{(time.perf_counter() - begun) / _MEASURED * 1e3:.3f} ms a round")
    with profile(activities=[ProfilerActivity.CUDA]) as profiler:
        for _ in range(_PROFILED):
            flow.advance()
        torch.cuda.synchronize()
    kernels = sorted(profiler.key_averages(), key=lambda event: -event.self_device_time_total)
    total = sum(event.self_device_time_total for event in kernels)
    print(f"{sum(event.count for event in kernels) // _PROFILED} kernels a round")
    for event in kernels[: given.rows]:
        taken = event.self_device_time_total / 1e3 / _PROFILED
        share = event.self_device_time_total / total
        print(f"{taken:9.3f} ms {share:6.1%} {event.count // _PROFILED:5d}  {event.key[:90]}")


if __name__ == "__main__":
    main()
