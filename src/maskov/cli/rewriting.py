"""The command `rewrite`."""

from __future__ import annotations

import sys
from contextlib import ExitStack
from typing import TYPE_CHECKING, Annotated

import typer

from maskov.cli.dataclass_options import takes_options
from maskov.cli.output import OutputOptions, read_frozen, say, texts_or_files
from maskov.cli.signals import stop_on_signals
from maskov.errors import Interrupted
from maskov.options.rewriting import RewritingOptions
from maskov.ui.escaping import json_printable, printable

if TYPE_CHECKING:
    from maskov.rewriting import Rewriting


@takes_options(RewritingOptions, output=OutputOptions)
def rewrite(
    options: RewritingOptions,
    output: OutputOptions,
    source: Annotated[
        list[str],
        typer.Argument(
            metavar="TEXT|FILE|-...",
            help="texts, or files of texts: one per line, or FASTA (- for standard input)",
        ),
    ],
) -> None:
    """Rewrite lines: texts like them that a classifier or another expert prefers."""
    from maskov.fasta import Record
    from maskov.ui.terminal import progress_for, watched_stop

    if not options.aims:
        raise typer.BadParameter(
            "give what texts should become, or a word that they should hold: --contains.",
            param_hint="--toward",
        )
    options.build("cpu")  # refused before a model is loaded
    workers = options.build_workers(options.threads)
    texts = texts_or_files(source, empty=True)
    frozen = read_frozen(options.freeze)
    model = options.load_model()
    rewriter = options.build(model.device, records=isinstance(texts[0], Record))
    with stop_on_signals() as stop:
        try:
            with ExitStack() as stack:
                epochs = rewriter.all_epochs(model, len(texts), options.batch)
                view = progress_for(model, epochs, output.quiet)
                if view is not None:
                    stack.enter_context(view)
                for one in rewriter.rewrite(
                    model, texts, freeze=frozen, seed=options.seed, batch=options.batch,
                    every_chain=options.every_chain, out=options.out, listener=view,
                    stop=watched_stop(stop, view), source=options.source(), workers=workers,
                    token_budget=options.token_budget, resident=options.resident,
                ):  # fmt: skip
                    # At once: whoever reads loses no finished line.
                    sys.stdout.write(_shown(one, output.json, options.every_chain))
                    sys.stdout.flush()
        except (Interrupted, KeyboardInterrupt):
            if options.out is not None:
                say("stopped; finished lines are saved, and the same command continues after them")
            else:
                say("stopped; unfinished lines are lost (with --out the same command continues)")
            raise typer.Exit(stop.exit_code) from None


def _shown(one: Rewriting, json: bool, every_chain: bool) -> str:
    """Return what is printed: JSON, a line, or a record of FASTA."""
    from maskov.fasta import Record, numbered, to_fasta

    if json:
        return json_printable(one.to_json()) + "\n"
    if one.name is None:
        return printable(one.text) + "\n"
    name = numbered(one.name, one.chain) if every_chain else one.name
    return printable(to_fasta([Record(name, one.text)]))
