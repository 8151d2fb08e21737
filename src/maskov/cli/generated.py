"""Commands made from the signatures of functions: an option for each keyword that has an `Opt`."""

from __future__ import annotations

import inspect
import types
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, Union, get_args, get_origin, get_type_hints

import typer
from typer.core import TyperCommand, TyperGroup

from maskov.errors import InputError
from maskov.options import Opt, hints_of

# What a command line can give by itself; the rest is text that an option reads.
_PLAIN = (bool, int, float, str, Path)
Json = Annotated[bool, typer.Option("--json", help="JSON lines on standard output")]


def command_of(
    function: Callable[..., Any], *without: str, **defaults: Any
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Give a command the options of a function.

    It gets what was asked for as one dictionary, `given`, with the values that the function takes.
    Options that are not named have the function's own defaults, and are not in it; `defaults` are
    those of arguments that the function requires. Its own keywords are options as well.
    """
    signature = inspect.signature(function).parameters
    hints = {name: hint for name, hint in hints_of(function).items() if name not in without}
    options = {
        name: one
        for name, hint in hints.items()
        for one in getattr(hint, "__metadata__", ())
        if isinstance(one, Opt)
    }

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        def run(**values: Any) -> None:
            if [values[name] for name, one in options.items() if one.read].count("-") > 1:
                raise InputError("two options cannot both come from standard input.")
            given: dict[str, Any] = dict(defaults)
            for (name, one), shown in zip(options.items(), generated, strict=True):
                value = values.pop(name)
                if value != shown.default:
                    given[name] = value if one.read is None else one.read(value)
            command(given, **values)

        generated = [
            _parameter(name, hints[name], one, defaults.get(name, signature[name].default))
            for name, one in options.items()
        ]
        own_hints = get_type_hints(command, include_extras=True)
        own = [
            one.replace(annotation=own_hints[one.name], kind=inspect.Parameter.KEYWORD_ONLY)
            for one in list(inspect.signature(command).parameters.values())[1:]
        ]
        run.__signature__ = inspect.Signature([*generated, *own])  # type: ignore[attr-defined]
        run.__annotations__ = {one.name: one.annotation for one in [*generated, *own]}
        run.__name__, run.__doc__ = command.__name__, command.__doc__
        return run

    return decorate


def _parameter(name: str, hint: Any, one: Opt, default: Any) -> inspect.Parameter:
    """Return the option, or the argument, as typer reads it."""
    kind = _plain_kind(hint) if one.read is None else str
    shown: Any = typer.Option(*_names(name, one), help=one.help, rich_help_panel=one.panel)
    if one.metavar is not None:
        kind = list[kind] if one.many else kind  # type: ignore[valid-type]
        shown = typer.Argument(metavar=one.metavar, help=one.help)
        default = inspect.Parameter.empty
    elif default is None:
        kind |= None
    elif kind is str:
        default = str(default)
    return inspect.Parameter(
        name,
        inspect.Parameter.KEYWORD_ONLY,
        default=default,
        annotation=Annotated[kind, shown],
    )


def _names(name: str, one: Opt) -> list[str]:
    names = one.names.split()
    own = [] if any(given.startswith("--") for given in names) else ["--" + name.replace("_", "-")]
    return [*own, *names]


def _plain_kind(hint: Any) -> Any:
    """Return what a command line can give of several kinds."""
    kind = get_args(hint)[0]
    parts = get_args(kind) if get_origin(kind) in (Union, types.UnionType) else (kind,)
    return next((part for part in (*parts, str) if part in _PLAIN), str)


def _without_values(parameters: list[Any]) -> list[Any]:
    """Show no `<bool>` after an option that takes no value."""
    for parameter in parameters:
        if getattr(parameter, "is_flag", False):
            parameter.metavar = ""
    return parameters


class Command(TyperCommand):
    """A command of maskov."""

    def get_params(self, ctx: Any) -> list[Any]:
        """Return the options and arguments."""
        return _without_values(super().get_params(ctx))


class CommandGroup(TyperGroup):
    """A command with subcommands."""

    def get_params(self, ctx: Any) -> list[Any]:
        """Return the options and arguments."""
        return _without_values(super().get_params(ctx))
