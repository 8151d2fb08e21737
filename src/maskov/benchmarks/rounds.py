"""Asynchronous rounds on a GPU: their share of the ceiling, and where host and device spend time.

    python -m maskov.benchmarks.rounds --moves site span
    python -m maskov.benchmarks.rounds --moves site --chains 1 --shortest 30 --longest 30

Chains are warmed up first, so that everything is recorded. The share counts the matrix products of
the passes that were run, as `maskov.benchmarks.paper` does. With one chain, a round is the latency
of a proposal that differs.
"""

from __future__ import annotations

import argparse
import time
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.profiler import ProfilerActivity, profile

from maskov import DelayedAcceptance, MaskedConditional, Metropolis, Site, Span
from maskov.benchmarks.ceiling import measure_ceiling
from maskov.benchmarks.flops import sampling_flops
from maskov.benchmarks.models import load_model
from maskov.energies import parse_energy
from maskov.execution.buffers import COUNTS, Buffers
from maskov.execution.cuda_graphs import RecordedSampler, Recording
from maskov.execution.recorded_spans import RecordedSpanSampler
from maskov.execution.span_buffers import SpanBuffers
from maskov.models import HuggingFaceModel
from maskov.models.scorer import Scorer
from maskov.random import CounterRng
from maskov.starts import Layout, draw_lengths, fill

_PROFILED_ROUNDS = 5
# More epochs than the rounds of a measurement reach; all of them are kept.
_EPOCHS = 64
_MOVES = {"site": Site(), "span": Span()}


