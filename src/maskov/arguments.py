"""The arguments of a call: defaults filled in, numbers plain, values of another type refused."""

from __future__ import annotations

import collections.abc
import inspect
import os
import re
import types
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from numbers import Integral, Real
from pathlib import Path
from types import SimpleNamespace
from typing import Annotated, Any, Union, get_args, get_origin

import torch

from maskov.config import ModelSource
from maskov.energies import Energy
from maskov.errors import InputError
from maskov.fasta import Record
from maskov.kernels import Kernel
from maskov.kernels.registry import Moves
from maskov.models import MaskedModel, choose_device, load
from maskov.moves import MaskedConditional, Move
from maskov.options import hints_of, parse_model
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
_AS_GOOD: dict[Any, Any] = {int: Integral, float: Real, Path: str | os.PathLike}


@dataclass(frozen=True)
class GivenModel:
    """A model as it was given: loaded already, or where to load it from, and its device."""

    source: ModelSource | None
    device: torch.device
    loaded: MaskedModel | None = None

    def load(self, precision: str = "float32") -> MaskedModel:
        """Return the model."""
        return self.loaded or load(**vars(self.source), device=self.device, precision=precision)


class Arguments(SimpleNamespace):
    """The value of each keyword of a function; their types are those of its signature."""

    def given(self, *names: str) -> list[str]:
        """Return which of these are not as the function has them by default."""
        known = [name for name in names if name in self._defaults]
        return [name for name in known if getattr(self, name) != self._defaults[name]]

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
        advice = f": write {name}=[{_shown(value, 30)}]" if name in ("texts", "templates") else ""
        raise InputError(
            f"'{name}' takes {_written(kind)}, not {_shown(value)} ({type(value).__name__})"
            f"{advice if isinstance(value, str) else ''}."
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
    if origin is Annotated:
        return fits(value, parts[0])
    if origin in _UNIONS:
        return any(fits(value, part) for part in parts)
    if origin is collections.abc.Callable or kind is Any:
        return kind is Any or callable(value)
    if origin is tuple:
        listed = isinstance(value, tuple | list) and len(value) == len(parts)
        return listed and all(map(fits, value, parts))
    if origin is collections.abc.Sequence:
        listed = isinstance(value, Sequence) and not isinstance(value, str | bytes)
        return listed and all(fits(one, parts[0]) for one in value)
    if origin is collections.abc.Mapping:
        pairs = value.items() if isinstance(value, Mapping) else [(None, None)]
        return all(fits(key, parts[0]) and fits(one, parts[1]) for key, one in pairs)
    if isinstance(value, bool):  # which is a number to Python
        return kind is bool
    return isinstance(value, _AS_GOOD.get(kind, kind))


def _written(kind: Any) -> str:
    """Write a type as its annotation does, without modules."""
    if get_origin(kind) in _UNIONS:
        return " | ".join(map(_written, get_args(kind)))
    text = inspect.formatannotation(kind).replace("NoneType", "None")
    return re.sub(r"[\w.]+\.(?=\w)", "", text)


def _shown(value: Any, most: int = 40) -> str:
    text = " ".join(repr(value).split())
    return text if len(text) <= most else f"{text[: most - 4]} ..."
