"""The arguments of a call: defaults filled in, numbers plain, values of another type refused."""

from __future__ import annotations

import collections.abc
import inspect
import os
import types
from collections.abc import Callable, Mapping, Sequence
from numbers import Integral, Real
from pathlib import Path
from types import SimpleNamespace
from typing import Annotated, Any, Union, get_args, get_origin

from maskov.energies import Energy
from maskov.errors import InputError
from maskov.fasta import Record
from maskov.kernels import Kernel
from maskov.kernels.registry import Moves
from maskov.models import MaskedModel
from maskov.moves import MaskedConditional, Move
from maskov.options import hints_of
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
_WORDS: dict[Any, str] = {
    bool: "True or False",
    int: "a whole number",
    float: "a number",
    str: "a text",
    Path: "a path",
    type(None): "None",
}


class Arguments(SimpleNamespace):
    """The value of each keyword of a function; their types are those of its signature."""

    def given(self, *names: str) -> list[str]:
        """Return which of these are not as the function has them by default."""
        return [name for name in names if getattr(self, name) != self._defaults[name]]

    def refuse_both(self, other: str, *names: str) -> None:
        """Refuse options that an object says already."""
        for name in self.given(*names):
            raise InputError(
                f"'{name}' and {other} say the same thing: drop '{name}', or give options alone."
            )


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
    if not fits(value, kind):
        advice = f": write {name}=[{_shown(value, 30)}]" if name in ("texts", "templates") else ""
        raise InputError(
            f"'{name}' takes {words_for(kind)}, not {_shown(value)} ({type(value).__name__})"
            f"{advice if isinstance(value, str) else ''}."
        )
    return _plain(value, kind)


def fits(value: Any, kind: Any) -> bool:
    """Whether a value is of a kind, written as a type."""
    origin, parts = get_origin(kind), get_args(kind)
    if kind is Any:
        return True
    if origin is Annotated:
        return fits(value, parts[0])
    if origin in _UNIONS:
        return any(fits(value, part) for part in parts)
    if kind is int or kind is float:
        number = Integral if kind is int else Real
        return isinstance(value, number) and not isinstance(value, bool)
    if kind is Path:
        return isinstance(value, str | os.PathLike)
    if origin is collections.abc.Callable:
        return callable(value)
    if origin is tuple:
        listed = isinstance(value, tuple | list) and len(value) == len(parts)
        return listed and all(map(fits, value, parts))
    if origin is collections.abc.Sequence:
        listed = isinstance(value, Sequence) and not isinstance(value, str | bytes)
        return listed and all(fits(one, parts[0]) for one in value)
    if origin is collections.abc.Mapping:
        pairs = value.items() if isinstance(value, Mapping) else [(None, None)]
        return all(fits(key, parts[0]) and fits(one, parts[1]) for key, one in pairs)
    return isinstance(value, kind)


def words_for(kind: Any) -> str:
    """Say what a kind of value is."""
    origin, parts = get_origin(kind), get_args(kind)
    if origin is Annotated:
        return words_for(parts[0])
    if origin in _UNIONS:
        return " or ".join(dict.fromkeys(words_for(part) for part in parts))
    if origin is collections.abc.Sequence:
        return "a list of " + words_for(parts[0]).replace("a text", "texts").removeprefix("a ")
    if origin is collections.abc.Mapping:
        return "a dict"
    if origin is tuple:
        return f"({', '.join(map(words_for, parts))})"
    if origin is collections.abc.Callable:
        return "a function"
    name = str(getattr(kind, "__name__", kind))
    return _WORDS.get(kind) or f"{'an' if name[0] in 'AEIO' else 'a'} {name}"


def _plain(value: Any, kind: Any) -> Any:
    """Return a number as the plain one that an option has, such as 1.0 for 1."""
    while get_origin(kind) is Annotated:
        kind = get_args(kind)[0]
    parts = get_args(kind) if get_origin(kind) in _UNIONS else (kind,)
    if type(value) is bool:
        return value
    if isinstance(value, Integral) and int in parts:
        return int(value)
    if isinstance(value, Real) and float in parts:
        return float(value)
    return Path(value) if Path in parts and str not in parts and value is not None else value


def _shown(value: Any, most: int = 40) -> str:
    text = " ".join(repr(value).split())
    return text if len(text) <= most else f"{text[: most - 4]} ..."
