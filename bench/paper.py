"""The paper's unconditional run, timed: 500 chains of 15 to 45 tokens, 100 epochs.

    python bench/paper.py MODEL --precision bfloat16 --out FILE.json

MODEL is anything that `maskov bench` takes; to say something about trained models it should be one.
What is timed is all of `maskov.sample` after the model has been loaded: filling the chains, the
first energies, every step, all traces and samples. The ceiling of matrix products is measured in
the same process.
"""

from __future__ import annotations

import argparse
import time
from datetime import UTC, datetime
from pathlib import Path

import torch

import maskov
from maskov.benchmarks.ceiling import measure_ceiling
from maskov.benchmarks.files import check_free, write_json
from maskov.benchmarks.flops import sampling_flops
from maskov.benchmarks.machine import all_versions, machine
from maskov.benchmarks.models import load_model
from maskov.energies import parse_energy


class Told:
    """Listens to a run, prints its epochs and keeps what was noted."""

    def __init__(self) -> None:
        self.begun_at = 0.0
        self.notes: list[str] = []

    def begun(self, model: object) -> None:
        """Note when the first step is due."""
        self.begun_at = time.perf_counter()

    def noted(self, text: str) -> None:
        """Keep it."""
        self.notes.append(text)

    def moved(self, *_: object) -> None:
        """Hear that chains may have moved."""

    def epoch_ended(self, epoch: int, values: maskov.types.Traces, passes: int) -> None:
        """Print now and then how it goes."""
        if epoch < 3 or epoch % 10 == 9:
            taken = time.perf_counter() - self.begun_at
            novel = values["novel"].sum() / values["steps"].sum()
            print(f"epoch {epoch + 1}: {taken:.1f} s, novel {novel:.3f}", flush=True)


def main() -> None:
    """Run and write what was found."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model")
    parser.add_argument("--precision", default="bfloat16")
    parser.add_argument("--energy", default="raw")
    parser.add_argument("--delayed", type=int, help="nearest positions; a pilot unless given")
    parser.add_argument("--first-stage", help="precision of the early tests")
    parser.add_argument("--chains", type=int, default=500)
    parser.add_argument("--epochs", type=int, default=100)
    parser.add_argument("--shortest", type=int, default=15)
    parser.add_argument("--longest", type=int, default=45)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--out", type=Path, required=True)
    given = parser.parse_args()
    check_free(given.out)
    model = load_model(given.model, given.device, given.precision)
    kernel = maskov.Metropolis(
        parse_energy(given.energy), delayed=maskov.DelayedAcceptance(given.delayed, given.first_stage)
    )
    told, begun = Told(), time.perf_counter()
    run = maskov.sample(
        model,
        kernel,
        maskov.Schedule(epochs=given.epochs),
        chains=given.chains,
        length=(given.shortest, given.longest),
        listener=told,
    )
    seconds = time.perf_counter() - begun
    stepping = time.perf_counter() - told.begun_at
    traces = run.traces
    total = {name: int(traces[name].sum()) for name in ("steps", "passes", "novel")}
    proposed = int(traces["proposed_novel"].sum())
    each = zip(
        run.samples, traces["passes"].sum(0).tolist(), traces["steps"].sum(0).tolist(), strict=True
    )
    flops = [
        sampling_flops(model, len(one.ids), model.frame.size, passes, steps, given.energy)
        for one, passes, steps in each
    ]
    teraflops = sum(part or 0 for part in flops) / stepping / 1e12
    # The ceiling is that of the arithmetic the passes use, so the plain network has it too.
    peak = torch.cuda.max_memory_allocated() / 2**20 if torch.cuda.is_available() else None
    plain = load_model(given.model, given.device, given.precision, plain=True)
    ceiling = measure_ceiling(plain, 2.0)["teraflops"]
    half = given.epochs // 2
    found = {
        "kind": "paper",
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "signature": run.signature,
        "pilot": run.manifest.get("pilot"),
        "energy_shift": run.manifest.get("energy_shift"),
        "seconds": seconds,
        "seconds_of_steps": stepping,
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
        "samples": [one.text for one in run.samples[:10]],
        "machine": machine(model.device),
        "versions": all_versions(),
    }
    write_json(given.out, found)
    for name, value in found.items():
        if isinstance(value, float | int):
            print(f"{name:24s} {value:,.3f}")
    for text in found["samples"]:
        print(" ", text)


if __name__ == "__main__":
    main()
