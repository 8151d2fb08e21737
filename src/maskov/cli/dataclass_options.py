"""Options as the fields of dataclasses, so that each is written once."""

from __future__ import annotations

import inspect
import types
from collections.abc import Callable
from dataclasses import MISSING, Field, fields
from typing import Annotated, Any, Union, get_args, get_origin, get_type_hints

import typer

from maskov.options.option import FIRST, Option

# What a command line can give; Python may give more.
_PLAIN = (str, int, float, bool, type(None))


def takes_options(
    options: type[Any], **others: type[Any]
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Give a command every field of some dataclasses as an option.

    It receives one object for each dataclass: `options`, and `others` under their names. Options of
    its own come before those that it shares with other commands, but for those of the first panel.
    """
    groups = {"options": options, **others}

    def decorate(command: Callable[..., Any]) -> Callable[..., Any]:
        def run(**values: Any) -> Any:
            chosen = {
                group: kind(**{f.name: values.pop(f.name) for f in fields(kind)})
                for group, kind in groups.items()
            }
            return command(**chosen, **values)

        hints = get_type_hints(command, include_extras=True)
        own = [
            parameter.replace(annotation=hints[parameter.name])
            for parameter in inspect.signature(command).parameters.values()
            if parameter.name not in groups
        ]
        shared = [parameter for kind in groups.values() for parameter in _parameters(kind)]
        keyword = [parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY) for parameter in own]
        run.__signature__ = inspect.Signature([*keyword, *shared])  # type: ignore[attr-defined]
        run.__name__, run.__doc__ = command.__name__, command.__doc__
        run.__annotations__ = {p.name: p.annotation for p in [*keyword, *shared]}
        return run

    return decorate


def _parameters(kind: type[Any]) -> list[inspect.Parameter]:
    """Return an option for each field; those of the dataclass itself before most inherited ones."""
    hints = get_type_hints(kind, include_extras=True)

    def place(field: Field[Any]) -> int:
        if field.name in kind.__annotations__:
            return 1
        return 0 if get_args(hints[field.name])[1].panel == FIRST else 2

    return [
        inspect.Parameter(
            field.name,
            inspect.Parameter.KEYWORD_ONLY,
            default=inspect.Parameter.empty if field.default is MISSING else field.default,
            annotation=_annotation(hints[field.name]),
        )
        for field in sorted(fields(kind), key=place)
    ]


def _annotation(hint: Any) -> Any:
    """Return the annotation that typer reads."""
    kind, shown = get_args(hint)
    assert isinstance(shown, Option)
    names = [name for name in (shown.name, shown.also, shown.short) if name]
    parameter = typer.Option(*names, help=shown.text, rich_help_panel=shown.panel)
    return Annotated[_plain(kind), parameter]


def _plain(kind: Any) -> Any:
    """Return what a command line can give of several kinds; of any kind, text."""
    if kind is Any:
        return str
    if get_origin(kind) not in (Union, types.UnionType):
        return kind
    parts = get_args(kind)
    plain = tuple(part for part in parts if part in _PLAIN)
    return kind if len(plain) < 1 + (type(None) in parts) else Union[plain]  # noqa: UP007
