"""maskov against the paper's Algorithm 1 in plain Hugging Face code, or over a grid.

    python -m benchmarks samplers --chains 64 --length 20 --out side.json
    python -m benchmarks samplers --over chains --values 1 8 64 512 --out chains.json

Chains of maskov advance asynchronously, so no moment separates one epoch from the next. Instead, a
run is made twice, with burn-in alone and in full, and the times are subtracted: the chains make the
same moves in both. Plain rows continue the last sequences with the random numbers that come next.
Every row has its own process.
"""

import argparse
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch

import maskov
from benchmarks.algorithm1 import scores_at, step
from benchmarks.flops import flops_per_pass, measure_ceiling
from benchmarks.models import load_model
from benchmarks.runs import RunTimer, counts, memory, rates, run_texts
from benchmarks.tools import MODEL, in_process, parser, show, write
from maskov.errors import InputError, refuse
from maskov.models import HuggingFaceModel, choose_device
from maskov.random import CounterRng, Purpose
from maskov.types import Tensor

# To add a row of maskov, add options of `run_texts`. `one-test` samples the Markov chain of
# Algorithm 1, so plain rows, which see too few moves, have its rates of moves per step.
VARIANTS: dict[str, dict[str, Any]] = {"maskov": {}, "one-test": {"delayed": 0}}
REFERENCE = "one-test"
# Plain rows, and whether all masked copies of a sequence form one batch.
PLAIN = {"algorithm 1": False, "batched copies": True}
_SHOWN = (
    "novel_per_second", "novel_per_step", "novel_per_pass", "steps_per_second", "passes_per_step",
    "passes_per_second", "tokens_per_second", "effective_per_second", "peak_memory_mib",
    "teraflops", "share_of_ceiling", "seconds", "novel_seen", "times_algorithm_1",
)  # fmt: skip
_GRIDS: dict[str, tuple[str, Callable[[str], Any]]] = {
    "chains": ("chains", int), "length": ("length", str),
    "size": ("model", "bert-{}-shaped".format),
}  # fmt: skip
# ArviZ finds its upper limit for chains that are shorter than this.
_MIN_DRAWS = 16


def measure_sampling(
    model: HuggingFaceModel, options: argparse.Namespace, variant: str
) -> dict[str, Any]:
    """Run one variant; time and count the epochs after burn-in."""

    def timed_run(epochs: int) -> tuple[maskov.Run, RunTimer]:
        how = {"moves": "site", "delayed": None, "burn_in_energy": None, "epochs": epochs}
        how |= {"burn_in": min(options.burn_in, epochs - 1)} | VARIANTS[variant]
        return run_texts(model, argparse.Namespace(**vars(options) | how))

    if model.device.type != "cpu":  # the first run compiles and selects kernels
        timed_run(options.burn_in)
    (first, burn_in), (run, timer) = timed_run(options.burn_in), timed_run(options.epochs)
    seconds = timer.end - timer.start - (burn_in.end - burn_in.start)
    ids, notes = [sample.ids for sample in run.samples], list(run.summary().notes)
    if not np.array_equal(first.traces["passes"], run.traces["passes"][: options.burn_in]):
        notes.append("burn-in alone took other passes than within the run: the time is an estimate")
    energies = run.traces["energy_target"][options.burn_in :]
    return counts(model, run, options.energy, seconds, options.burn_in) | {
        "passes_by_engine": timer.passes - burn_in.passes,
        "effective": _effective(energies, set(map(len, ids))),
        "ids": ids,
        "signature": run.signature,
        "notes": notes,
    }


def _effective(energies: Any, lengths: set[int]) -> float | None:
    """Return the bulk effective sample size; chains of different lengths have none in common."""
    from arviz_stats.base import array_stats

    if len(lengths) > 1 or len(energies) < _MIN_DRAWS:
        return None
    return float(array_stats.ess(energies.T, chain_axis=0, draw_axis=1, method="bulk"))


