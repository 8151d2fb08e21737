"""Time the paper's unconditional run: 500 chains of 15 to 45 tokens, 100 epochs.

    python -m maskov.benchmarks.paper MODEL --precision bfloat16 --out FILE.json

With `--moves span --span 1 2 3 --delayed 2 --burn-in 8 --burn-in-energy 'raw(groups=4)'` it is the
default of `maskov sample`; the energies of its first epochs are then those of burn-in.

MODEL is any model of `maskov bench`; use a trained one for meaningful rates. The time includes all
of `maskov.sample` after the model is loaded: the initial fill, the first energies, every step, all
traces and samples. The ceiling of matrix products is measured in the same process.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import torch

import maskov
from maskov.benchmarks.ceiling import measure_ceiling
from maskov.benchmarks.files import check_writable, write_json
from maskov.benchmarks.flops import sampling_flops
from maskov.benchmarks.machine import all_versions, machine
from maskov.benchmarks.models import load_model
from maskov.benchmarks.sampling import RunTimer
from maskov.kernels.registry import named_kernel, parse_moves
from maskov.moves import Site, Span


class ProgressTimer(RunTimer):
    """Times a run and prints some of its epochs."""

    def __init__(self) -> None:
        super().__init__()
        # Of each epoch: seconds since the first step, mean energy of the target, passes of a chain.
        self.progress: list[tuple[float, float, float]] = []
        self._passes = 0.0

    def epoch_ended(self, epoch: int, values: maskov.types.Traces, passes: int) -> None:
        """Record the time; print the first epochs and every tenth."""
        super().epoch_ended(epoch, values, passes)
        self._passes += float(values["passes"].mean())
        energy = float(values["energy_target"].mean())
        self.progress.append((round(self.end - self.start, 2), round(energy, 3), self._passes))
        if epoch < 3 or epoch % 10 == 9:
            novel = values["novel"].sum() / values["steps"].sum()
            print(
                f"epoch {epoch + 1}: {self.end - self.start:.1f} s, novel {novel:.3f}, "
                f"energy {energy:.1f}",
                flush=True,
            )


def main(arguments: Sequence[str] | None = None) -> None:
    """Run and write the results."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model")
    parser.add_argument("--precision", default="bfloat16")
    parser.add_argument("--energy", default="raw")
    parser.add_argument("--delayed", type=int, help="nearest positions (default: 2)")
    parser.add_argument("--moves", default="site", help="site, span, or both by weight")
    parser.add_argument("--span", type=int, nargs="+", default=[2, 3], help="sizes of the spans")
    parser.add_argument("--burn-in", type=int, default=0, help="epochs of burn-in")
    parser.add_argument("--burn-in-energy", help="the energy of burn-in")
    parser.add_argument("--chains", type=int, default=500)
    parser.add_argument("--epochs", type=int, default=100)
    parser.add_argument("--shortest", type=int, default=15)
    parser.add_argument("--longest", type=int, default=45)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args(arguments)
    check_writable(options.out)
    model = load_model(options.model, options.device, options.precision)
    delayed = maskov.DelayedAcceptance(options.delayed)
    moves, weights = parse_moves(
        options.moves, {"site": Site(), "span": Span(sizes=tuple(options.span))}
    )
    kernel = named_kernel("mh", options.energy, moves, weights, delayed=delayed)
    timer, begin = ProgressTimer(), time.perf_counter()
    run = maskov.sample(
        model,
        kernel,
        maskov.Schedule(
            epochs=options.epochs, burn_in=options.burn_in, burn_in_energy=options.burn_in_energy
        ),
        chains=options.chains,
        length=(options.shortest, options.longest),
        listener=timer,
    )
    seconds = time.perf_counter() - begin
    stepping = time.perf_counter() - timer.start
    traces = run.traces
    total = {name: int(traces[name].sum()) for name in ("steps", "passes", "novel")}
    proposed = int(traces["proposed_novel"].sum())
    by_chain = zip(
        run.samples, traces["passes"].sum(0).tolist(), traces["steps"].sum(0).tolist(), strict=True
    )
    flops = [
        sampling_flops(model, len(sample.ids), model.frame.size, passes, steps, options.energy)
        for sample, passes, steps in by_chain
    ]
    teraflops = sum(part or 0 for part in flops) / stepping / 1e12
    # The ceiling uses the arithmetic of the passes, so it needs the plain network.
    peak = torch.cuda.max_memory_allocated() / 2**20 if torch.cuda.is_available() else None
    plain = load_model(options.model, options.device, options.precision, plain=True)
    ceiling = measure_ceiling(plain, 2.0)["teraflops"]
    half = options.epochs // 2
    results: dict[str, Any] = {
        "kind": "paper",
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "signature": run.signature,
        "energy_shift": run.manifest.precision_check and asdict(run.manifest.precision_check),
        "seconds": seconds,
        "seconds_of_steps": stepping,
        "burn_in": options.burn_in,
        **total,
        "novel_rate": total["novel"] / total["steps"],
        "proposed_novel_rate": proposed / total["steps"],
        "novel_rate_second_half": float(
            traces["novel"][half:].sum() / traces["steps"][half:].sum()
        ),
        "passes_per_step": total["passes"] / total["steps"],
        "passes_per_second": total["passes"] / stepping,
        "novel_per_second": total["novel"] / stepping,
        "teraflops": teraflops,
        "ceiling_teraflops": ceiling,
        "share_of_ceiling": teraflops / ceiling if ceiling else None,
        "peak_mib": peak,
        "progress": timer.progress,
        "samples": [sample.text for sample in run.samples[:10]],
        "machine": machine(model.device),
        "versions": all_versions(),
    }
    write_json(options.out, results)
    for name, value in results.items():
        if isinstance(value, float | int):
            print(f"{name:24s} {value:,.3f}")
    for text in results["samples"]:
        print(" ", text)


if __name__ == "__main__":
    main()
