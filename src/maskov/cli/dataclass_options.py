"""Options as the fields of a dataclass, so that each is written once."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import MISSING, Field, fields
from typing import Any, get_type_hints

import typer

# The panel of the options that a newcomer needs; the others are "Advanced".
FIRST = "Options"


def option(name: str, text: str, panel: str, short: str | None = None) -> Any:
    """Return an option of the command line with its help, in one of the panels."""
    names = (name, short) if short else (name,)
    return typer.Option(*names, help=text, rich_help_panel=panel)


def takes_options(options: type[Any]) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Give a command every field of a dataclass as an option; it receives them as one object.

    Options of its own come before those that it shares with others, but for those of the first
    panel.
    """

    def decorate(command: Callable[..., Any]) -> Callable[..., Any]:
        def run(**values: Any) -> Any:
            chosen = options(**{f.name: values.pop(f.name) for f in fields(options)})
            return command(options=chosen, **values)

        hints = get_type_hints(command, include_extras=True)
        own = [
            parameter.replace(annotation=hints[parameter.name])
            for parameter in inspect.signature(command).parameters.values()
            if parameter.name != "options"
        ]
        kinds = get_type_hints(options, include_extras=True)

        def place(f: Field[Any]) -> int:
            if f.name in options.__annotations__:
                return 1
            return 0 if kinds[f.name].__metadata__[0].rich_help_panel == FIRST else 2

        shared = [
            inspect.Parameter(
                f.name,
                inspect.Parameter.KEYWORD_ONLY,
                default=inspect.Parameter.empty if f.default is MISSING else f.default,
                annotation=kinds[f.name],
            )
            for f in sorted(fields(options), key=place)
        ]
        keyword = [parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY) for parameter in own]
        run.__signature__ = inspect.Signature([*keyword, *shared])  # type: ignore[attr-defined]
        run.__name__, run.__doc__ = command.__name__, command.__doc__
        run.__annotations__ = {p.name: p.annotation for p in [*keyword, *shared]}
        return run

    return decorate
