"""The description of a run: frozen dataclasses, JSON and back.

A `RunConfig` is all that decides the numbers of a run. A `Manifest` is a config with what was found
out when the run began: it is what a run folder holds, what workers and `resume` rebuild from, and
what reports read. A manifest may come from anybody: pydantic checks every field against its type,
`__post_init__` against its bounds, and nothing in a manifest makes a program run.
"""

from __future__ import annotations

import json
import math
import typing
from dataclasses import asdict, dataclass
from functools import cache
from typing import Any, Literal

from maskov.errors import InputError, RunError, refuse, refusing

FORMAT = 8
# Epochs × chains of one run: its traces are kept in full.
MOST_TRACED = 10**8
# The epochs of a run, and the most of one that ends when it has converged, unless given.
DEFAULT_EPOCHS = 30
MOST_UNTIL_CONVERGED = 2000
# Where nothing says how to sample: the target, the draws that are proposed, and how many of them
# (results/default).
_DRAWN = "temperature=0.9, rule=confident"
DEFAULT_ENERGY = f"ordered({_DRAWN})+0.03*norm(groups=4)+0.35*repeats(within=20)"
DEFAULT_MOVES, DEFAULT_DRAWS = f"redraw({_DRAWN})", 70
# Epochs of burn-in, and the groups of positions in which it scores them, unless given: the fewest
# passes to the energy of long runs (results/mixing).
BURN_IN, GROUPS = 8, 4
_MOST = 10**7
# Draws of each chain at the first check for convergence.
_FIRST_DRAWS = 20
_LONGEST_NAME = 100
# Entries of a kernel's data and how deep they nest, far beyond any kernel that somebody writes: a
# kernel asks each of its parts several questions, so that depth multiplies the work.
_MOST_ENTRIES, _MOST_DEPTH = 10_000, 16


def _between(name: str, value: int, least: int, most: int) -> tuple[bool, str]:
    return not least <= value <= most, f"'{name}' must lie between {least} and {most}, not {value}."


def check_name(name: str) -> None:
    """Refuse a name that is not a short line of printable text."""
    text = str(name)
    refuse(
        (not isinstance(name, str), f"'name' must be a text, not {name!r}."),
        (
            len(text) > _LONGEST_NAME,
            f"'name' has {len(text)} characters; {_LONGEST_NAME} is the maximum.",
        ),
        (
            not text.isprintable() or text != text.strip(),
            "'name' must be one line of printable text, without spaces around it.",
        ),
    )


def _is_too_large(data: Any) -> bool:
    """Whether data has too many entries, or is too deep."""
    level, entries = [data], 0
    for _ in range(_MOST_DEPTH):
        inner = [list(one.values() if isinstance(one, dict) else one) for one in level]
        level = [value for values in inner for value in values if isinstance(value, dict | list)]
        entries += sum(map(len, inner))
    return bool(level) or entries > _MOST_ENTRIES


@dataclass(frozen=True)
class LinearSchedule:
    """A value that falls by `rate` an epoch until it reaches `floor`."""

    start: float
    rate: float = 0.0
    floor: float = 0.0

    def __post_init__(self) -> None:
        refuse(
            (
                not all(map(math.isfinite, (self.start, self.rate, self.floor))),
                "a schedule needs finite numbers.",
            ),
            (self.rate < 0, f"a schedule falls: its rate must be 0 or more, not {self.rate}."),
            (
                self.floor > self.start,
                f"a schedule cannot start at {self.start:g}, below its floor of {self.floor:g}.",
            ),
        )

    def at(self, epoch: int) -> float:
        """Return the value of an epoch, counted from 0."""
        return max(self.floor, self.start - self.rate * epoch)

    def settled_at(self) -> float:
        """Return the epoch from which the value no longer moves."""
        return 0.0 if self.rate == 0 else (self.start - self.floor) / self.rate

    def __str__(self) -> str:
        falling = f"-{self.rate:g}/epoch>={self.floor:g}" if self.rate else ""
        return f"{self.start:g}{falling}"


