"""The command `rewrite`."""

from __future__ import annotations

import sys
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from maskov.cli.constraint_options import CONSTRAINTS, FREEZE, ConstraintOptions, read_frozen
from maskov.cli.dataclass_options import FIRST, option, takes_options
from maskov.cli.escaping import json_printable, printable
from maskov.cli.model_options import ModelOptions, findable
from maskov.cli.output import read_lines, say
from maskov.cli.signals import stop_on_signals
from maskov.cli.workers import WorkerOptions
from maskov.errors import Interrupted

if TYPE_CHECKING:
    from maskov.rewriting import Rewriter

_ENERGY = "Advanced: energy"
_CHAINS = "Advanced: chains"
_RUN = "Advanced: run"
_MOVES = "site:6,span:2,insert-delete:1"


@dataclass(frozen=True)
class RewritingOptions(WorkerOptions, ConstraintOptions, ModelOptions):
    """The options of `rewrite`."""

    toward: Annotated[
        str,
        option(
            "--toward",
            "what texts should become, an energy: classifier(MODEL, label=positive), "
            "contains('river'), length(12), a sum ...",
            FIRST,
        ),
    ] = ""
    strength: Annotated[float, option("--strength", "weight of --toward", FIRST)] = 20.0
    keep: Annotated[
        float, option("--keep", "weight of every token changed (edit distance)", FIRST)
    ] = 8.0
    fluency: Annotated[
        str, option("--fluency", "energy of fluent text: norm, raw, or a sum", _ENERGY)
    ] = "0.3*norm"
    target_temperature: Annotated[
        float, option("--target-temperature", "T in p ∝ exp(-E/T)", _ENERGY)
    ] = 1.0

    hot: Annotated[
        float,
        option("--hot", "T of the first epoch, falling to --target-temperature", _ENERGY),
    ] = 1.0

    freeze: Annotated[str | None, option("--freeze", FREEZE, CONSTRAINTS)] = None

    chains: Annotated[int, option("--chains", "chains of each line", FIRST, "-c")] = 8
    epochs: Annotated[int, option("--epochs", "sweeps over all positions", FIRST, "-n")] = 15
    pick: Annotated[
        str,
        option(
            "--pick",
            "lowest energy of any chain and epoch, last sample of the first chain, or mbr over "
            "the chains",
            _CHAINS,
        ),
    ] = "lowest"
    moves: Annotated[
        str, option("--moves", "moves by weight: site, span, insert-delete, resize", _CHAINS)
    ] = _MOVES
    span: Annotated[str, option("--span", "positions of a span: 2, or a range", _CHAINS)] = "2:3"
    temperature: Annotated[
        float, option("--temperature", "temperature of the proposal", _CHAINS)
    ] = 1.0

    every_chain: Annotated[
        bool, option("--every-chain", "print all chains of a line instead of one", _RUN)
    ] = False
    seed: Annotated[int, option("--seed", "random seed", _RUN, "-s")] = 0
    out: Annotated[
        Path | None,
        option("--out", "folder for finished lines; repeat the command to continue", FIRST, "-o"),
    ] = None
    batch: Annotated[
        int | None, option("--batch", "lines of a run (default: 32; on a GPU all)", _RUN)
    ] = None
    token_budget: Annotated[
        int | None,
        option("--token-budget", "tokens per model call (default: automatic)", _RUN),
    ] = None
    resident: Annotated[
        int | None,
        option("--resident", "maximum chains per device batch (default: automatic)", _RUN),
    ] = None
    threads: Annotated[
        int | None,
        option("--threads", "threads of each process on a CPU (default: 1)", _RUN),
    ] = None
    json: Annotated[bool, option("--json", "JSON lines on standard output", FIRST)] = False
    quiet: Annotated[bool, option("--quiet", "no progress", _RUN, "-q")] = False

    def build(self, device: object) -> Rewriter:
        """Return how lines are rewritten."""
        from maskov.energies import parse_energy
        from maskov.energies.loading import Loading
        from maskov.kernels.registry import named_moves, parse_moves, parse_sizes
        from maskov.models import DEFAULT_JUDGE
        from maskov.moves import MaskedConditional
        from maskov.rewriting import Rewriter

        loading = Loading(str(device), self.trust_remote_code, find=findable)
        resizes = "insert-delete" in self.moves or "resize" in self.moves
        proposal = MaskedConditional(self.temperature, constraints=self.build_constraints(resizes))
        moves, weights = parse_moves(self.moves, named_moves(proposal, parse_sizes(self.span)))
        return Rewriter(
            parse_energy(self.toward, DEFAULT_JUDGE, loading),
            self.strength,
            self.keep,
            parse_energy(self.fluency, DEFAULT_JUDGE, loading),
            self.target_temperature,
            self.hot,
            self.chains,
            self.epochs,
            self.pick,
            moves,
            weights,
        )


@takes_options(RewritingOptions)
def rewrite(
    options: RewritingOptions,
    source: Annotated[
        str, typer.Argument(metavar="FILE|-", help="texts, one per line (- for standard input)")
    ],
) -> None:
    """Rewrite lines: texts like them that a classifier or another expert prefers."""
    from maskov.cli.terminal import progress_for, watched_stop

    if not options.toward:
        raise typer.BadParameter("give what texts should become.", param_hint="--toward")
    options.build("cpu")  # refused before a model is loaded
    workers = options.build_workers(options.threads)
    lines = read_lines(source)
    frozen = read_frozen(options.freeze)
    model = options.load_model()
    rewriter = options.build(model.device)
    with stop_on_signals() as stop:
        try:
            with ExitStack() as stack:
                view = progress_for(model, options.epochs, options.quiet)
                if view is not None:
                    stack.enter_context(view)
                for one in rewriter.rewrite(
                    model, lines, frozen=frozen, seed=options.seed, batch=options.batch,
                    every_chain=options.every_chain, out=options.out, listener=view,
                    stop=watched_stop(stop, view), source=options.source(), workers=workers,
                    token_budget=options.token_budget, resident=options.resident,
                ):  # fmt: skip
                    text = json_printable(one.to_json()) if options.json else printable(one.text)
                    # At once: whoever reads loses no finished line.
                    sys.stdout.write(text + "\n")
                    sys.stdout.flush()
        except (Interrupted, KeyboardInterrupt):
            if options.out is not None:
                say("stopped; finished lines are saved, and the same command goes on after them")
            else:
                say("stopped; unfinished lines are lost (with --out the same command goes on)")
            raise typer.Exit(stop.exit_code) from None