def main(arguments: Sequence[str] | None = None) -> None:
    """Run rounds of each move, time them and list what they do."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", default="wiki-small-grown")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--precision", default="bfloat16")
    parser.add_argument("--energy", default="raw")
    parser.add_argument("--moves", nargs="+", choices=_MOVES, default=list(_MOVES))
    parser.add_argument("--chains", type=int, default=500)
    parser.add_argument("--shortest", type=int, default=15)
    parser.add_argument("--longest", type=int, default=45)
    parser.add_argument("--nearest", type=int, default=2)
    parser.add_argument("--slots", type=int, default=1, help="slots of a chain (sites only)")
    parser.add_argument("--warm-up", type=int, default=200, help="rounds before the timed ones")
    parser.add_argument("--rounds", type=int, default=200, help="timed rounds")
    parser.add_argument("--rows", type=int, default=20, help="number of kernels to list")
    options = parser.parse_args(arguments)
    model = load_model(options.model, options.device, options.precision)
    plain = load_model(options.model, options.device, options.precision, plain=True)
    ceiling = measure_ceiling(plain, 2.0)["teraflops"]
    del plain
    print(f"ceiling {ceiling or 0:.1f} TFLOP/s")
    for name in options.moves:
        print(f"\n{name}:")
        _measure(_sampler(model, name, options), model, ceiling, options)


def _sampler(model: HuggingFaceModel, move: str, options: argparse.Namespace) -> Recording:
    """Return chains at their start."""
    scorer, rng = Scorer(model), CounterRng(0)
    lengths = draw_lengths(model, options.shortest, options.longest, options.chains, 0)
    energy, delayed = parse_energy(options.energy), DelayedAcceptance(options.nearest)
    kernel = Metropolis(energy, _MOVES[move], delayed=delayed)
    layout = Layout.blank(model, lengths)
    state = layout.chains(model, range(options.chains), max(lengths)).to(model.device)
    state = kernel.init(fill(state, "greedy", MaskedConditional(), scorer, rng), scorer)
    shared = (kernel, kernel.plan, scorer, rng)
    temperatures = torch.ones(_EPOCHS, dtype=torch.float64)
    sampler: Recording
    if kernel.fills_windows:
        windows = SpanBuffers.of(state, 0, kernel.steps(state), ring=_EPOCHS)
        sampler = RecordedSpanSampler(
            *shared, windows, temperatures, shortest=options.shortest, mean=layout.mean
        )
    else:
        sites = Buffers.of(state, kernel.plan, 0, options.slots, ring=_EPOCHS)
        sampler = RecordedSampler(
            *shared, sites, temperatures, shortest=options.shortest, mean=layout.mean
        )
    sampler.limit.fill_(_EPOCHS)
    return sampler


def _measure(
    sampler: Recording, model: HuggingFaceModel, ceiling: float | None, options: argparse.Namespace
) -> None:
    begin = time.perf_counter()
    for _ in range(options.warm_up):
        sampler.advance()
    _synchronize(model)
    print(f"{time.perf_counter() - begin:.1f} s of warm-up, recording included")
    before, rooms, host = _done(sampler), Counter[tuple[int, int]](), 0.0
    begin = time.perf_counter()
    for _ in range(options.rounds):
        start = time.perf_counter()
        sampler.advance()
        host += time.perf_counter() - start
        rooms[sampler.last_size] += 1
    _synchronize(model)
    seconds = time.perf_counter() - begin
    done = _done(sampler) - before
    passes, steps = (done[:, COUNTS.index(name)].tolist() for name in ("passes", "steps"))
    lengths = sampler.buffers.lengths.tolist()
    frame = model.frame.size
    flops = [
        sampling_flops(model, length, frame, run, made, options.energy) or 0
        for length, run, made in zip(lengths, passes, steps, strict=True)
    ]
    tokens = sum(
        run * (length + frame) for length, run in zip(lengths, passes, strict=True)
    )  # all that was not padding
    held = sum(room * count for (room, _), count in rooms.items())
    teraflops = sum(flops) / seconds / 1e12
    share = f"{teraflops / ceiling:.1%}" if ceiling else "?"
    novel = done[:, COUNTS.index("novel")].sum() / max(sum(steps), 1)
    print(
        f"{share} of the ceiling ({teraflops:.1f} TFLOP/s)\n"
        f"{seconds / options.rounds * 1e3:.3f} ms per round, {host / options.rounds * 1e3:.3f} ms "
        f"until the host goes on\n"
        f"{tokens / options.rounds:.0f} tokens per round, {tokens / max(held, 1):.1%} of rooms\n"
        f"{sum(passes) / max(sum(steps), 1):.2f} passes per step, novel {novel:.3f}\n"
        f"rooms and sizes: {dict(sorted(rooms.items()))}"
    )
    if model.device.type == "cuda":
        _profile(sampler, options)


def _done(sampler: Recording) -> torch.Tensor:
    """Return what the chains have counted since their start."""
    b = sampler.buffers
    assert int(b.epoch.max()) < _EPOCHS, "too many rounds: a chain has done all epochs"
    return (b.counts + b.ring_counts.sum(0)).cpu()


def _synchronize(model: HuggingFaceModel) -> None:
    if model.device.type == "cuda":
        torch.cuda.synchronize()


def _profile(sampler: Recording, options: argparse.Namespace) -> None:
    """List what host and device do in a round."""
    with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) as profiler:
        for _ in range(_PROFILED_ROUNDS):
            sampler.advance()
        torch.cuda.synchronize()
    events = list(profiler.key_averages())
    launches = [event for event in events if "Launch" in event.key]
    waits = [event for event in events if "ynchronize" in event.key]
    for title, found in (("launches", launches), ("waits", waits)):
        listed = ", ".join(f"{e.key} {e.count / _PROFILED_ROUNDS:.1f}" for e in found)
        print(f"{title} per round: {listed or 'none'}")
    # The host waits for notes, so that its own work is all but the synchronisations.
    _list("host", [e for e in events if e not in waits], lambda e: e.self_cpu_time_total, 8)
    kernels = [event for event in events if event.self_device_time_total > 0]
    _list("device", kernels, lambda e: e.self_device_time_total, options.rows)


def _list(title: str, events: list[Any], cost: Callable[[Any], float], rows: int) -> None:
    ordered = sorted(events, key=lambda event: -cost(event))
    total = sum(map(cost, ordered))
    count = sum(event.count for event in ordered) // _PROFILED_ROUNDS
    print(f"{title}: {total / 1e3 / _PROFILED_ROUNDS:.3f} ms and {count} events per round")
    for event in ordered[:rows]:
        milliseconds, share = cost(event) / 1e3 / _PROFILED_ROUNDS, cost(event) / max(total, 1e-9)
        each = event.count / _PROFILED_ROUNDS
        print(f"{milliseconds:9.3f} ms {share:6.1%} {each:7.1f}  {event.key[:90]}")


if __name__ == "__main__":
    main()