@dataclass(frozen=True)
class Schedule:
    """The epochs of a run.

    While the target temperature moves there is no fixed target. Moving block sizes keep the
    target: they are chosen without looking at the chain. Forced acceptance is initialisation;
    so is burn-in, whose epochs are run and traced but kept out of samples and averages; they may
    have their own energy as their target, named as `parse_energy` reads it. Where no
    temperature or block is given, the kernel's own holds throughout.
    """

    epochs: int = 20
    burn_in: int = 0
    target_temperature: LinearSchedule | None = None
    block: LinearSchedule | None = None
    force_accept: int = 0
    burn_in_energy: str | None = None

    def __post_init__(self) -> None:
        heat, block = self.target_temperature, self.block
        refuse(
            (self.epochs < 1, f"a run has at least one epoch, not {self.epochs}."),
            (
                not 0 <= self.burn_in < self.epochs,
                f"burn-in must leave at least one of the {self.epochs} epochs, not take "
                f"{self.burn_in}.",
            ),
            (
                self.burn_in_energy is not None and self.burn_in == 0,
                "--burn-in-energy is the target of burn-in: give --burn-in, too.",
            ),
            (
                not 0 <= self.force_accept <= self.epochs,
                f"acceptance can be forced for 0 to {self.epochs} epochs, not {self.force_accept}.",
            ),
            (
                heat is not None and not heat.at(self.epochs - 1) > 0,
                "the target temperature would reach 0 before the last epoch; raise its floor "
                "or lower its rate (--target-temperature START:FALL:FLOOR).",
            ),
            (
                block is not None and min(block.start, block.floor) < 1,
                "a block has at least one position.",
            ),
        )

    def block_at(self, epoch: int) -> int:
        """Return the block size of an epoch, a whole number."""
        return 1 if self.block is None else max(1, round(self.block.at(epoch)))

    def fixed_target(self) -> bool:
        """Whether all kept epochs have one target and decide acceptance by it."""
        moving = self.target_temperature
        settled = moving is None or moving.settled_at() <= self.burn_in
        return settled and self.force_accept <= self.burn_in


@dataclass(frozen=True)
class ModelSource:
    """How to load a model: its name, folder or hub name, and what goes with it.

    `prefix` is a text that it reads before every sequence, `remove_smoothing` the label smoothing
    of its training that is removed from its conditionals, `extra_letters` what a model of proteins
    proposes besides the 20 amino acids. With the architecture `masked-diffusion` it may be of any
    class that returns logits. With `shift_logits` the logits at a position are those of the next
    one. `mask_token_id` is the mask, if the tokenizer does not say it.
    """

    name: str
    tokenizer: str | None = None
    trust_remote_code: bool = False
    prefix: str = ""
    remove_smoothing: float = 0.0
    extra_letters: str = ""
    architecture: Literal["masked-lm", "masked-diffusion"] = "masked-lm"
    shift_logits: bool = False
    mask_token_id: int | None = None

    def __post_init__(self) -> None:
        share = self.remove_smoothing
        refuse(
            (not 0 <= share < 1, f"remove_smoothing must be at least 0 and below 1, not {share}."),
            (
                self.architecture not in ("masked-lm", "masked-diffusion"),
                f"unknown architecture '{self.architecture}'; use masked-lm or masked-diffusion.",
            ),
            (
                self.mask_token_id is not None and self.mask_token_id < 0,
                f"mask_token_id must be 0 or more, not {self.mask_token_id}.",
            ),
        )


@dataclass(frozen=True)
class ModelConfig:
    """Which model a run uses, and how its passes are computed."""

    name: str
    fingerprint: str
    source: ModelSource
    precision: Literal["float32", "float64", "tf32", "bfloat16", "float16"] = "float32"
    device: str = "cpu"