def measure_plain(
    model: HuggingFaceModel, options: argparse.Namespace, starts: list[list[int]], together: bool
) -> dict[str, Any]:
    """Continue from `starts`, one step of each chain in turn, until the time is up."""
    frame = list(model.tokenizer(model.tokenizer.mask_token)["input_ids"])
    if len(frame) != 3:
        raise InputError(f"'{model.name}' does not put one special token on each side of a text.")
    network, draws = model.network, CounterRng(options.seed)
    chains = [[frame[0], *ids, frame[2]] for ids in starts]
    # Steps that maskov's chains have made so far: the initial fill and every epoch.
    made = [(options.epochs + 1) * len(ids) for ids in starts]
    orders: list[list[int]] = [[] for _ in starts]
    longest = max(chains, key=len)
    scores_at(network, longest, range(len(longest) - 2 if together else 1), model.mask_id)
    novel, done = 0, list[int]()
    begin = time.perf_counter()
    while (elapsed := time.perf_counter() - begin) < options.seconds or not done:
        number = len(done) % len(chains)
        old, length = chains[number], len(starts[number])

        def uniform(purpose: Purpose, index: Tensor, number: int = number) -> Tensor:
            chain = torch.full_like(index, number)  # the keys of maskov's own chains
            return draws.uniform(chain, torch.full_like(index, made[number]), purpose, index)

        if not orders[number]:  # a new random sweep
            keys = uniform(Purpose.ORDER, torch.arange(length))
            orders[number] = keys.argsort(stable=True).tolist()
        place = orders[number].pop(0)
        keyed = ((Purpose.TOKEN, place), (Purpose.ACCEPT, 0))
        u_token, u_accept = (float(uniform(why, torch.tensor([key]))) for why, key in keyed)
        chains[number], token, accepted = step(
            network, old, place, model.mask_id, model.forbidden, options.energy, 1.0, u_token,
            u_accept, copies=len(old) if together else 1,
        )  # fmt: skip
        made[number] += 1
        done.append(length)
        novel += accepted and token != old[place + 1]
    return {
        "seconds": elapsed,
        "steps": len(done),
        "passes": sum(2 * n + 1 for n in done),
        "tokens": sum((2 * n + 1) * (n + 2) for n in done),
        "novel_seen": novel,
        "flops": sum((2 * n + 1) * (flops_per_pass(network.config, n) or 0) for n in done) or None,
        "ids": [chain[1:-1] for chain in chains],
    }


def ceiling(model: HuggingFaceModel, options: argparse.Namespace) -> dict[str, Any]:
    """Return the speed of matrix products, and the machine."""
    weights = sum(weight.numel() for weight in model.network.parameters())
    return {
        "teraflops": measure_ceiling(model, min(options.seconds, 1.0)),
        "model": {"name": model.name, "parameters": weights, "caution": model.caution},
    }


def measured(
    options: argparse.Namespace, plain: bool, task: Callable[..., dict[str, Any]], *arguments: Any
) -> dict[str, Any]:
    """Load the model and run a task, with the memory that it needs beyond the model."""
    model = load_model(options.model, options.device, options.precision, plain)
    before = memory("VmRSS")
    found = task(model, options, *arguments)
    found["peak_memory_mib"] = max(0.0, memory("VmHWM") - before)
    return found


def side_by_side(options: argparse.Namespace) -> dict[str, Any]:
    """Measure the selected rows; plain ones need the reference, whose chains they continue."""
    found = {
        name: in_process(measured, options, False, measure_sampling, name)
        for name in VARIANTS
        if name in options.rows or (name == REFERENCE and set(PLAIN) & set(options.rows))
    }
    limit = in_process(measured, options, True, ceiling)
    rows = []
    for name in (name for name in PLAIN if name in options.rows):
        starts = found[REFERENCE]["ids"]
        counted = in_process(measured, options, True, measure_plain, starts, PLAIN[name])
        rows.append({"name": name} | rates(counted, limit["teraflops"], found[REFERENCE]))
    rows += [{"name": name} | rates(one, limit["teraflops"]) for name, one in found.items()]
    first = next((row["novel_per_second"] for row in rows if row["name"] in PLAIN), None)
    for row in rows:
        row["times_algorithm_1"] = first and row["novel_per_second"] / first
    return {"kind": "side by side", **limit, "rows": rows}


def scaling(options: argparse.Namespace) -> dict[str, Any]:
    """Run maskov, or the first other variant of --rows, at every value of a grid."""
    name, read = _GRIDS[options.over]
    variant = next((row for row in options.rows if row in VARIANTS), "maskov")
    rows = []
    for value in options.values:
        point = argparse.Namespace(**vars(options) | {name: read(value)})
        limit = in_process(measured, point, True, ceiling)
        counted = in_process(measured, point, False, measure_sampling, variant)
        row = {"name": variant} | rates(counted, limit["teraflops"])
        rows.append(row | {"value": value, "model": limit["model"]})
    return {"kind": "scaling", "over": options.over, "variant": variant, **limit, "points": rows}


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure, print and write."""
    made = parser(
        __doc__, **MODEL, energy="raw", chains=64, length="20", epochs=12, burn_in=4, seconds=20.0,
        seed=0,
    )  # fmt: skip
    names = [*PLAIN, *VARIANTS]
    made.add_argument("--rows", nargs="+", choices=names, default=names)
    made.add_argument("--over", choices=_GRIDS, help="a grid of one row")
    made.add_argument("--values", nargs="+", help="its points, such as 1 8 64, or 2x128 for sizes")
    options = made.parse_args(arguments)
    refuse(
        (options.over and not options.values, "--over needs --values."),
        (
            not 1 <= options.burn_in < options.epochs,
            "--burn-in must be 1 or more, and below --epochs: it is not timed.",
        ),
    )
    results = scaling(options) if options.over else side_by_side(options)
    rows = results.get("rows") or results["points"]
    show(rows, "value" if options.over else "name", *_SHOWN)
    notes = {f"note: {note}" for row in rows for note in row.get("notes", [])}
    print(*sorted(notes), sep="\n")
    write(options, choose_device(options.device), results)
