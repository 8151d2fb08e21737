"""How commands are made and run, and what they print.

Options come from signatures, work has one thread, and there is an answer to Ctrl-C. Results are
JSON or tables on standard output, notes are on standard error.
"""

from __future__ import annotations

import inspect
import json
import math
import signal
import sys
import types
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import wraps
from itertools import count
from pathlib import Path
from typing import Annotated, Any, Union, get_args, get_origin

import typer
from rich.console import Console
from rich.table import Column, Table
from typer.core import TyperCommand, TyperGroup

import maskov
from maskov.config import ModelSource
from maskov.errors import Interrupted, refuse
from maskov.options import Opt, hints_of
from maskov.ui.escaping import json_printable, printable

# What a shell reports for a process that SIGINT ended.
INTERRUPTED = 128 + signal.SIGINT
# What a command line can give by itself; the rest is text that an option reads.
_PLAIN = (bool, int, float, str, Path)
Json = Annotated[bool, typer.Option("--json", help="JSON lines on standard output")]
OneJson = Annotated[bool, typer.Option("--json", help="one JSON object")]
HELP = {"help_option_names": ["-h", "--help"]}
# Fills of each template in a table, unless --top-k says otherwise.
SHOWN = 20


def command_of(
    function: Callable[..., Any], **defaults: Any
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Give a command the options of a function.

    It gets what was asked for as one dictionary, `given`, with the values that the function takes.
    Options that are not named have the function's own defaults, and are not in it; `defaults` are
    those of arguments that the function requires. Its own keywords are options as well.
    """
    signature = inspect.signature(function).parameters
    hints = hints_of(function)
    options = {
        name: one
        for name, hint in hints.items()
        for one in getattr(hint, "__metadata__", ())
        if isinstance(one, Opt)
    }

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        @wraps(command)
        def run(**values: Any) -> None:
            read = [values[name] for name, one in options.items() if one.read]
            refuse((read.count("-") > 1, "two options cannot both come from standard input."))
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
        _, *own = (
            one.replace(kind=inspect.Parameter.KEYWORD_ONLY)
            for one in inspect.signature(command, eval_str=True).parameters.values()
        )
        run.__signature__ = inspect.Signature([*generated, *own])  # type: ignore[attr-defined]
        run.__annotations__ = {one.name: one.annotation for one in [*generated, *own]}
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
        kind = list[str]
    if one.metavar is not None:
        shown = typer.Argument(metavar=one.metavar, help=one.help)
        default = [] if default == () else inspect.Parameter.empty
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
    """A command of maskov: it computes with one thread, and ends with one sentence on Ctrl-C.

    `--threads` of a run still sets its own number. Threads that wait for each other spin. Next to
    another busy process they wait most of the time, and a command with a thread for each core then
    takes many times as long as with one.
    """

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Read the options; tell where an argument of the model goes that is given as one."""
        options = {name for parameter in self.params for name in parameter.opts}
        unknown = {word.partition("=")[0] for word in args} - options
        flags = {"--" + name.replace("_", "-"): name for name in ModelSource.__dataclass_fields__}
        refuse(
            *(
                (
                    "--model" in options and flag in unknown,
                    f"{flag} goes with the model: --model 'NAME({name}=...)'.",
                )
                for flag, name in flags.items()
            )
        )
        return super().parse_args(ctx, args)

    def invoke(self, ctx: Any) -> None:
        """Run the command; PyTorch is imported now that options are read and help is shown."""
        import torch

        before = torch.get_num_threads()
        torch.set_num_threads(1)
        try:
            super().invoke(ctx)
        except KeyboardInterrupt:
            say("maskov: stopped")
            raise typer.Exit(INTERRUPTED) from None
        finally:
            torch.set_num_threads(before)


class CommandGroup(_FlagsWithoutValues, TyperGroup):
    """A command with subcommands."""


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


# What they print.


def say(text: str) -> None:
    """Print to standard error."""
    print(printable(text), file=sys.stderr, flush=True)


def print_json(lines: Iterable[str]) -> None:
    """Print JSON lines."""
    for line in lines:
        sys.stdout.write(json_printable(line) + "\n")


def print_object(values: Any) -> None:
    """Print one JSON object; missing numbers are null, since JSON has neither NaN nor infinity."""
    from maskov.ui.report import json_safe

    print_json([json.dumps(json_safe(values), ensure_ascii=False, allow_nan=False)])


def print_rows(
    head: Sequence[str], rows: Iterable[Sequence[str | None]], words: Collection[str] = ("text",)
) -> None:
    """Print rows under the names of their columns; those that are not `words` are numbers.

    Without a head, the columns are names and values. A pipe has no width, so there rows are neither
    cut nor folded.
    """
    columns = (
        Column(printable(name), overflow="fold")
        if name in words
        else Column(printable(name), justify="right", style="cyan")
        for name in head
    )
    table = Table(*columns, box=None, pad_edge=False, header_style="dim", show_header=bool(head))
    for row in rows:
        table.add_row(*(printable(cell or "") for cell in row))
    console = Console() if sys.stdout.isatty() else Console(width=10_000, soft_wrap=True)
    console.print(table, markup=False, highlight=False)


def or_dash(value: float | None, form: str = ".2f") -> str:
    """Return a number as text, or a dash where there is none."""
    return "–" if value is None or math.isnan(value) else f"{value:{form}}"


def as_lines(value: Any) -> str:
    """Return a value, or each value of a list on its own line, as text."""
    values = value if isinstance(value, list) else [value]
    return "\n".join(f"{each:.6g}" if isinstance(each, float) else str(each) for each in values)


def print_samples(samples: Sequence[maskov.Sample]) -> None:
    """Print a table of samples, texts as people write them."""
    from maskov.ui.detokenise import detokenised  # which imports torch

    mutated = any(sample.mutations is not None for sample in samples)
    words = ("name", "mutations") if mutated else ("text",)
    rows = []
    for one in samples:
        texts = (one.name, " ".join(one.mutations or ())) if mutated else (
            detokenised(one.text, one.tokens),
        )  # fmt: skip
        rows.append((str(one.chain), f"{one.energy_raw:.2f}", f"{one.energy_norm:.2f}", *texts))
    print_rows(("chain", "E_raw", "E_norm", *words), rows, words)


def say_summary(run: maskov.Run, said: str) -> None:
    """Print the rates, the verdict and the signature, without the note `said` before."""
    summary = run.summary()
    say(
        f"accepted {summary.acceptance_rate:.3f}  novel {summary.novel_rate:.3f}  "
        f"passes/step {summary.passes_per_step:.2f}  "
        f"leaves its target invariant: {'yes' if summary.leaves_invariant else 'no'}"
        if summary.acceptance_rate is not None
        else "no epoch after burn-in is complete yet"
    )
    for note in summary.notes:
        if note != said:
            say(f"note: {note}")
    if summary.acceptance_rate is not None:
        for sentence in run.diagnose().verdict.lines():
            say(sentence)
    say(run.signature)


def print_fills(
    fills: Sequence[Sequence[maskov.Fill]],
    names: Sequence[str] | None = None,
    top_k: int | None = None,
    counted: bool = True,
) -> None:
    """Print the fills of each template, most probable first; those of chains were `counted`."""
    rows = []
    for label, found in zip(names or map(str, count(1)), fills, strict=False):
        for fill in found[: top_k or SHOWN]:
            shares = (
                or_dash(one, ".2e" if 0 < one < 0.001 else ".4f" if one else ".0f")
                for one in (fill.probability, fill.error)
            )
            numbers = [str(fill.count)] if counted else []
            rows.append((label, *shares, or_dash(fill.energy), *numbers, fill.text))
    counts = ("count",) if counted else ()
    head = ("template", "probability", "error", "energy", *counts, "text")
    alone = len(fills) < 2  # which needs no name
    print_rows(head[alone:], [row[alone:] for row in rows])


def say_filling(found: maskov.Filling, quiet: bool) -> None:
    """Say what is not listed, the lengths and the verdict; problems are said in any case."""
    for one in () if quiet else found.templates:
        lengths = [
            f"{n}: {p:.3f} ± {e:.3f}" for n, (p, e) in one.lengths.items() if p + e >= 0.0005
        ]
        if lengths:
            say(f"tokens in the blanks: {', '.join(lengths)}")
        say(
            f"{one.template}: {len(one.fills):,} fills found, which leave probability "
            f"{one.unlisted:.3f} to all others (passes of the model: {one.passes:,})"
        )
    for problem in found.problems:
        say(f"not good enough: {problem}")
    if quiet:
        return
    error = max(one.error for one in found.templates)
    if not error:
        say("good: the probabilities are exact")
    elif not found.problems:
        say(f"good: the probabilities are known to ± {error:.1%}")
    heat = "" if found.temperature == 1 else f"/{found.temperature:g}"
    say(f"p ∝ exp(−E{heat}), E = {found.energy}")