@dataclass(frozen=True)
class Inputs:
    """Where the sequences of a run come from: exactly one of four.

    A range of lengths; texts to start from; templates with blanks; or sources to translate, with
    the rule by which the length of each translation was chosen and the lengths it chose. Sources
    may have texts, the drafts of their translations. If lengths are `sampled`, a chain may have any
    in the range, which may then go with texts; those of translations have `bounds`, the fewest and
    the most tokens for each source. `frozen` are the positions of each text that stay, counted from
    0. `names` are those of texts or templates that came from FASTA.
    """

    length: tuple[int, int] | None = None
    texts: tuple[str, ...] | None = None
    templates: tuple[str, ...] | None = None
    sources: tuple[str, ...] | None = None
    lengths: str = "best"
    chosen: tuple[tuple[int, ...], ...] | None = None
    bounds: tuple[tuple[int, int], ...] | None = None
    sampled: bool = False
    frozen: tuple[tuple[int, ...], ...] | None = None
    names: tuple[str, ...] | None = None

    def __post_init__(self) -> None:
        given = [self.length, self.texts, self.templates, self.sources]
        # Drafts of translations, and texts of which chains may have any length in a range.
        together = self.texts is not None and (
            self.sources is not None or (self.sampled and self.length is not None)
        )
        kind = "sources" if self.sources is not None else "texts"
        lines = len(self.sources or self.texts or self.templates or ())
        chosen, bounds, frozen = self.chosen or (), self.bounds or (), self.frozen or ()
        each = {"texts": self.texts, "chosen": self.chosen, "bounds": self.bounds,
                "frozen": self.frozen, "names": self.names}  # fmt: skip
        refuse(
            (
                sum(value is not None for value in given) - together != 1,
                "'inputs' must give one of length, texts, templates and sources.",
            ),
            (() in given, "'inputs' holds no text."),
            (
                (self.sources is None) != (self.chosen is None),
                "'inputs.chosen' goes with sources.",
            ),
            (
                self.sources is not None and self.sampled != (self.bounds is not None),
                "'inputs.bounds' go with sampled lengths of sources.",
            ),
            (
                self.frozen is not None and (self.texts is None or self.length or self.sources),
                "'inputs.frozen' goes with texts, not with a range of lengths or with sources.",
            ),
            (self.names is not None and self.sources is not None, "'inputs.names' go with texts."),
            *(
                (
                    value is not None and len(value) != lines,
                    f"'inputs.{name}' must have as many entries as the {kind}.",
                )
                for name, value in each.items()
            ),
            *(
                _between("inputs.length", value, 1, _MOST)
                for row in (self.length or (), *chosen, *bounds)
                for value in row
            ),
            *(_between("inputs.frozen", place, 0, _MOST) for row in frozen for place in row),
            *(
                (list(row) != sorted(set(row)), "'inputs.frozen' is not in order.")
                for row in frozen
            ),
            *(
                (
                    min(row, default=few) < few or max(row, default=few) > most,
                    "'inputs.bounds' leave out a length that was chosen.",
                )
                for (few, most), row in zip(bounds, chosen, strict=False)
            ),
        )


@dataclass(frozen=True)
class Execution:
    """How a run is carried out; it decides how sums are rounded, and nothing else.

    `token_budget` caps the tokens of one model call, `resident` the chains of one group, which are
    on a device at once. `trace` says whether energies are traced in every epoch or only where
    samples are kept. Each process computes with so many `threads` on a CPU.
    """

    token_budget: int
    resident: int
    trace: Literal["every", "kept"] = "every"
    threads: int = 1

    def __post_init__(self) -> None:
        refuse(
            _between("execution.token_budget", self.token_budget, 1, 2**40),
            _between("execution.resident", self.resident, 1, 2**40),
            _between("execution.threads", self.threads, 1, 1024),
        )


