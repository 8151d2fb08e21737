"""The arguments of a call, and what those of `maskov.sample` mean: a kernel and a schedule.

Defaults are filled in, numbers are plain, and values of another type are refused. What needs no
model to be refused is refused here.
"""

from __future__ import annotations

import collections.abc
import inspect
import os
import re
import types
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from numbers import Integral, Real
from pathlib import Path
from types import SimpleNamespace
from typing import Annotated, Any, Union, get_args, get_origin

import torch

from maskov.config import (
    BURN_IN,
    DEFAULT_DRAWS,
    DEFAULT_ENERGY,
    DEFAULT_EPOCHS,
    DEFAULT_MOVES,
    MOST_UNTIL_CONVERGED,
    LinearSchedule,
    ModelSource,
    Schedule,
    UntilConverged,
    check_name,
)
from maskov.constraints import (
    AllowedTokens,
    AvoidWords,
    Constraint,
    ContainsWords,
    MaxChanges,
    MaxEdits,
)
from maskov.energies import Energy, as_energy, parse_energy
from maskov.energies.networks import Loading
from maskov.energies.ordered import Ordered
from maskov.energies.stages import parse_delayed
from maskov.errors import InputError, refuse
from maskov.fasta import Record
from maskov.kernels import (
    DelayedAcceptance,
    Kernel,
    Metropolis,
    Population,
)
from maskov.kernels.base import with_leaves
from maskov.kernels.registry import (
    DEFAULT_SIZES,
    KERNELS,
    Moves,
    as_kernel,
    change_lengths,
    energy_name,
    energy_text,
    listed_moves,
    named_kernel,
    parse_moves,
)
from maskov.models import MaskedModel, choose_device, load
from maskov.moves import MaskedConditional, Move, Site, Span
from maskov.options import findable, hints_of, parse_model, words_of
from maskov.parts import is_import_path, load_part, parse_call
from maskov.random import CounterRng
from maskov.runs.manifest import resizes, usual_burn_in
from maskov.shipped import default_judge
from maskov.starts import STARTS
from maskov.texts import Mask
from maskov.workers import Workers

# What annotations name that is not imported where they stand.
_KNOWN = {
    "Energy": Energy,
    "Kernel": Kernel,
    "Mask": Mask,
    "MaskedConditional": MaskedConditional,
    "MaskedModel": MaskedModel,
    "Move": Move,
    "Moves": Moves,
    "Record": Record,
    "Workers": Workers,
}
_UNIONS = (Union, types.UnionType)
# What is as good as the kind that an annotation names.
_AS_GOOD: dict[Any, Any] = {
    int: Integral, float: Real, Path: str | os.PathLike, tuple: tuple | list,
}  # fmt: skip


@dataclass(frozen=True)
class GivenModel:
    """A model as it was given: loaded already, or where to load it from, and its device."""

    source: ModelSource | None
    device: torch.device
    loaded: MaskedModel | None = None

    def load(self, precision: str = "float32") -> MaskedModel:
        """Return the model."""
        return self.loaded or load(**vars(self.source), device=self.device, precision=precision)

    def loading(self, budget: int | None = None) -> Loading:
        """Return where and how energies load their models: as this one, by names that last."""
        trust = self.source is not None and self.source.trust_remote_code
        return Loading(self.device, trust, find=findable, budget=budget)


class Arguments(SimpleNamespace):
    """The value of each keyword of a function; their types are those of its signature."""

    def given(self, *names: str) -> list[str]:
        """Return which of these are not as the function has them by default."""
        own = self._defaults
        return [name for name in names if name in own and getattr(self, name) != own[name]]

    def refuse_both(self, other: str, *names: str) -> None:
        """Refuse options that an object says already."""
        for name in self.given(*names):
            raise InputError(
                f"'{name}' and {other} say the same thing: drop '{name}', or give options alone."
            )

    def refuse(self, why: str, *names: str) -> None:
        """Refuse options that say nothing here; {} in the reason is the option."""
        for name in self.given(*names):
            flag = "start-text" if name == "texts" else name.replace("_", "-")
            raise InputError(why.format(f"--{flag}"))

    def given_model(self) -> GivenModel:
        """Return the model; one that is loaded has the options of loading itself."""
        source = getattr(self, "source", None)
        if isinstance(self.model, MaskedModel):
            self.refuse_both("a model that is loaded", "device", "precision", "trust_remote_code")
            return GivenModel(source, self.model.device, self.model)
        source = source or parse_model(self.model, getattr(self, "trust_remote_code", False))
        return GivenModel(source, choose_device(self.device))


