"""Time what goes in rounds on a GPU: a line for each kind of moves, as it is measured.

    python -m benchmarks rounds --precision bfloat16 --out FILE.json
    python -m benchmarks rounds --precision bfloat16 --engine lock-step --rows default mixed

Texts: --chains chains of --length tokens. Passes a second and the share of the ceiling of matrix
products are those of the whole run from the first step on, the recording of rounds included, after
a run of two epochs for which kernels are compiled; a row with a `short` run has also those of the
epochs after it, which recording does not slow down: the time of the shorter run is subtracted.
Translation: sentences a second of one whole call after a short one. With `--engine lock-step` rows
go in lock-step; with `windows` single sites, too, go in rounds of windows. A row begins only while
--limit seconds are not over.
"""

import time
from argparse import Namespace
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any
from unittest import mock

import torch

import maskov
from benchmarks.models import load_model
from benchmarks.runs import RunTimer, ceiling_of, counts, rates, run_texts
from benchmarks.tools import MODEL, parser, write
from benchmarks.translate import load_translator, measure, sources
from maskov.energies.ordered import Ordered
from maskov.energies.registry import parse_energy
from maskov.execution import recorded
from maskov.execution.window_rounds import WindowRounds
from maskov.kernels import Metropolis, Population
from maskov.models import choose_device
from maskov.models.scorer import Batcher
from maskov.runs import task_runner
from maskov.translation import TranslationMethod

_translator = cache(load_translator)
# The best product of energies (results/evidence).
PRODUCT = "0.69*ordered+0.26*norm"
# How chains advance, which no option chooses.
_ENGINES = {
    "rounds": recorded.rounds_of,
    "lock-step": lambda _: None,
    "windows": lambda kernel, kept=recorded.rounds_of: kept(kernel) and WindowRounds,
}


@cache
def _texts_model(options: tuple[Any, ...], seconds: float) -> tuple[Any, float | None]:
    """Load the model of texts and measure its ceiling, once."""
    ceiling = ceiling_of(*options, seconds)
    print(f"ceiling: {ceiling or 0:.0f} TFLOP/s", flush=True)
    return load_model(*options), ceiling


@dataclass(frozen=True)
class Texts:
    """A run of texts: epochs in all, of burn-in with groups, and of a shorter run, if any."""

    moves: str
    epochs: int
    grouped: int = 0
    short: int = 0

    def measure(self, options: Namespace) -> dict[str, Any]:
        """Sample, after two epochs to warm up, and again if there is a shorter run."""
        described = options.model, options.device, options.precision
        model, ceiling = _texts_model(described, options.seconds)
        groups = f"{options.energy}(groups=4)"
        how = {"moves": self.moves, "burn_in": self.grouped, "delayed": 2}
        how["burn_in_energy"] = groups if self.grouped else None
        if self.grouped == self.epochs:
            how = {"moves": self.moves, "burn_in": 0, "delayed": None, "energy": groups}
        chosen = {"burn_in_energy": None} | vars(options) | how

        def sampled(epochs: int) -> tuple[Any, float]:
            run, timer = run_texts(model, Namespace(**chosen | {"epochs": epochs}))
            return run, timer.end - timer.start

        def speeds(seconds: float, first: int = 0) -> dict[str, Any]:
            """Return what the epochs from the first on came to in so many seconds."""
            row = rates(counts(model, run, options.energy, seconds, first), ceiling)
            kept = ("seconds", "passes_per_second", "passes_per_step")
            return {"share": row["share_of_ceiling"]} | {name: row[name] for name in kept}

        run_texts(model, Namespace(**chosen | {"epochs": 2, "burn_in": min(1, how["burn_in"])}))
        run, seconds = sampled(self.epochs)
        found = {"epochs": self.epochs} | speeds(seconds)
        if self.short:
            steady = speeds(seconds - sampled(self.short)[1], self.short)
            found |= {f"steady_{name}": value for name, value in steady.items()}
        return found


@dataclass(frozen=True)
class Translations:
    """Translations of the first so many sources."""

    method: TranslationMethod
    sentences: int

    def measure(self, options: Namespace) -> dict[str, Any]:
        """Translate once, after a warm-up."""
        precision = "tf32" if options.precision == "bfloat16" else options.precision
        model = _translator(options.translator, options.device, precision)
        return measure(model, sources(self.sentences), self.method)[0]


@dataclass(frozen=True)
class Particles:
    """Populations on an even path of so many points to the best product, 20 tokens, T = 0.7."""

    particles: int
    populations: int
    points: int

    def measure(self, options: Namespace) -> dict[str, Any]:
        """Take them along the path, after a shorter one to warm up."""
        name = options.model.removesuffix("-grown")
        model = load_model(name, options.device, options.precision)
        target = Metropolis(parse_energy(PRODUCT), target_temperature=0.7)
        for points in (2, self.points):
            path = tuple(number / points for number in range(1, points + 1))
            kernel = Population(target, Ordered(), self.particles, path)
            timer = RunTimer()
            run = maskov.sample(
                model, kernel, maskov.Schedule(points), length=(20, 20), seed=options.seed,
                chains=self.particles * self.populations, listener=timer,
            )  # fmt: skip
        seconds, passes = timer.end - timer.start, int(run.traces["passes"].sum())
        each = passes / (self.particles * self.populations)
        return {"seconds": seconds, "passes_per_second": passes / seconds, "passes_each": each}