@dataclass(frozen=True)
class UntilConverged:
    """End a run at the first check that its chains pass: R-hat and `effective` draws.

    Checks are made at fixed epochs, each about 1.4 times the one before, so that a run that is
    resumed or shared by workers ends at the same epoch.
    """

    effective: int = 100

    def __post_init__(self) -> None:
        refuse(_between("until.effective", self.effective, 1, 2**40))

    def checks(self, schedule: Schedule, thin: int) -> tuple[int, ...]:
        """Return after how many epochs to check; the last is the limit."""
        # The first has enough draws to be judged, and a sample that was kept.
        burn_in, kept = schedule.burn_in, max(_FIRST_DRAWS, thin)
        epochs = []
        while (done := burn_in + kept if burn_in else 2 * kept) < schedule.epochs:
            epochs.append(done)
            kept = -(-kept * 7 // 5)
        return (*epochs, schedule.epochs)


@dataclass(frozen=True)
class RunConfig:
    """All that decides the numbers of a run.

    `kernel` is plain data as `maskov.kernels.registry.to_data` writes it. `chains` counts those of
    each template or source. With a `flat` length prior the run finds weights under which lengths
    are visited evenly; others are a part of the energy. With `until`, the epochs of the schedule
    are the most there may be.
    """

    model: ModelConfig
    kernel: dict[str, Any]
    schedule: Schedule
    inputs: Inputs
    execution: Execution
    chains: int = 8
    start: Literal["masked", "greedy", "mask-predict"] = "masked"
    thin: int = 0
    seed: int = 0
    length_prior: Literal["none", "flat"] = "none"
    until: UntilConverged | None = None

    def __post_init__(self) -> None:
        refuse(
            _between("chains", self.chains, 1, MOST_TRACED),
            _between("thin", self.thin, 0, MOST_TRACED),
            _between("seed", self.seed, 0, 2**64 - 1),
            (not isinstance(self.kernel.get("part"), str), "'kernel' names no part."),
            (
                # Samples are written as they are drawn, before it is known where the run ends.
                self.until is not None and self.thin and not self.schedule.burn_in,
                "'thin' with 'until' needs a burn-in.",
            ),
            (
                _is_too_large(self.kernel),
                f"'kernel' has more than {_MOST_ENTRIES} entries or is more than {_MOST_DEPTH} "
                "deep.",
            ),
            (
                self.all_chains * self.schedule.epochs > MOST_TRACED,
                f"{self.all_chains} chains of {self.schedule.epochs} epochs are more than one run "
                "can trace; use fewer, or several runs.",
            ),
        )

    @property
    def all_chains(self) -> int:
        """The chains of all texts, templates or sources together."""
        inputs = self.inputs
        lines = inputs.texts or inputs.templates or (None,)
        return self.chains * len(lines) if inputs.chosen is None else sum(map(len, inputs.chosen))


@dataclass(frozen=True)
class Tuning:
    """What discarded chains chose before the run began.

    `lengths` are the log-weights of all lengths from `first_length` on, `evenness` how evenly
    lengths were visited at last (1: evenly; x: some length x or 1/x times as often), `passes` what
    the measurements cost.
    """

    first_length: int = 0
    lengths: tuple[float, ...] = ()
    evenness: float = 1.0
    passes: int = 0


@dataclass(frozen=True)
class PrecisionCheck:
    """How far energies move when passes are coarser: |E − E_exact| over some sequences."""

    precision: str
    sequences: int
    raw_mean: float
    raw_most: float
    norm_mean: float
    norm_most: float

    def __str__(self) -> str:
        return (
            f"{self.precision} shifts E_raw by {self.raw_mean:.3g} on average (at most "
            f"{self.raw_most:.3g}) and E_norm by {self.norm_mean:.3g} (at most "
            f"{self.norm_most:.3g}) on {self.sequences} of the starting sequences; acceptance is "
            "decided by these energies"
        )


@dataclass(frozen=True)
class Manifest:
    """A run's config and what was found out about it.

    `kernel` is the kernel's short name, `energy` that of its target, `order` and `block` those of
    its site move. `width` and `shortest` are the longest and the shortest that a sequence may be,
    `mean` the mean length at the start, `regions` how many parts of one may change their length.
    `stopped_at` is the number of epochs after which a run with `until` had converged,
    `samples_hash` the hash of the samples of a run that is over. `experts`
    are the parts of the energy other than masked passes, `particles` are those of each population;
    `compares` says that a chain's target
    depends on the text it started from.
    `name` is what its user calls the run.
    """

    config: RunConfig
    created: str
    signature: str
    kernel: str
    energy: str | None
    order: str | None
    block: int | None
    leaves_invariant: bool
    notes: tuple[str, ...]
    versions: dict[str, str]
    energy_models: dict[str, str]
    width: int
    shortest: int
    mean: int
    regions: int = 0
    experts: tuple[str, ...] = ()
    expert_weights: tuple[float, ...] = ()
    compares: bool = False
    tuning: Tuning | None = None
    particles: int = 0
    precision_check: PrecisionCheck | None = None
    stopped_at: int | None = None
    samples_hash: str | None = None
    name: str = ""
    format: int = FORMAT

    def __post_init__(self) -> None:
        check_name(self.name)
        refuse(
            (self.format != FORMAT, "'format' is that of another version of maskov."),
            _between("width", self.width, 1, _MOST),
            _between("shortest", self.shortest, 1, self.width),
            _between("mean", self.mean, 1, self.width),
            _between("regions", self.regions, 0, self.width),
            (
                bool(self.particles) and self.chains % self.particles != 0,
                "'particles' must divide the number of chains.",
            ),
            (
                self.stopped_at is not None
                and (self.config.until is None or self.stopped_at not in self.checks),
                "'stopped_at' is not an epoch at which the run could stop.",
            ),
        )

    @property
    def chains(self) -> int:
        """All chains of the run."""
        return self.config.all_chains

    @property
    def schedule(self) -> Schedule:
        """The schedule."""
        return self.config.schedule

    @property
    def epochs(self) -> int:
        """The epochs of the run: of the schedule, or fewer if it converged before."""
        return self.schedule.epochs if self.stopped_at is None else self.stopped_at

    @property
    def checks(self) -> tuple[int, ...]:
        """After how many epochs the run may end."""
        until, schedule = self.config.until, self.schedule
        return until.checks(schedule, self.config.thin) if until else (schedule.epochs,)

    def burn_in(self, epochs: int) -> int:
        """Return how many of the first so many epochs do not count.

        A run that ends when it has converged discards the first half, unless burn-in was given.
        """
        return self.schedule.burn_in or (0 if self.config.until is None else epochs // 2)

    @property
    def inputs(self) -> Inputs:
        """Where the sequences come from."""
        return self.config.inputs


# What a run adds to its manifest on the way.
_ADDED = ("precision_check", "stopped_at", "samples_hash")


def _leaves(value: Any, name: str = "") -> dict[str, Any]:
    """Return the entries of nested dictionaries by their whole names."""
    if not isinstance(value, dict) or not value:
        return {name: value}
    inner = (_leaves(entry, f"{name}.{key}" if name else key) for key, entry in value.items())
    return {key: entry for leaves in inner for key, entry in leaves.items()}


def fields_of(manifest: Manifest) -> dict[str, Any]:
    """Return each field that must stay as it was when the run began, by its whole name."""
    data = json.loads(json.dumps(asdict(manifest)))
    return _leaves({key: value for key, value in data.items() if key not in _ADDED})


T = typing.TypeVar("T")


@cache
def _reader(kind: Any) -> Any:
    # Whoever reads no description of a run needs no pydantic.
    from pydantic import TypeAdapter

    return TypeAdapter(kind)


def from_json(kind: type[T], text: str) -> T:
    """Build a dataclass from JSON; a field that does not fit is an `InputError` that names it."""
    from pydantic import ValidationError

    try:
        return typing.cast(
            T, _reader(typing.cast(Any, kind)).validate_json(text, strict=True, extra="forbid")
        )
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        where = ".".join(map(str, first["loc"])) or "JSON"
        raise InputError(f"'{where}': {first['msg'].lower()}") from error


def read_manifest(text: str, folder: str) -> Manifest:
    """Build the manifest of a run folder, or say which field is wrong."""
    with refusing(
        f"'{folder}' is not a run folder: it has no readable manifest.",
        ValueError,
        RecursionError,
        kind=RunError,
    ):
        data = json.loads(text)
    written = data.get("format", FORMAT) if isinstance(data, dict) else FORMAT
    refuse(
        (
            written != FORMAT,
            f"'{folder}' was written by another version of maskov (format {str(written)[:20]}), "
            "with options that this one does not have.",
        ),
        kind=RunError,
    )
    try:
        manifest = from_json(Manifest, text)
        # Those with a default, too: what is read is what was written.
        missing = sorted(_leaves(asdict(manifest)).keys() - _leaves(data).keys())
        if missing:
            raise InputError(f"missing '{missing[0]}'")
    except (InputError, OverflowError) as error:
        told = str(error).rstrip(".")
        told = told if told.startswith(("'", "missing")) else f"invalid 'config': {told}"
        raise RunError(f"the manifest of '{folder}' is damaged: {told}.") from error
    return manifest
