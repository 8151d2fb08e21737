"""Options as keywords: wrong ones are answered in one sentence, and objects may stand for text."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, fields
from difflib import get_close_matches
from functools import cache, wraps
from numbers import Integral
from pathlib import Path
from typing import Annotated, Any, ParamSpec, TypeVar, get_args, get_origin, get_type_hints

from maskov.api.kinds import TextFunction, as_plain, check_kind
from maskov.energies import Energy, as_energy
from maskov.errors import InputError
from maskov.kernels.registry import listed_moves
from maskov.moves import Move

# Options that a move has when it is given as an object.
OF_MOVES = (
    "span", "order", "block", "temperature", "top_p", "top_k", "epsilon", "contains", "avoid",
    "allow", "max_changes",
)  # fmt: skip

P = ParamSpec("P")
R = TypeVar("R")
Chosen = TypeVar("Chosen")

_ENERGY = str | Energy | TextFunction
# What Python takes in addition to the text that a command line would have.
_WIDER: dict[str, Any] = {
    "energy": _ENERGY | None,
    "burn_in_energy": str | Energy | None,
    "toward": _ENERGY,
    "fluency": _ENERGY,
    "span": str | int | tuple[int, int] | None,
    "moves": str | Move | Sequence[str | Move | tuple[str | Move, float]] | None,
    "ladder": str | Sequence[float] | None,
    "delayed": str | int | Sequence[int] | None,
    "contains": str | Sequence[str] | None,
    "avoid": str | Sequence[str] | None,
    "length_prior": str | Mapping[int, float] | None,
    "tokenizer": Path | None,
    "twin": Any,
}
# Options that are lists: what each entry is.
_LISTED: dict[str, Callable[[Any], Any]] = {
    "ladder": float,
    "delayed": int,
    "contains": str,
    "avoid": str,
}
# Names that somebody may try, and those that are meant.
_MEANT = {
    "frozen": "freeze",
    "start_text": "texts",
    "budget": "token_budget",
    "quiet": "progress",
    "max_mutations": "max_changes",
}


def takes_options(options: type[Any]) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Let a function take each option of a dataclass as a keyword, in its `**options`.

    What it is given is checked before it is called: an unknown keyword, or a value of the wrong
    type, is an `InputError` of one sentence.
    """

    def decorate(function: Callable[P, R]) -> Callable[P, R]:
        signature = inspect.signature(function)
        own = [p for p in signature.parameters.values() if p.kind is not p.VAR_KEYWORD]
        more = [
            inspect.Parameter(
                one.name,
                inspect.Parameter.KEYWORD_ONLY,
                default=inspect.Parameter.empty if one.default is MISSING else one.default,
            )
            for one in fields(options)
            if one.name not in signature.parameters
        ]
        known = [parameter.name for parameter in (*own, *more)]
        kinds = cache(lambda: get_type_hints(inspect.unwrap(function)))

        @wraps(function)
        def call(*arguments: P.args, **named: P.kwargs) -> R:
            for name in named:
                if name not in known:
                    raise _unknown(function.__name__, name, known)
            given = signature.bind(*arguments, **named).arguments
            for name in given:
                if name in kinds() and name != "options":
                    check_kind(name, given[name], kinds()[name])
            for name, value in given.get("options", {}).items():
                check_kind(name, value, kind_of(options, name))
            return function(*arguments, **named)

        whole = signature.replace(parameters=[*own, *more])
        call.__signature__ = whole  # type: ignore[attr-defined]
        return call

    return decorate


def _unknown(function: str, name: str, known: Sequence[str]) -> InputError:
    near = get_close_matches(name, known, 1, cutoff=0.6)
    meant = _MEANT[name] if _MEANT.get(name) in known else near[0] if near else None
    if meant is None:
        return InputError(
            f"{function}() takes no '{name}'; help(maskov.{function}) lists what it takes."
        )
    return InputError(f"{function}() takes no '{name}'; did you mean '{meant}'?")


def kind_of(options: Any, name: str) -> Any:
    """Return what kinds of values Python takes for an option."""
    if name in _WIDER:
        return _WIDER[name]
    hint = _hints(options)[name]
    return get_args(hint)[0] if get_origin(hint) is Annotated else hint


@cache
def _hints(options: Any) -> dict[str, Any]:
    return get_type_hints(options, include_extras=True)


def read_options(kind: type[Chosen], given: Mapping[str, Any]) -> Chosen:
    """Build the options from keywords."""
    values = {name: as_option(kind, name, value) for name, value in given.items()}
    return kind(**values)


def as_option(options: type[Any], name: str, value: Any) -> Any:
    """Return a value as the option has it."""
    if value is None:
        return None
    if name in ("energy", "toward", "fluency"):
        return value if isinstance(value, str) else as_energy(value)
    if name == "span":
        return as_range(value)
    if name == "moves" and not isinstance(value, str):
        return (value,) if isinstance(value, Move) else tuple(value)
    if name in _LISTED and not isinstance(value, str):
        return tuple(map(_LISTED[name], (value,) if isinstance(value, Integral) else value))
    if name in ("burn_in_energy", "tokenizer"):
        return str(value)
    if name == "out":
        return Path(value)
    return as_plain(value, kind_of(options, name))


def refuse_unused(given: Mapping[str, Any]) -> None:
    """Refuse options of proposals if all moves are objects, which have their own."""
    moves = given.get("moves")
    if moves is None or isinstance(moves, str):
        return
    listed = listed_moves((moves,) if isinstance(moves, Move) else moves)
    if not any(isinstance(move, str) for move, _ in listed):
        refuse_both(given, OF_MOVES, "moves that are objects")


def as_range(value: str | int | tuple[int, int]) -> str | tuple[int, int]:
    """Return a size or a range as a pair; text as it is."""
    if isinstance(value, str):
        return value
    first, last = value if isinstance(value, tuple | list) else (value, value)
    return int(first), int(last)


def refuse_both(given: Mapping[str, Any], names: Sequence[str], other: str) -> None:
    """Refuse options that an object says already."""
    for name in names:
        if given.get(name) is not None:
            raise InputError(
                f"'{name}' and {other} say the same thing: drop '{name}', or give options alone."
            )