ROWS: dict[str, Texts | Translations | Particles] = {
    "default": Texts("span(1:3)", 20, grouped=8),
    "spans": Texts("span(1:3)", 8, short=2),
    "grouped": Texts("span(1:3)", 16, grouped=16, short=4),
    "sites": Texts("site", 8, short=2),
    "mixed": Texts("site,span(1:3)", 8, short=2),
    "sampled lengths": Translations(TranslationMethod("mh", lengths="sampled", chains=3), 300),
    "fixed lengths": Translations(TranslationMethod("mh"), 1000),
    "blocks": Translations(TranslationMethod("block-mh", energy="norm"), 300),
    "paper, 20 epochs": Texts("site", 20),
    "populations": Particles(1024, 4, 40),
    "one population": Particles(1024, 1, 80),
}
# What a kernel does, by a part of its name; what is in no list draws or keeps books.
_KINDS = {
    "attention": ("attention",),
    "norms, activations": ("add_norm", "embed_norm", "gelu"),
    "products of the encoder": ("bf16", "bfloat16", "nvjet"),
    "products of the head": ("gemm", "cutlass", "xmma"),
    "copies": ("copy_vectors", "memcpy"),
    "softmax, log-sum-exp": ("softmax", "logsumexp", "exp", "reduce"),
    "choice, sorting": ("sort", "scan", "topk", "scatter", "gather", "index"),
}


class Looking:
    """Looks at the kernels of some seconds of a run, from a given second on."""

    def __init__(self, begin: float, seconds: float) -> None:
        self._begin, self._seconds = begin, seconds
        self._first = self._started = self.wall = 0.0
        self.seen = torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA])

    def method(self) -> Callable[[Batcher], None]:
        """Return what looks at the time between rounds and between batches."""
        kept = Batcher.raise_if_stopped

        def look(batcher: Batcher) -> None:
            kept(batcher)
            self._look()

        return look

    def _look(self) -> None:
        now = time.perf_counter()
        self._first = self._first or now
        if not self._started and now - self._first > self._begin:
            torch.cuda.synchronize()
            self.seen.start()
            self._started = time.perf_counter()
        elif self._started and not self.wall and now - self._started > self._seconds:
            torch.cuda.synchronize()
            self.wall = time.perf_counter() - self._started
            self.seen.stop()

    def shares(self, most: int = 0) -> dict[str, float]:
        """Return the share of each kind of kernels; print so many of those that take most."""
        found = dict.fromkeys([*_KINDS, "others", "no kernel"], 0.0)
        kernels = [(one.self_device_time_total / 1e6, one) for one in self.seen.key_averages()]
        for seconds, one in sorted(kernels, key=lambda each: -each[0]):
            name = one.key.lower()
            kinds = (kind for kind, parts in _KINDS.items() if any(part in name for part in parts))
            found[next(kinds, "others")] += seconds / self.wall
            if most > 0:
                print(f"  {seconds / self.wall:6.1%} {one.count:7d} {one.key[:110]}", flush=True)
                most -= 1
        found["no kernel"] = 1 - sum(found.values())
        return found


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure the chosen rows, and print each as it finishes."""
    made = parser(
        __doc__, **MODEL | {"model": "wiki-small-grown", "translator": "deroen-small"},
        energy="raw", chains=500, length="15:45", seconds=0.5, limit=150.0, seed=0,
    )  # fmt: skip
    made.add_argument("--rows", nargs="*", choices=list(ROWS), default=list(ROWS))
    made.add_argument("--engine", choices=_ENGINES, default="rounds")
    made.add_argument("--profile", type=float, default=0.0, help="seconds to look at")
    made.add_argument("--after", type=float, default=3.0, help="seconds before these")
    options = made.parse_args(arguments)
    begun, device, rows = time.monotonic(), choose_device(options.device), {}
    for name in options.rows:
        if time.monotonic() - begun > options.limit:
            print(f"{name:20s} not measured: the time is over", flush=True)
            continue
        if device.type == "cuda":
            torch.cuda.empty_cache()
            torch.cuda.reset_peak_memory_stats()
        with (
            mock.patch.object(recorded, "rounds_of", _ENGINES[options.engine]),
            mock.patch.object(task_runner, "rounds_of", _ENGINES[options.engine]),
        ):
            rows[name] = ROWS[name].measure(options)
            if options.profile:
                looking = Looking(options.after, options.profile)
                with mock.patch.object(Batcher, "raise_if_stopped", looking.method()):
                    ROWS[name].measure(options)
                rows[name]["kernels"] = looking.shares(24)
        if device.type == "cuda":
            rows[name]["reserved_mib"] = torch.cuda.max_memory_reserved() / 2**20
        shown = rows[name] | rows[name].get("kernels", {})
        numbers = (
            f"{key} {one:,.4g}" for key, one in shown.items() if isinstance(one, int | float)
        )
        print(f"{name:20s} {'  '.join(numbers)}", flush=True)
        write(options, device, {"kind": "rounds", "rows": rows})