def arguments_of(
    function: Callable[..., Any], given: Mapping[str, Any], *kinds_of_its_own: type
) -> Arguments:
    """Return the arguments of a call; a value of the wrong type is refused in one sentence."""
    signature = inspect.signature(function)
    kinds = hints_of(function, _KNOWN | {one.__name__: one for one in kinds_of_its_own})
    defaults = {name: one.default for name, one in signature.parameters.items()}
    values = {name: _checked(name, value, kinds[name]) for name, value in given.items()}
    return Arguments(_defaults=defaults, **defaults | values)


def _checked(name: str, value: Any, kind: Any) -> Any:
    """Return a value as the option has it: numbers plain, such as 1.0 for 1, and paths as paths."""
    kind = get_args(kind)[0] if get_origin(kind) is Annotated else kind
    if not fits(value, kind):
        advice = (
            f": write {name}=[{_shown(value, 30)}]"
            if name in ("texts", "templates") and isinstance(value, str)
            else ""
        )
        if name == "model":
            advice = ": load a network with `maskov.load(network, tokenizer=tokenizer)`"
        raise InputError(
            f"'{name}' takes {_written(kind)}, not {_shown(value)} ({type(value).__name__})"
            f"{advice}."
        )
    parts = get_args(kind) if get_origin(kind) in _UNIONS else (kind,)
    for plain in (int, float, Path):
        known = plain in parts and not (plain is Path and str in parts)
        if known and not isinstance(value, bool) and isinstance(value, _AS_GOOD[plain]):
            return plain(value)
    return value


def fits(value: Any, kind: Any) -> bool:
    """Whether a value is of a kind, written as a type."""
    origin, parts = get_origin(kind), get_args(kind)
    if origin in _UNIONS:
        return any(fits(value, part) for part in parts)
    if kind is Any or isinstance(value, bool):  # which is a number to Python
        return kind in (Any, bool)
    plain = origin or kind
    text = origin is not None and isinstance(value, str | bytes)  # a sequence to Python
    if text or not isinstance(value, _AS_GOOD.get(plain, plain)):
        return False
    if origin is tuple:
        return len(value) == len(parts) and all(map(fits, value, parts))
    if origin is collections.abc.Sequence:
        return all(fits(one, parts[0]) for one in value)
    if origin is collections.abc.Mapping:
        return all(fits(key, parts[0]) and fits(one, parts[1]) for key, one in value.items())
    return True


def _written(kind: Any) -> str:
    """Write a type as its annotation does, without modules."""
    if get_origin(kind) in _UNIONS:
        return " | ".join(map(_written, get_args(kind)))
    return re.sub(r"[\w.]+\.(?=\w)", "", inspect.formatannotation(kind)).replace("NoneType", "None")


def _shown(value: Any, most: int = 40) -> str:
    text = " ".join(repr(value).split())
    return text if len(text) <= most else f"{text[: most - 4]} ..."


# What the arguments of `maskov.sample` mean.

# Options that an object has when it is given.
_OF_MOVES = ("proposal", "contains", "avoid", "allow", "max_changes")
OF_KERNELS = ("energy", "moves", "delayed", *_OF_MOVES)
OF_SCHEDULES = ("epochs", "burn_in", "burn_in_energy", "target_temperature", "force_accept")


