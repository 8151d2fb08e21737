"""Kernels by name, as plain data and back: for run folders, workers and the command line.

A built-in part is its registered name and its fields. A custom part is its import path
and the arguments it was made with (`maskov.parts`).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields, is_dataclass, replace
from inspect import signature
from typing import Any

from maskov.config import LinearSchedule
from maskov.constraints import (
    AllowedTokens,
    AvoidWords,
    ContainsWords,
    MaxChanges,
    MaxEdits,
)
from maskov.energies import Energy, as_energy, parse_energy
from maskov.energies.base import weighted
from maskov.energies.networks import Loading
from maskov.energies.ordered import Ordered
from maskov.energies.stages import DelayedAcceptance
from maskov.errors import InputError, refuse, required
from maskov.kernels.base import Kernel, Mixture
from maskov.kernels.metropolis import Gibbs, Metropolis, mask_predict
from maskov.kernels.population import Draws, Population, Redraw
from maskov.moves import (
    INSERT_DELETE,
    WINDOWS,
    LowestConfidence,
    MaskedConditional,
    Move,
    Resize,
    Site,
    Span,
    Sweep,
)
from maskov.parts import (
    importable,
    is_built_in,
    is_import_path,
    is_plain,
    load_part,
    not_reproducible,
    parse_call,
    part_text,
    recipe_of,
    split_outside,
)

KERNELS = ("mh", "gibbs", "mask-predict")
# Sizes of the windows of spans by default: single sites, two and three neighbours.
DEFAULT_SIZES = (1, 2, 3)

_PARTS: dict[str, type[Any]] = {
    "avoid": AvoidWords,
    "contains": ContainsWords,
    "allowed": AllowedTokens,
    "max-changes": MaxChanges,
    "max-edits": MaxEdits,
    "mh": Metropolis,
    "gibbs": Gibbs,
    "mixture": Mixture,
    "draws": Draws,
    "population": Population,
    "site": Site,
    "span": Span,
    "resize": Resize,
    "redraw": Redraw,
    "conditional": MaskedConditional,
    "sweep": Sweep,
    "lowest-confidence": LowestConfidence,
    "delayed": DelayedAcceptance,
}
# The fields of parts that hold an energy.
_ENERGIES = ("energy", "start")
_NAMES = {kind: name for name, kind in _PARTS.items()}


def to_data(part: Any) -> Any:
    """Return a part as plain data; raise if it could not be built again."""
    if isinstance(part, Energy):
        return "+".join(weighted(weight, _energy_text(one)) for weight, one in part.parts)
    # Types are compared exactly: a subclass may do anything, and would be rebuilt as its parent.
    if type(part) in _NAMES:
        values = {f.name: to_data(getattr(part, f.name)) for f in fields(part)}
        return {"part": _NAMES[type(part)], **values}
    if isinstance(part, tuple):
        return [to_data(value) for value in part]
    own = isinstance(part, Kernel | Move) or is_dataclass(part)
    return _own_data(part) if own else part


def _energy_text(part: Energy) -> str:
    """Return how to build a part of an energy again, whatever the part calls itself."""
    inner = getattr(part, "function", part)
    if is_built_in(inner):
        return str(part)
    refuse((recipe_of(inner) is None, not_reproducible(inner)))
    return part_text(inner)


def energy_text(energy: Energy) -> str | None:
    """Return the text that builds an energy again, if there is one."""
    try:
        return str(to_data(energy))
    except InputError:
        return None


def energy_name(energy: Energy) -> str:
    """Return the text that builds an energy again; what it calls itself if nothing does."""
    return energy_text(energy) or str(energy)


def _own_data(part: Any) -> dict[str, Any]:
    """Return a custom part as plain data; its fields may be built-in parts."""
    made = recipe_of(part)
    if made is None and is_dataclass(part) and importable(part):
        values = {f.name: getattr(part, f.name) for f in fields(part) if f.init}
        options = {
            key: {"part": "energy", "text": to_data(value)}
            if isinstance(value, Energy)
            else to_data(value)
            for key, value in values.items()
        }
        made = (f"{type(part).__module__}:{type(part).__qualname__}", [], options)
    plain = made if made is not None and is_plain(made[2]) else None
    name, arguments, options = required(plain, not_reproducible(part))
    return {"part": name, "arguments": arguments, "options": options}


def imported_parts(data: Any) -> list[str]:
    """Return the import paths that plain data names."""
    if isinstance(data, dict):
        name = data.get("part")
        own = [name] if isinstance(name, str) and is_import_path(name) else []
        energy = data.get("text" if name == "energy" else "energy")
        if isinstance(energy, str):
            for term in split_outside(energy, "+"):
                path = split_outside(term, "*")[-1].strip().partition("(")[0]
                own += [path] if is_import_path(path) else []
        return own + [path for value in data.values() for path in imported_parts(value)]
    inner = data if isinstance(data, list) else []
    return [path for value in inner for path in imported_parts(value)]


def kernel_from_data(
    data: dict[str, Any],
    loading: Loading | None = None,
    trust_parts: bool = False,
    known: Mapping[str, Energy] | None = None,
) -> Kernel:
    """Build the kernel that `to_data` described; own parts are imported only if they are trusted.

    Energies that are `known` by their names are taken as they are; of others, equal ones load their
    models once.
    """
    energies = dict(known or {})

    def energy(text: str) -> Energy:
        if text not in energies:
            energies[text] = parse_energy(text, loading=loading, trust_parts=trust_parts)
        return energies[text]

    def built(part: Any) -> Any:
        if isinstance(part, list):
            return tuple(map(built, part))
        if not isinstance(part, dict) or "part" not in part:
            return part
        name, rest = part["part"], {key: value for key, value in part.items() if key != "part"}
        if is_import_path(name):
            options = {key: built(value) for key, value in rest["options"].items()}
            return load_part(name, rest["arguments"], options, trust_parts)
        if name == "energy":
            return energy(rest["text"])
        refuse((name not in _PARTS, f"unknown part '{name}'."))
        values = {
            key: energy(value) if key in _ENERGIES else built(value) for key, value in rest.items()
        }
        return _PARTS[name](**values)

    return as_kernel(built(data))


def as_kernel(part: object) -> Kernel:
    """Return a kernel as it is; refuse anything else."""
    if isinstance(part, Kernel):
        return part
    raise InputError(f"'{type(part).__qualname__}' is not a kernel: make it a subclass of Kernel.")


def kernel_name(kernel: Kernel) -> str:
    """Return the short name of a kernel: mh, gibbs, mask-predict, or what its class is called."""
    if isinstance(kernel, Population):
        return kernel_name(kernel.kernel)
    if type(kernel) is Gibbs and kernel.fills_blanks:
        return "mask-predict"
    if type(kernel) is Mixture and all(type(part) is Metropolis for part in kernel.kernels):
        return "mh"
    return _NAMES.get(type(kernel), type(kernel).__name__)


def named_moves(conditional: MaskedConditional) -> dict[str, Callable[..., Move]]:
    """Return how the moves that have a name are made from their arguments."""

    def site(order: str = "random", block: int = 1, block_anneal: float = 0.0) -> Move:
        refuse(
            (
                not isinstance(block, int) or not isinstance(block_anneal, int | float),
                "the block of a site and its fall are numbers: site(block=4).",
            )
        )
        return Site(conditional, Sweep(order, block))

    def span(sizes: int | str | tuple[int, ...] = DEFAULT_SIZES) -> Move:
        if not isinstance(sizes, tuple):
            first, colon, last = str(sizes).partition(":")
            try:
                sizes = tuple(range(int(first), int(last if colon else first) + 1))
            except ValueError:
                raise InputError(
                    f"the sizes of spans are a number or a range, not '{sizes}': write span(2) or "
                    "span(1:3)."
                ) from None
        return Span(conditional, sizes)

    def redraw(*arguments: Any, **options: Any) -> Move:
        return Redraw(replace(Ordered(*arguments, **options), constraints=conditional.constraints))

    return {
        "site": site,
        "span": span,
        "redraw": redraw,
        "insert-delete": lambda: Resize(conditional, INSERT_DELETE),
        "resize": lambda: Resize(conditional, WINDOWS),
    }


# Moves as text such as `site:1,span:2`, an object, or a list of both, alone or with a weight.
Moves = str | Move | Sequence[str | Move | tuple[str | Move, float]]


def listed_moves(given: Moves) -> list[tuple[str | Move, float]]:
    """Return each move, as text or an object, and the weight written with it."""
    given = (given,) if isinstance(given, Move) else given
    entries = split_outside(given, ",") if isinstance(given, str) else given
    pairs = ((one, 1.0) if isinstance(one, str | Move) else one for one in entries)
    return [(move, float(weight)) for move, weight in pairs]


def change_lengths(given: Moves | None) -> bool:
    """Whether some move changes the length; those that are texts are not built."""
    entries = [move for move, _ in listed_moves(given or ())]
    names = {re.split("[(:]", one)[0].strip() for one in entries if isinstance(one, str)}
    return bool(names & {"insert-delete", "resize"}) or any(
        isinstance(one, Resize) for one in entries
    )


def parse_moves(
    given: Moves, conditional: MaskedConditional | None = None
) -> tuple[tuple[Move, ...], tuple[float, ...], LinearSchedule | None]:
    """Read moves with weights, such as `site(block=2):1,span(1:3):2` or `my_module:MyMove(3)`.

    Those that have a name propose by `conditional`; objects are taken as they are. Returns also how
    blocks shrink, if a move says so: `site(block=4, block_anneal=0.2)`.
    """
    known = named_moves(conditional or MaskedConditional())
    moves, weights, block = list[Move](), list[float](), None
    for entry, weight in listed_moves(given):
        move: Any = entry
        if isinstance(entry, str):
            call = entry.strip()
            head, colon, last = call.rpartition(":")
            if colon and last.replace(".", "", 1).isdecimal():
                call, weight = head, float(last)
            name, arguments, options = parse_call(call)
            own = is_import_path(name)
            refuse(
                (
                    not own and name not in known,
                    f"unknown move '{call}'; use {', '.join(known)}, or a custom one such as "
                    "my_module:MyMove.",
                )
            )
            move = (
                load_part(name, arguments, options, trust=True)
                if own
                else _made(call, known[name], arguments, options)
            )
            if fall := options.get("block_anneal"):
                block = LinearSchedule(float(move.positions.block), fall, 1.0)
        refuse(
            (
                not isinstance(move, Move),
                f"'{entry}' is not a move: make it a subclass of Move.",
            ),
            (
                not weight > 0,
                f"the weight of the move '{entry}' must be above 0.",
            ),
        )
        moves.append(move)
        weights.append(weight)
    return tuple(moves), tuple(weights), block


def _made(
    call: str, make: Callable[..., Move], arguments: list[Any], options: dict[str, Any]
) -> Move:
    try:
        signature(make).bind(*arguments, **options)
    except TypeError as error:
        known = ", ".join(signature(make).parameters) or "no arguments"
        raise InputError(f"the move '{call}' takes {known} ({error}).") from None
    return make(*arguments, **options)


def named_kernel(
    name: str,
    energy: Energy | str = "raw",
    moves: tuple[Move, ...] = (Site(),),
    weights: tuple[float, ...] = (),
    iterations: int = 1,
    **options: Any,
) -> Kernel:
    """Return the kernel that a name stands for, wherever names are given.

    `mh` is Metropolis-Hastings with one move, or a mixture of several by their weights; the further
    `options` are its own. `iterations` are those of mask-predict.
    """
    if name == "mask-predict":
        return mask_predict(iterations)
    if name == "gibbs":
        return Gibbs(*moves)
    refuse((name != "mh", f"unknown kernel '{name}'; use one of {', '.join(KERNELS)}."))
    kernels = tuple(Metropolis(as_energy(energy), move, **options) for move in moves)
    return kernels[0] if len(kernels) == 1 else Mixture(kernels, weights)
