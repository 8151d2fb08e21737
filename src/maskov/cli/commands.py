"""How commands are made and run: options from signatures, one thread, and an answer to Ctrl-C."""

import inspect
import signal
import types
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from pathlib import Path
from typing import Annotated, Any, ParamSpec, Union, get_args, get_origin, get_type_hints

import typer
from typer.core import TyperCommand, TyperGroup

from maskov.cli.output import say
from maskov.errors import InputError, Interrupted
from maskov.options import Opt, hints_of

P = ParamSpec("P")
# What a shell reports for a process that SIGINT ended.
INTERRUPTED = 128 + signal.SIGINT
# What a command line can give by itself; the rest is text that an option reads.
_PLAIN = (bool, int, float, str, Path)
Json = Annotated[bool, typer.Option("--json", help="JSON lines on standard output")]
OneJson = Annotated[bool, typer.Option("--json", help="one JSON object")]
HELP = {"help_option_names": ["-h", "--help"]}


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
    whole = get_args(hint)[0]
    parts = get_args(whole) if get_origin(whole) in (Union, types.UnionType) else (whole,)
    # Of several kinds, the first that a command line can give.
    kind: Any = next((part for part in parts if part in _PLAIN and one.read is None), str)
    names = one.names.split()
    if not any(given.startswith("--") for given in names):
        names.insert(0, "--" + name.replace("_", "-"))
    shown: Any = typer.Option(*names, help=one.help, rich_help_panel=one.panel)
    if one.many:
        kind, default = list[str], [] if default == () else default
    if one.metavar is not None:
        shown = typer.Argument(metavar=one.metavar, help=one.help)
        default = default if one.many and default == [] else inspect.Parameter.empty
    elif one.many:
        default = list(default)
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


class _FlagsWithoutValues:
    """Shows no `<bool>` after an option that takes no value."""

    def get_params(self, ctx: Any) -> list[Any]:
        """Return the options and arguments."""
        parameters: list[Any] = super().get_params(ctx)  # type: ignore[misc]
        for parameter in parameters:
            if getattr(parameter, "is_flag", False):
                parameter.metavar = ""
        return parameters


class Command(_FlagsWithoutValues, TyperCommand):
    """A command of maskov."""


class CommandGroup(_FlagsWithoutValues, TyperGroup):
    """A command with subcommands."""


def runnable(command: Callable[P, None]) -> Callable[P, None]:
    """Let a command compute with one thread, and end with one sentence on Ctrl-C.

    `--threads` of a run still sets its own number. Threads that wait for each other spin. Next to
    another busy process they wait most of the time, and a command with a thread for each core then
    takes many times as long as with one.
    PyTorch is imported here, after the options are read and the help is shown.
    """

    @wraps(command)
    def run(*arguments: P.args, **options: P.kwargs) -> None:
        import torch

        before = torch.get_num_threads()
        torch.set_num_threads(1)
        try:
            command(*arguments, **options)
        except KeyboardInterrupt:
            say("maskov: stopped")
            raise typer.Exit(INTERRUPTED) from None
        finally:
            torch.set_num_threads(before)

    return run


@contextmanager
def stop_on_signals(
    told: Callable[[], str] = lambda: "stopped",
) -> Iterator[Callable[[], bool]]:
    """Record Ctrl-C and SIGTERM instead of ending the process; a second Ctrl-C stops at once.

    Work that was stopped is `told` of in one sentence, and the command has the exit code that a
    shell reports for a process ended by this signal.
    """
    received: list[int] = []

    def record(number: int, frame: types.FrameType | None) -> None:
        if received and number == signal.SIGINT:
            raise KeyboardInterrupt
        received.append(number)

    before = {number: signal.signal(number, record) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield lambda: bool(received)
    except (Interrupted, KeyboardInterrupt):
        say(told())
        raise typer.Exit(128 + (received or [signal.SIGINT])[-1]) from None
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