def with_defaults(asked: Arguments) -> None:
    """Set target and moves of plain sentences: nothing says how to sample or where to start."""
    given = asked.given(
        "energy", "moves", "delayed", "particles", "target_temperature", "force_accept",
        "burn_in_energy", "length_prior", "texts", "templates",
    )  # fmt: skip
    given += [name for name in asked.given(*_OF_MOVES) if getattr(asked, name)]
    conditional = getattr(asked.model, "sources", None) is not None
    if given or conditional or asked.kernel != "mh" or asked.schedule is not None:
        return
    if asked.epochs is None and asked.until is None and asked.passes is None:
        asked.epochs = DEFAULT_DRAWS
    if asked.burn_in is None and asked.epochs is not None:
        asked.burn_in = min(BURN_IN, asked.epochs // 2)
    asked.energy, asked.moves = DEFAULT_ENERGY, DEFAULT_MOVES


def workers_of(asked: Arguments) -> Workers:
    """Return who does the work."""
    threads, given = getattr(asked, "threads", None), asked.workers
    workers = given if isinstance(given, Workers) else Workers(given)
    return workers if threads is None else replace(workers, threads=threads)


def stopping_rule(until: str | None) -> UntilConverged | None:
    """Read when a run ends early: `converged`, or `converged:400` for 400 effective draws."""
    if until is None:
        return None
    word, colon, draws = until.partition(":")
    refuse(
        (
            word != "converged" or (colon and not (draws.isdecimal() and int(draws))),
            f"a run can continue until 'converged', or 'converged:400' for 400 effective draws, "
            f"not until '{until}' (--until).",
        )
    )
    return UntilConverged(int(draws)) if colon else UntilConverged()


def refuse_unused(asked: Arguments, *names: str) -> None:
    """Refuse options of proposals if all moves are objects, which have their own."""
    moves = [] if asked.moves is None else listed_moves(asked.moves)
    if moves and not any(isinstance(move, str) for move, _ in moves):
        asked.refuse_both("moves that are objects", *(names or _OF_MOVES))


def check_values(asked: Arguments) -> None:
    """Refuse values that no run can have."""
    CounterRng(asked.seed)  # which refuses what is not a seed
    check_name(asked.name)
    check_checkpoints(asked.checkpoint_every)
    refuse(
        (asked.chains < 1, f"a run has at least one chain, not {asked.chains}."),
        (
            asked.start not in STARTS,
            f"unknown start '{asked.start}'; use one of {', '.join(STARTS)}, or --start-text for a "
            "file.",
        ),
        (
            asked.thin < 0,
            f"--thin counts epochs: 0 (only the last) or more, not {asked.thin}.",
        ),
        *(
            (value is not None and value < 1, f"--{name} must be at least 1, not {value}.")
            for name, value in (
                ("token-budget", asked.token_budget),
                ("resident", asked.resident),
                ("passes", asked.passes),
            )
        ),
        (
            asked.trace not in ("every", "kept"),
            f"energies are traced in 'every' epoch or where 'kept', not '{asked.trace}'.",
        ),
        (
            asked.passes is not None and (asked.epochs is not None or asked.until is not None),
            "a run ends after --passes, or after --epochs or --until, not both: give one.",
        ),
    )


def check_checkpoints(seconds: float) -> None:
    """Refuse a time between checkpoints that is none."""
    refuse((not seconds >= 0, "the time between checkpoints must be 0 seconds or more."))


def check_start(asked: Arguments) -> None:
    """Refuse what cannot be asked of chains that start from texts, or do not."""
    started, filled = asked.texts is not None, asked.templates is not None
    sized, frozen = asked.length is not None, asked.freeze is not None
    refuse(
        (
            started
            and sized
            and not (isinstance(asked.kernel, Kernel) or change_lengths(asked.moves)),
            "the texts of --start-text have their own lengths: drop --length.",
        ),
        (
            started and asked.start != "masked",
            "chains start from --start-text or from --start, not both.",
        ),
        (
            started and asked.kernel == "mask-predict",
            "mask-predict starts from all masked: drop --start-text.",
        ),
        (
            frozen and not started,
            "--freeze names tokens of texts to start from: give --start-text.",
        ),
        (filled and sized, "templates have their own lengths: drop --length."),
        (
            filled and started and frozen,
            "templates say what is frozen in texts: drop --freeze.",
        ),
        (
            asked.max_changes is not None and not started,
            "a template changes only in its blanks: drop --max-changes."
            if filled
            else "--max-changes counts changes to a text: give one with --start-text.",
        ),
    )


def constraints_of(asked: Arguments, resizing: bool) -> tuple[Constraint, ...]:
    """Return what all samples must meet; `resizing` says that lengths change."""
    both = ((ContainsWords, asked.contains), (AvoidWords, asked.avoid))
    found: list[Constraint] = [kind(words) for kind, one in both if (words := words_of(one))]
    if asked.allow is not None:
        found.append(AllowedTokens.parse(asked.allow))
    most = getattr(asked, "max_changes", None)  # which `infill` has not
    if most is not None:
        found.append((MaxEdits if resizing else MaxChanges)(most))
    return tuple(found)


def energy_of(given: Any, loading: Loading) -> Energy:
    """Return an energy that is given as text, as an object or as a function."""
    return (
        parse_energy(given, default_judge(), loading)
        if isinstance(given, str)
        else as_energy(given)
    )


def kernel_of(asked: Arguments, loading: Loading) -> tuple[Kernel, LinearSchedule | None]:
    """Return the kernel that the options mean and how its blocks shrink; refuse what it ignores."""
    name, moves = asked.kernel, asked.moves
    if is_import_path(name):
        asked.refuse("a custom kernel has its own options: drop {}.", *OF_KERNELS)
        path, arguments, options = parse_call(name)
        return as_kernel(load_part(path, arguments, options, trust=True)), None
    refuse(
        (
            name not in KERNELS,
            f"unknown kernel '{name}'; use one of {', '.join(KERNELS)}, or a custom one such as "
            "my_module:MyKernel.",
        )
    )
    early = DelayedAcceptance() if asked.delayed is None else parse_delayed(asked.delayed)
    constraints = constraints_of(asked, change_lengths(moves))
    proposal = asked.proposal or MaskedConditional()
    proposal = replace(proposal, constraints=(*proposal.constraints, *constraints))
    if name != "mh":
        asked.refuse(
            f"'{name}' has no target and accepts everything: drop {{}}, or use --kernel mh (E_raw "
            "and E_norm are traced in any case).",
            "target_temperature", "force_accept", "delayed", "energy",
        )  # fmt: skip
    if name == "mask-predict":
        asked.refuse(
            "mask-predict starts from all masked and, for --epochs iterations, takes the most "
            "probable token where it is least sure: drop {}.",
            "moves", "proposal", "start", "passes",
        )  # fmt: skip
        kernel, block = named_kernel(name, iterations=_most_epochs(asked)), None
    elif name == "gibbs":
        chosen, _, block = parse_moves("site" if moves is None else moves, proposal)
        refuse(
            (
                len(chosen) != 1 or not isinstance(chosen[0], Site),
                "--kernel gibbs moves sites: write --moves 'site(...)', or use mh.",
            )
        )
        kernel = named_kernel(name, moves=chosen)
    else:
        # A word that must be there moves only with its neighbours.
        usual = "span" if asked.particles is None or asked.contains else "site"
        chosen, weights, block = parse_moves(usual if moves is None else moves, proposal)
        refuse(
            (
                asked.proposal is not None
                and all(move.conditional is not proposal for move in chosen),
                "a custom move has its own options: drop --proposal.",
            )
        )
        energy = energy_of("raw" if asked.energy is None else asked.energy, loading)
        kernel = named_kernel(name, energy, chosen, weights, delayed=early)
    refuse(
        (
            constraints and kernel.conditional.constraints != proposal.constraints,
            f"'{name}' with these moves does not keep constraints: use mh with site, span, "
            "insert-delete or resize, or drop --contains, --avoid, --allow and --max-changes.",
        )
    )
    return kernel, block


def draws(asked: Arguments) -> bool:
    """Whether nothing speaks against independent draws, of an energy that has them."""
    given = asked.given(
        "moves", "particles", "target_temperature", "force_accept", "delayed",
        "texts", "freeze", "passes", "until", *_OF_MOVES,
    )  # fmt: skip
    return asked.kernel == "mh" and asked.schedule is None and not given


def population_of(asked: Arguments, kernel: Kernel) -> Population:
    """Return the kernel of populations; what they have no use for is refused."""
    asked.refuse(
        "populations have no use for {}: drop it, or --particles.",
        "chains", "epochs", "schedule", "until", "burn_in", "burn_in_energy", "thin",
        "force_accept", "start", "resident", "length_prior",
    )  # fmt: skip
    temperature = asked.target_temperature
    refuse(
        (
            asked.populations < 1,
            f"--populations must be 1 or more, not {asked.populations}.",
        ),
        (
            isinstance(temperature, LinearSchedule),
            "the target of populations is fixed: give one --target-temperature.",
        ),
        (
            resizes(kernel),
            "particles keep their lengths: drop the moves that change them, and give a range, as "
            "in --length 8:12, or blanks of known length.",
        ),
    )
    asked.chains, asked.burn_in = asked.particles * asked.populations, 0
    asked.target_temperature = 1.0  # the path has it
    if temperature != 1:
        kernel = kernel.at(0, temperature, None)
    found = Population(kernel, Ordered(), asked.particles)
    return found if asked.populations > 1 else found.even  # one has none to be compared with


def check_population(asked: Arguments, kernel: Population) -> None:
    """Refuse a population object without its path, or a run that does not fit it."""
    epochs = _most_epochs(asked) if asked.schedule is None else asked.schedule.epochs
    refuse(
        (
            not kernel.path or epochs != len(kernel.path),
            f"a run of a population has an epoch for each point of its path: {len(kernel.path)}, "
            f"not {epochs} (or give `particles` instead of the object, which finds a path).",
        ),
        (
            asked.chains % kernel.particles or asked.resident is not None,
            f"chains are the particles of whole populations: a multiple of {kernel.particles}, "
            "without `resident`.",
        ),
    )


def with_room(kernel: Kernel, asked: Arguments, model: MaskedModel) -> Kernel:
    """Return the kernel with spans that move every word of --contains at once, unless sized."""
    words, moves = words_of(asked.contains), listed_moves(asked.moves or "span")
    if not words or "span" not in [str(move).partition(":")[0].strip() for move, _ in moves]:
        return kernel
    sizes = tuple(range(1, ContainsWords(words).longest(model) + 2))

    def widened(part: Kernel) -> Kernel:
        if not isinstance(part, Metropolis) or not isinstance(part.move, Span):
            return part
        return replace(part, move=replace(part.move, sizes=sizes))

    return with_leaves(kernel, widened) if len(sizes) > len(DEFAULT_SIZES) else kernel


def _most_epochs(asked: Arguments) -> int:
    """Return the epochs of the run, or the most there may be."""
    if asked.epochs is not None:
        return int(asked.epochs)
    if asked.passes is not None:  # which decide, once the model is there
        return int(max(asked.burn_in or 0, asked.force_accept, DEFAULT_EPOCHS)) + 1
    return DEFAULT_EPOCHS if asked.until is None else MOST_UNTIL_CONVERGED


def schedule_of(
    asked: Arguments, kernel: Kernel, block: LinearSchedule | None, loading: Loading
) -> tuple[Schedule, dict[str, Energy]]:
    """Return the schedule, and the energy of its burn-in by its name, if that is known."""
    if asked.schedule is not None:
        return asked.schedule, {}
    falling = asked.target_temperature
    if not isinstance(falling, LinearSchedule):
        refuse((not falling > 0, f"the target temperature must be above 0, not {falling:g}."))
        # Where it is the kernel's own, 1, nothing is scheduled.
        falling = None if falling == 1 else LinearSchedule(falling, 0.0, falling)
    epochs, burn_in, first, name = _most_epochs(asked), asked.burn_in, None, None
    if burn_in is None:
        moving = falling is not None and falling.rate != 0
        special = moving or asked.given("force_accept", "until", "moves")
        burn_in = 0 if asked.kernel != "mh" or special else min(BURN_IN, epochs // 2)
        if burn_in and asked.burn_in_energy is None:
            first = usual_burn_in(kernel)
            # A part that nobody can build again by name has no burn-in energy.
            name = None if first is None else energy_text(first)
    if asked.burn_in_energy not in (None, "same"):
        first = energy_of(asked.burn_in_energy, loading)
        name = energy_name(first)
    known = {} if name is None or first is None else {name: first}
    return Schedule(epochs, burn_in, falling, block, asked.force_accept, name), known


def default_kernel(
    energy: Energy | str = "raw", constraints: Sequence[Constraint] = ()
) -> Metropolis:
    """Return the kernel that needed the fewest passes in results/mixing, for an energy."""
    move = Span(MaskedConditional(constraints=tuple(constraints)), DEFAULT_SIZES)
    return Metropolis(as_energy(energy), move)
