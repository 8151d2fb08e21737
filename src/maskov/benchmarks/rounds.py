"""Time per asynchronous round on a GPU, and the GPU kernels that take it.

    python -m maskov.benchmarks.rounds --model bert-base-shaped --chains 500
    python -m maskov.benchmarks.rounds --chains 1 --shortest 30 --longest 30

With one chain, a round is the latency of a proposal that differs.
"""

from __future__ import annotations

import argparse
import time

import torch
from torch.profiler import ProfilerActivity, profile

from maskov import DelayedAcceptance, MaskedConditional, Metropolis
from maskov.benchmarks.models import load_model
from maskov.energies import parse_energy
from maskov.execution.buffers import Buffers
from maskov.execution.cuda_graphs import RecordedSampler
from maskov.models.scorer import Scorer
from maskov.random import CounterRng
from maskov.starts import Layout, draw_lengths, fill

_WARM_UP_ROUNDS = 40
_TIMED_ROUNDS = 40
_PROFILED_ROUNDS = 5
_EPOCHS = 1000


def main() -> None:
    """Run rounds, time them and list their kernels."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", default="bert-base-shaped")
    parser.add_argument("--precision", default="bfloat16")
    parser.add_argument("--energy", default="raw")
    parser.add_argument("--chains", type=int, default=500)
    parser.add_argument("--shortest", type=int, default=15)
    parser.add_argument("--longest", type=int, default=45)
    parser.add_argument("--nearest", type=int, default=4)
    parser.add_argument("--prefetch", type=int, default=1)
    parser.add_argument("--rows", type=int, default=25, help="number of kernels to list")
    options = parser.parse_args()
    model = load_model(options.model, "cuda", options.precision)
    engine, draws = Scorer(model), CounterRng(0)
    lengths = draw_lengths(model, options.shortest, options.longest, options.chains, 0)
    kernel = Metropolis(parse_energy(options.energy), delayed=DelayedAcceptance(options.nearest))
    layout = Layout.blank(model, lengths)
    state = layout.chains(model, range(options.chains), max(lengths)).to(model.device)
    state = kernel.init(fill(state, "greedy", MaskedConditional(), engine, draws), engine)
    buffers = Buffers.of(state, kernel.plan, 0, options.prefetch, ring=4)
    temperatures = torch.ones(_EPOCHS, dtype=torch.float64)
    flow = RecordedSampler(kernel, kernel.plan, engine, None, draws, buffers, temperatures)
    flow.limit.fill_(_EPOCHS)
    for _ in range(_WARM_UP_ROUNDS):
        flow.advance()
    torch.cuda.synchronize()
    begin = time.perf_counter()
    for _ in range(_TIMED_ROUNDS):
        flow.advance()
    torch.cuda.synchronize()
    print(f"{(time.perf_counter() - begin) / _TIMED_ROUNDS * 1e3:.3f} ms per round")
    with profile(activities=[ProfilerActivity.CUDA]) as profiler:
        for _ in range(_PROFILED_ROUNDS):
            flow.advance()
        torch.cuda.synchronize()
    kernels = sorted(profiler.key_averages(), key=lambda event: -event.self_device_time_total)
    total = sum(event.self_device_time_total for event in kernels)
    print(f"{sum(event.count for event in kernels) // _PROFILED_ROUNDS} kernels per round")
    for event in kernels[: options.rows]:
        milliseconds = event.self_device_time_total / 1e3 / _PROFILED_ROUNDS
        share = event.self_device_time_total / total
        count = event.count // _PROFILED_ROUNDS
        print(f"{milliseconds:9.3f} ms {share:6.1%} {count:5d}  {event.key[:90]}")


if __name__ == "__main__":
    main()
