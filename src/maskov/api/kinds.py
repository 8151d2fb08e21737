"""Tell whether a value is of the kind that an argument takes, and say so in words."""

from __future__ import annotations

import collections.abc
import os
import types
from collections.abc import Callable, Mapping, Sequence
from numbers import Integral, Real
from pathlib import Path
from typing import Annotated, Any, Union, get_args, get_origin

from maskov.energies import Energy
from maskov.errors import InputError
from maskov.fasta import Record
from maskov.kernels import Kernel
from maskov.models import MaskedModel
from maskov.models.conditional.model import ConditionalModel
from maskov.moves import Move
from maskov.schedules import Schedule
from maskov.workers import Workers

_UNIONS = (Union, types.UnionType)
_WORDS: dict[Any, str] = {
    bool: "True or False",
    int: "a whole number",
    float: "a number",
    str: "a text",
    Path: "a path",
    Record: "a record of FASTA",
    Energy: "an Energy",
    Kernel: "a Kernel",
    Move: "a Move",
    MaskedModel: "a MaskedModel",
    ConditionalModel: "a ConditionalModel",
    Schedule: "a Schedule",
    Workers: "Workers",
    tuple[int, int]: "a pair such as (8, 24)",
    type(None): "None",
}
# What some arguments take, better than their types say it.
_EXPECTED = {
    "model": "the name of a model, a folder or a MaskedModel",
    "energy": "a name such as 'raw' or 'raw+0.5*norm', an Energy, or a function of texts",
    "toward": "a name such as \"contains('river')\", an Energy, or a function of texts",
    "fluency": "a name such as '0.3*norm', an Energy, or a function of texts",
    "texts": "a list of texts",
    "templates": "a list of texts with blanks such as [MASK]",
    "length": "a number of tokens such as 12, or a range such as (8, 24) or '8:24'",
    "freeze": "a rule such as '1-25,40' or 'river, bridge', or a mask for each text",
    "span": "a size such as 2, or a range such as (1, 3) or '1:3'",
    "moves": "names of moves with their weights, such as 'site:1,span:2', or a list of "
    "Moves, alone or in pairs with their weights",
    "length_prior": "'none', 'flat', or weights such as '8:1,12:4' or {8: 1, 12: 4}",
    "kernel": "a Kernel, or a name: mh, gibbs, mask-predict or module:Class",
    "workers": "a number of processes, or Workers",
    "out": "the path of a folder",
}


def check_kind(name: str, value: Any, kind: Any) -> None:
    """Refuse a value of another kind than an argument takes."""
    if fits(value, kind):
        return
    expected = _EXPECTED.get(name) or words_for(kind)
    advice = ""
    if isinstance(value, str) and name in ("texts", "templates"):
        advice = f": write {name}=[{_shown(value, 30)}]"
    raise InputError(
        f"'{name}' takes {expected}, not {_shown(value)} ({type(value).__name__}){advice}."
    )


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
        return (
            isinstance(value, tuple | list)
            and len(value) == len(parts)
            and all(map(fits, value, parts))
        )
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
        return "a list of " + words_for(parts[0]).removeprefix("a ").replace("text", "texts")
    if origin is collections.abc.Callable:
        return "a function"
    return _WORDS.get(kind) or str(getattr(kind, "__name__", kind))


def as_plain(value: Any, kind: Any) -> Any:
    """Return a number as the plain one that an option has, such as 1.0 for 1."""
    parts = get_args(kind) if get_origin(kind) in _UNIONS else (kind,)
    if type(value) is bool:
        return value
    if isinstance(value, Integral) and int in parts:
        return int(value)
    return float(value) if isinstance(value, Real) and float in parts else value


def _shown(value: Any, most: int = 40) -> str:
    text = " ".join(repr(value).split())
    return text if len(text) <= most else f"{text[: most - 4]} ..."


TextFunction = Callable[[list[str]], Sequence[float]]
