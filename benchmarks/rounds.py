"""Time what goes in rounds on a GPU: a line for each kind of moves, as it is measured.

    python -m benchmarks rounds --precision bfloat16 --out FILE.json
    python -m benchmarks rounds --precision bfloat16 --engine lock-step --rows default mixed

Texts: --chains chains of --length tokens. Passes a second and the share of the ceiling of matrix
products are those of the whole run from the first step on, the recording of rounds included; a row
with a `short` run has also those of the epochs after it, which recording does not slow down: the
time of the shorter run is subtracted. Translation: sentences a second of one whole call after a
short one. With `--engine lock-step` rows go in lock-step; with `windows` single sites, too, go in
rounds of windows. A row begins only while --limit seconds are not over.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import torch

import maskov
from benchmarks.flops import measure_ceiling, sampling_flops
from benchmarks.models import load_model
from benchmarks.tools import MODEL, RunTimer, about, length_of, now, parser, write
from benchmarks.translate import sources
from maskov.execution import recorded
from maskov.execution.window_rounds import WindowRounds
from maskov.kernels.registry import named_kernel, parse_moves
from maskov.models import load
from maskov.models.conditional import ConditionalModel
from maskov.translation import TranslationMethod, run_method


@dataclass(frozen=True)
class Texts:
    """A run of texts: epochs in all, of burn-in with groups, and of a shorter run, if any."""

    moves: str
    epochs: int
    grouped: int = 0
    short: int = 0


@dataclass(frozen=True)
class Translations:
    """Translations of the first so many sources."""

    method: TranslationMethod
    sentences: int


ROWS: dict[str, Texts | Translations] = {
    "default": Texts("span(1:3)", 20, grouped=8),
    "grouped": Texts("span(1:3)", 16, grouped=16, short=4),
    "sites": Texts("site", 8, short=2),
    "mixed": Texts("site,span(1:3)", 8, short=2),
    "sampled lengths": Translations(TranslationMethod("mh", lengths="sampled", chains=3), 300),
    "fixed lengths": Translations(TranslationMethod("mh"), 1000),
    "blocks": Translations(TranslationMethod("block-mh", energy="norm"), 300),
    "paper, 20 epochs": Texts("site", 20),
}


@contextmanager
def engine(name: str) -> Iterator[None]:
    """Choose how chains advance, which no option does."""
    kept = recorded.rounds_of
    chosen = {"rounds": kept, "lock-step": lambda _: None, "windows": _windows}
    recorded.rounds_of = chosen[name]
    from maskov.runs import task_runner

    task_runner.rounds_of = chosen[name]
    try:
        yield
    finally:
        recorded.rounds_of = task_runner.rounds_of = kept


def _windows(kernel: Any) -> Any:
    return _KEPT(kernel) and WindowRounds


_KEPT = recorded.rounds_of


def texts(model: Any, row: Texts, options: Any, ceiling: float | None) -> dict[str, Any]:
    """Sample, twice if there is a shorter run; return the speeds."""
    whole = run_texts(model, row, row.epochs, options)
    found = speeds(model, *whole, options, ceiling)
    if row.short:
        seconds, lengths, traces = whole
        before = run_texts(model, row, row.short, options)[0]
        rest = {name: trace[row.short :] for name, trace in traces.items()}
        steady = speeds(model, seconds - before, lengths, rest, options, ceiling)
        found |= {f"steady_{name}": value for name, value in steady.items()}
    return {"epochs": row.epochs} | found


def run_texts(model: Any, row: Texts, epochs: int, options: Any) -> tuple[float, list[int], Any]:
    """Sample once; return the seconds since the first step, the lengths and the traces."""
    moves, weights, _ = parse_moves(row.moves)
    groups, timer = f"{options.energy}(groups=4)", RunTimer()
    if row.grouped == row.epochs:
        kernel = named_kernel("mh", groups, moves, weights)
        schedule = maskov.Schedule(epochs)
    else:
        delayed = maskov.DelayedAcceptance(2)
        kernel = named_kernel("mh", options.energy, moves, weights, delayed=delayed)
        first = groups if row.grouped else None
        schedule = maskov.Schedule(epochs, row.grouped, burn_in_energy=first)
    length = length_of(options.length)
    run = maskov.sample(
        model, kernel, schedule, chains=options.chains, length=length, listener=timer
    )
    traces = {name: run.traces[name] for name in ("passes", "steps")}
    return timer.end - timer.start, [len(sample.ids) for sample in run.samples], traces


def speeds(
    model: Any,
    seconds: float,
    lengths: list[int],
    traces: Any,
    options: Any,
    ceiling: float | None,
) -> dict[str, Any]:
    """Return what some epochs came to in so many seconds."""
    passes, steps = (traces[name].sum(0) for name in ("passes", "steps"))
    flops = sampling_flops(model, lengths, passes.tolist(), steps.tolist(), options.energy) or 0
    return {
        "share": ceiling and flops / seconds / 1e12 / ceiling,
        "seconds": seconds,
        "passes_per_second": float(passes.sum()) / seconds,
        "passes_per_step": float(passes.sum() / steps.sum()),
    }


def translations(model: ConditionalModel, row: Translations) -> dict[str, Any]:
    """Translate once, after a short call that compiles what there is to compile."""
    lines = sources(row.sentences)
    short = replace(row.method, epochs=row.method.schedule().force_accept + 2)
    run_method(model.given(lines[:20]), short)
    begin = now(model.device)
    run = run_method(model.given(lines), row.method)
    seconds = now(model.device) - begin
    passes = float(run.traces["passes"].sum())
    return {
        "seconds": seconds,
        "sentences_per_second": row.sentences / seconds,
        "passes_per_second": passes / seconds,
        "passes_per_sentence": passes / row.sentences,
    }


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure the chosen rows, and print each as it finishes."""
    made = parser(
        __doc__,
        **MODEL | {"model": "wiki-small-grown", "translator": "deroen-small"},
        energy="raw", chains=500, length="15:45", seconds=0.5, limit=150.0,
    )  # fmt: skip
    made.add_argument("--rows", nargs="*", choices=list(ROWS), default=list(ROWS))
    made.add_argument("--engine", choices=["rounds", "lock-step", "windows"], default="rounds")
    options = made.parse_args(arguments)
    begun, model, translator = time.monotonic(), None, None
    device, ceiling = torch.device("cpu"), None
    results: dict[str, Any] = {"kind": "rounds", "engine": options.engine, "rows": {}}
    for name in options.rows:
        if time.monotonic() - begun > options.limit:
            print(f"{name:20s} not measured: the time is over", flush=True)
            continue
        row = ROWS[name]
        if isinstance(row, Texts) and model is None:
            model = load_model(options.model, options.device, options.precision)
            device = model.device
            plain = load_model(options.model, options.device, options.precision, plain=True)
            ceiling = measure_ceiling(plain, options.seconds)
            del plain
            print(f"ceiling: {ceiling or 0:.0f} TFLOP/s", flush=True)
        if isinstance(row, Translations) and translator is None:
            precision = "tf32" if options.precision == "bfloat16" else options.precision
            translator = load(options.translator, options.device, precision)
            assert isinstance(translator, ConditionalModel)
            device = translator.device
        if device.type == "cuda":
            torch.cuda.empty_cache()
            torch.cuda.reset_peak_memory_stats()
        with engine(options.engine):
            if isinstance(row, Texts):
                found = texts(model, row, options, ceiling)
            else:
                assert isinstance(translator, ConditionalModel)
                found = translations(translator, row)
        if device.type == "cuda":
            found["reserved_mib"] = torch.cuda.max_memory_reserved() / 2**20
        results["rows"][name] = found
        numbers = (f"{key} {value:,.4g}" for key, value in found.items() if value is not None)
        print(f"{name:20s} {'  '.join(numbers)}", flush=True)
        write(options.out, results | about(device))
