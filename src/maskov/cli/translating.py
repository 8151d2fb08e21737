"""The command `translate`."""

from __future__ import annotations

from contextlib import ExitStack
from typing import Annotated, Any

import typer

from maskov.cli.dataclass_options import takes_options
from maskov.cli.output import OutputOptions, print_json, read_lines, say
from maskov.cli.signals import stop_on_signals
from maskov.errors import InputError, Interrupted
from maskov.options.translating import METHOD, TranslatingOptions


@takes_options(TranslatingOptions, output=OutputOptions)
def translate(
    options: TranslatingOptions,
    output: OutputOptions,
    source: Annotated[
        str, typer.Argument(metavar="FILE|-", help="texts, one per line (- for standard input)")
    ],
    drafts: Annotated[
        str | None,
        typer.Option(
            "--drafts",
            help="file of translations to start the chains from, one per line",
            rich_help_panel=METHOD,
        ),
    ] = None,
) -> None:
    """Translate lines with a conditional masked model or an autoregressive one."""
    from maskov.runs.store import Store
    from maskov.translation.api import translate_lines
    from maskov.ui.terminal import progress_for, watched_stop

    method = options.build_method(drafts is not None)
    workers = options.build_workers(options.threads)
    options.check_used()
    if options.out is not None:
        Store.check_free(options.out)
    loaded_from = options.source()
    if drafts == source == "-":
        raise InputError("texts and drafts cannot both come from standard input.")
    lines = read_lines(source, empty=True)
    first = None if drafts is None else read_lines(drafts, empty=True)
    model = options.load_model()
    twin = options.load_twin() if method.needs_twin else None
    settings: dict[str, Any] = {}
    if options.method != "ar":
        settings = {
            "seed": options.seed,
            "out": options.out,
            "token_budget": options.token_budget,
            "resident": options.resident,
            "workers": workers,
            "source": loaded_from,
        }
    with stop_on_signals() as stop:
        try:
            with ExitStack() as stack:
                if options.method != "ar":
                    view = progress_for(model, method.sweeps, output.quiet)
                    if view is not None:
                        stack.enter_context(view)
                    settings |= {"listener": view, "stop": watched_stop(stop, view)}
                translations = translate_lines(
                    model, lines, method, twin, options.every_chain, first, **settings
                )
        except (Interrupted, KeyboardInterrupt):
            if options.out is not None and options.out.exists():
                say(f"stopped and saved; continue with: maskov resume {options.out}")
            else:
                say("stopped; nothing was saved (a run with --out can be resumed)")
            raise typer.Exit(stop.exit_code) from None
    print_json(
        translation.to_json() if output.json else translation.text for translation in translations
    )
