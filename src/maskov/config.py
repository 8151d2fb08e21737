"""The description of a run: frozen dataclasses, JSON and back.

A `RunConfig` is all that decides the numbers of a run. A `Manifest` is a config with what was found
out when the run began: it is what a run folder holds, what workers and `resume` rebuild from, and
what reports read. A manifest may come from anybody: `from_json` checks every field against its type
and bounds, and nothing in a manifest makes a program run.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import types
import typing
from dataclasses import dataclass
from typing import Any, Literal, get_args, get_origin, get_type_hints

from maskov.errors import InputError, RunError
from maskov.schedules import Schedule

FORMAT = 5
# Epochs × chains of one run: its traces are kept in full.
MOST_TRACED = 10**8
# The epochs of a run, and the most of one that ends when it has converged, unless given.
DEFAULT_EPOCHS = 30
MOST_UNTIL_CONVERGED = 2000
_MOST = 10**7
# Draws of each chain at the first check for convergence.
_FIRST_DRAWS = 20
_MOST_REPLICAS = 16
_LONGEST_NAME = 100
# Entries of a kernel's data and how deep they nest, far beyond any kernel that somebody writes: a
# kernel asks each of its parts several questions, so that depth multiplies the work.
_MOST_ENTRIES, _MOST_DEPTH = 10_000, 16


def _between(name: str, value: int, least: int, most: int) -> None:
    if not least <= value <= most:
        raise InputError(f"'{name}' must lie between {least} and {most}, not {value}.")


def check_name(name: str) -> None:
    """Refuse a name that is not a short line of printable text."""
    if not isinstance(name, str):
        raise InputError(f"'name' must be a text, not {name!r}.")
    if len(name) > _LONGEST_NAME:
        raise InputError(f"'name' has {len(name)} characters; {_LONGEST_NAME} is the maximum.")
    if not name.isprintable() or name != name.strip():
        raise InputError("'name' must be one line of printable text, without spaces around it.")


def _check_size(name: str, data: Any) -> None:
    """Refuse data with too many entries, or too deep."""
    level, entries = [data], 0
    for _ in range(_MOST_DEPTH):
        inner = [list(one.values() if isinstance(one, dict) else one) for one in level]
        level = [value for values in inner for value in values if isinstance(value, dict | list)]
        entries += sum(map(len, inner))
        if not level:
            break
    if level or entries > _MOST_ENTRIES:
        raise InputError(
            f"'{name}' has more than {_MOST_ENTRIES} entries or is more than {_MOST_DEPTH} deep."
        )


@dataclass(frozen=True)
class ModelSource:
    """How to load a model: its name, folder or hub name, and what goes with it.

    `prefix` is a text that it reads before every sequence, `remove_smoothing` the label smoothing
    of its training that is removed from its conditionals, `extra_letters` what a model of proteins
    proposes besides the 20 amino acids.
    """

    name: str
    tokenizer: str | None = None
    trust_remote_code: bool = False
    prefix: str = ""
    remove_smoothing: float = 0.0
    extra_letters: str = ""

    def __post_init__(self) -> None:
        if not 0 <= self.remove_smoothing < 1:
            raise InputError(
                f"remove_smoothing must be at least 0 and below 1, not {self.remove_smoothing}."
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
        drafts = self.sources is not None and self.texts is not None
        together = drafts or (self.sampled and self.length is not None and self.texts is not None)
        if sum(value is not None for value in given) - together != 1:
            raise InputError("'inputs' must give one of length, texts, templates and sources.")
        if (self.sources is None) != (self.chosen is None):
            raise InputError("'inputs.chosen' goes with sources.")
        if () in (self.texts, self.templates, self.sources):
            raise InputError("'inputs' holds no text.")
        if self.chosen is not None and len(self.chosen) != len(self.sources or ()):
            raise InputError("'inputs.chosen' must have as many entries as the sources.")
        if drafts and len(self.texts or ()) != len(self.sources or ()):
            raise InputError("'inputs.texts' must have as many entries as the sources.")
        if self.sources is not None and self.sampled != (self.bounds is not None):
            raise InputError("'inputs.bounds' go with sampled lengths of sources.")
        if self.bounds is not None:
            self._check_bounds(self.bounds)
        for value in (*(self.length or ()), *(n for row in self.chosen or () for n in row)):
            _between("inputs.length", value, 1, _MOST)
        lines = () if drafts else self.texts or self.templates or ()
        if self.names is not None and len(self.names) != len(lines):
            raise InputError("'inputs.names' must have as many entries as the texts.")
        if self.frozen is not None:
            self._check_frozen(self.frozen)

    def _check_bounds(self, bounds: tuple[tuple[int, int], ...]) -> None:
        if self.chosen is None or len(bounds) != len(self.chosen):
            raise InputError("'inputs.bounds' must have as many entries as the sources.")
        for (fewest, most), lengths in zip(bounds, self.chosen, strict=True):
            _between("inputs.bounds", most, 1, _MOST)
            for value in (fewest, *lengths):
                _between("inputs.bounds", value, 1, most)
            if min(lengths, default=fewest) < fewest:
                raise InputError("'inputs.bounds' leave out a length that was chosen.")

    def _check_frozen(self, frozen: tuple[tuple[int, ...], ...]) -> None:
        if self.texts is None or self.length is not None or self.sources is not None:
            raise InputError(
                "'inputs.frozen' goes with texts, not with a range of lengths or with sources."
            )
        if len(frozen) != len(self.texts):
            raise InputError("'inputs.frozen' must have as many entries as the texts.")
        for places in frozen:
            if list(places) != sorted(set(places)):
                raise InputError("'inputs.frozen' is not in order.")
            for place in places:
                _between("inputs.frozen", place, 0, _MOST)

    @property
    def holds_tokens(self) -> bool:
        """Whether each line has tokens that stay, so that its chains have a target of their own."""
        return self.templates is not None or self.frozen is not None


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
        _between("execution.token_budget", self.token_budget, 1, 2**40)
        _between("execution.resident", self.resident, 1, 2**40)
        _between("execution.threads", self.threads, 1, 1024)


@dataclass(frozen=True)
class UntilConverged:
    """End a run at the first check that its chains pass: R-hat and `effective` draws.

    Checks are made at fixed epochs, each about 1.4 times the one before, so that a run that is
    resumed or shared by workers ends at the same epoch.
    """

    effective: int = 100

    def __post_init__(self) -> None:
        _between("until.effective", self.effective, 1, 2**40)

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
        _between("chains", self.chains, 1, MOST_TRACED)
        _between("thin", self.thin, 0, MOST_TRACED)
        _between("seed", self.seed, 0, 2**64 - 1)
        if not isinstance(self.kernel.get("part"), str):
            raise InputError("'kernel' names no part.")
        if self.until is not None and self.thin and not self.schedule.burn_in:
            # Samples are written as they are drawn, before it is known where the run ends.
            raise InputError("'thin' with 'until' needs a burn-in.")
        _check_size("kernel", self.kernel)
        if self.all_chains * self.schedule.epochs > MOST_TRACED:
            raise InputError(
                f"{self.all_chains} chains of {self.schedule.epochs} epochs are more than one run "
                "can trace; use fewer, or several runs."
            )

    @property
    def all_chains(self) -> int:
        """The chains of all texts, templates or sources together."""
        inputs = self.inputs
        if inputs.chosen is not None:
            return sum(map(len, inputs.chosen))
        return self.chains * len(inputs.texts or inputs.templates or (None,))


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
    `stopped_at` is the number of epochs after which a run with `until` had converged. `replicas`
    are those of each chain, and `ladder` their inverse temperatures once these are known. `experts`
    are the parts of the energy other than masked passes; `compares` says that a chain's target
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
    replicas: int = 1
    ladder: tuple[float, ...] | None = None
    precision_check: PrecisionCheck | None = None
    stopped_at: int | None = None
    name: str = ""
    format: int = FORMAT

    def __post_init__(self) -> None:
        check_name(self.name)
        _between("width", self.width, 1, _MOST)
        _between("shortest", self.shortest, 1, self.width)
        _between("mean", self.mean, 1, self.width)
        _between("regions", self.regions, 0, self.width)
        _between("replicas", self.replicas, 1, _MOST_REPLICAS)
        if self.ladder is not None and len(self.ladder) != self.replicas:
            raise InputError("'ladder' must have as many entries as there are replicas.")
        if self.chains * self.schedule.epochs * self.replicas > MOST_TRACED:
            raise InputError(
                f"{self.replicas} replicas of {self.chains} chains and {self.schedule.epochs} "
                "epochs are more than one run can trace; use fewer, or several runs."
            )
        if self.format != FORMAT:
            raise InputError("'format' is that of another version of maskov.")
        if self.stopped_at is not None and (
            self.config.until is None or self.stopped_at not in self.checks
        ):
            raise InputError("'stopped_at' is not an epoch at which the run could stop.")

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
        config = self.config
        if config.until is None:
            return (config.schedule.epochs,)
        return config.until.checks(config.schedule, config.thin)

    def burn_in(self, epochs: int) -> int:
        """Return how many of the first so many epochs do not count.

        A run that ends when it has converged discards the first half, unless burn-in was given.
        """
        if self.config.until is not None and not self.schedule.burn_in:
            return epochs // 2
        return self.schedule.burn_in

    @property
    def inputs(self) -> Inputs:
        """Where the sequences come from."""
        return self.config.inputs


# What a run adds to its manifest on the way.
_ADDED = ("precision_check", "stopped_at")
_HASH_LETTERS = 16


def field_hashes(manifest: Manifest) -> dict[str, str]:
    """Return a hash of each field that must stay as it was when the run began.

    Checkpoints carry these, so that a manifest that was changed later is noticed and the field
    can be named.
    """

    def leaves(value: Any, name: str) -> dict[str, str]:
        if isinstance(value, dict) and value:
            found: dict[str, str] = {}
            for key, entry in value.items():
                found |= leaves(entry, f"{name}.{key}" if name else str(key))
            return found
        text = json.dumps(value, sort_keys=True)
        return {name: hashlib.sha256(text.encode()).hexdigest()[:_HASH_LETTERS]}

    data = to_json(manifest)
    return leaves({key: value for key, value in data.items() if key not in _ADDED}, "")


def to_json(value: Any) -> Any:
    """Turn a dataclass into plain data."""
    return dataclasses.asdict(value)


T = typing.TypeVar("T")


def from_json(kind: type[T], data: Any, where: str = "") -> T:
    """Build a dataclass from plain data; a field that does not fit is an `InputError` naming it."""
    return _read(kind, data, where)  # type: ignore[no-any-return]


def _read(kind: Any, data: Any, where: str) -> Any:
    if dataclasses.is_dataclass(kind):
        return _read_dataclass(kind, data, where)
    origin, arguments = get_origin(kind), get_args(kind)
    if origin is typing.Union or origin is types.UnionType:
        if data is None and type(None) in arguments:
            return None
        return _read(next(one for one in arguments if one is not type(None)), data, where)
    if origin is Literal:
        if data not in arguments:
            raise _invalid(where)
        return data
    if origin is tuple:
        if not isinstance(data, list):
            raise _invalid(where)
        if arguments[-1] is Ellipsis:
            return tuple(_read(arguments[0], value, where) for value in data)
        if len(data) != len(arguments):
            raise _invalid(where)
        return tuple(_read(one, value, where) for one, value in zip(arguments, data, strict=True))
    if origin is dict:
        if not isinstance(data, dict) or not all(isinstance(key, str) for key in data):
            raise _invalid(where)
        return {key: _read(arguments[1], value, where) for key, value in data.items()}
    if kind is Any:
        return data
    if kind is float and type(data) is int and abs(data) < 2**53:
        return float(data)
    if type(data) is not kind:
        raise _invalid(where)
    return data


def _read_dataclass(kind: Any, data: Any, where: str) -> Any:
    if not isinstance(data, dict):
        raise _invalid(where or "config")
    hints = get_type_hints(kind)
    fields = {one.name: one for one in dataclasses.fields(kind) if one.init}
    prefix = f"{where}." if where else ""
    for name in data:
        if name not in fields:
            raise InputError(f"unknown '{prefix}{name}'")
    for name in fields:
        if name not in data:
            raise InputError(f"missing '{prefix}{name}'")
    values = {name: _read(hints[name], data[name], prefix + name) for name in fields}
    try:
        return kind(**values)
    except (InputError, OverflowError) as error:
        if str(error).startswith("'"):
            raise
        raise InputError(f"invalid '{where or 'config'}': {error}") from error


def _invalid(where: str) -> InputError:
    return InputError(f"invalid '{where}'")


def read_manifest(data: Any, folder: str) -> Manifest:
    """Build the manifest of a run folder, or say which field is wrong."""
    if isinstance(data, dict) and data.get("format") != FORMAT and "format" in data:
        raise RunError(
            f"'{folder}' was written by another version of maskov (format "
            f"{str(data['format'])[:20]}), with options that this one does not have."
        )
    try:
        return from_json(Manifest, data)
    except InputError as error:
        raise RunError(
            f"the manifest of '{folder}' is damaged: {str(error).rstrip('.')}."
        ) from error
