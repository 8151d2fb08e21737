"""The command `translate`."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Annotated, Any

import typer

from maskov.cli.options import findable
from maskov.cli.output import print_json, read_lines, say
from maskov.cli.signals import stop_on_signals
from maskov.cli.takes import option, takes_options
from maskov.cli.terminal import progress_for
from maskov.cli.workers import WorkerOptions
from maskov.errors import InputError, Interrupted
from maskov.models import choose_device, load
from maskov.models.conditional.model import ConditionalModel
from maskov.models.registry import folder_of, model_for
from maskov.runs.folder import RunFolder
from maskov.translation.api import translate as translate_lines
from maskov.translation.autoregressive import AutoregressiveTranslator
from maskov.translation.methods import METHODS, TranslationMethod

_MODEL = "Model"
_METHOD = "TranslationMethod"
_RUN = "Run"


@dataclass(frozen=True)
class TranslatingOptions(WorkerOptions):
    """Everything the command line can say about a translation."""

    pair: Annotated[str | None, option("--pair", "languages, such as de-en or ro-en", _MODEL)] = (
        None
    )
    model: Annotated[
        str | None, option("--model", "masked model: name, folder or .pt file", _MODEL, "-m")
    ] = None
    twin: Annotated[
        str | None, option("--twin", "autoregressive model for --method ar", _MODEL)
    ] = None
    device: Annotated[str, option("--device", "auto, cpu, cuda, cuda:1 ...", _MODEL)] = "auto"
    precision: Annotated[
        str, option("--precision", "float32, float64, or coarser: tf32, bfloat16", _MODEL)
    ] = "float32"

    method: Annotated[str, option("--method", ", ".join(METHODS), _METHOD)] = "mask-predict"
    energy: Annotated[
        str | None, option("--energy", "target of mh: raw (default), norm, or a sum", _METHOD, "-e")
    ] = None
    iterations: Annotated[
        int | None, option("--iterations", "of mask-predict; 10 unless given", _METHOD)
    ] = None
    length_beam: Annotated[
        int | None, option("--length-beam", "lengths mask-predict tries; 1 unless given", _METHOD)
    ] = None
    epochs: Annotated[
        int | None, option("--epochs", "sweeps over the target; 33 unless given", _METHOD, "-n")
    ] = None
    temperature: Annotated[
        float | None, option("--temperature", "of the proposal; 0.8 unless given", _METHOD)
    ] = None
    target_temperature: Annotated[
        float | None, option("--target-temperature", "T in p ∝ exp(-E/T), at first", _METHOD)
    ] = None
    anneal: Annotated[
        float | None, option("--anneal", "fall of T an epoch; 0.02 unless given", _METHOD)
    ] = None
    target_floor: Annotated[
        float | None, option("--target-floor", "T stops falling here; 0.01 unless given", _METHOD)
    ] = None
    force_accept: Annotated[
        int | None,
        option("--force-accept", "first epochs that accept everything; 8 unless given", _METHOD),
    ] = None
    block: Annotated[
        int | None, option("--block", "positions masked together; 4 unless given", _METHOD)
    ] = None
    block_anneal: Annotated[
        float | None, option("--block-anneal", "fall of the block an epoch; 0.2", _METHOD)
    ] = None
    chains: Annotated[int | None, option("--chains", "to each source", _METHOD, "-c")] = None
    lengths: Annotated[
        str | None, option("--lengths", "of the chains: best, top, or drawn", _METHOD)
    ] = None
    pick: Annotated[
        str | None,
        option("--pick", "last sample, lowest energy a token, or mbr over the chains", _METHOD),
    ] = None
    beam: Annotated[int | None, option("--beam", "of ar; 5 unless given, 1 is greedy", _METHOD)] = (
        None
    )
    length_power: Annotated[
        float | None, option("--length-power", "ar ranks by log p / length^this; 1", _METHOD)
    ] = None

    every_chain: Annotated[
        bool, option("--every-chain", "print all chains instead of one pick", _RUN)
    ] = False
    seed: Annotated[int, option("--seed", "of all random numbers", _RUN, "-s")] = 0
    out: Annotated[Path | None, option("--out", "run folder to write", _RUN, "-o")] = None
    token_budget: Annotated[
        int | None, option("--token-budget", "tokens a model call; found by itself", _RUN)
    ] = None
    resident: Annotated[
        int | None,
        option("--resident", "chains of a group, at once on a device; found by itself", _RUN),
    ] = None
    threads: Annotated[
        int | None,
        option("--threads", "of each process on a CPU; all cores, or 1 with workers", _RUN),
    ] = None
    json: Annotated[bool, option("--json", "JSON lines on standard output", _RUN)] = False
    quiet: Annotated[bool, option("--quiet", "no progress", _RUN, "-q")] = False

    def build_method(self) -> TranslationMethod:
        """Return the method; options it makes no use of are refused."""
        known = {field.name for field in fields(TranslationMethod)} - {"name"}
        return TranslationMethod(self.method, **{name: getattr(self, name) for name in known})


@takes_options(TranslatingOptions)
def translate(
    options: TranslatingOptions,
    source: Annotated[
        str, typer.Argument(metavar="FILE|-", help="texts, one a line (- for standard input)")
    ],
) -> None:
    """Translate lines with a conditional masked model, or with its autoregressive twin."""
    method = options.build_method()
    if options.method == "ar" and options.out is not None:
        raise InputError("'ar' runs no chains that a folder could hold: drop --out.")
    if options.method == "ar" and options.token_budget is not None:
        raise InputError("the method 'ar' makes no use of --token-budget: drop it.")
    workers = options.build_workers(options.threads)
    if options.method == "ar" and not (workers.here and workers.threads is None):
        raise InputError("'ar' runs no chains to share out: drop --workers, --engine, --threads.")
    if options.method == "ar" and options.resident is not None:
        raise InputError("the method 'ar' makes no use of --resident: drop it.")
    if options.method != "ar" and options.twin is not None:
        raise InputError(f"the method '{options.method}' makes no use of --twin: drop it.")
    if options.token_budget is not None and options.token_budget < 1:
        raise InputError(f"--token-budget must be at least 1, not {options.token_budget}.")
    if options.out is not None:
        RunFolder.check_free(options.out)
    name = _named(options.model, options.pair, "translation")
    lines = read_lines(source, empty=True)
    model = load(name, options.device, options.precision)
    if not isinstance(model, ConditionalModel):
        raise InputError(f"'{name}' reads no source: give a translation model.")
    twin = _load_twin(options) if options.method == "ar" else None
    settings: dict[str, Any] = {}
    if options.method != "ar":
        settings = {
            "seed": options.seed,
            "out": options.out,
            "token_budget": options.token_budget,
            "resident": options.resident,
            "workers": workers,
            "source": {"name": findable(name)},
        }
    with stop_on_signals() as stop:
        try:
            with ExitStack() as stack:
                if options.method != "ar":
                    view = progress_for(model, method.sweeps, options.quiet)
                    if view is not None:
                        stack.enter_context(view)
                    settings |= {"listener": view, "stop": stop}
                found = translate_lines(model, lines, method, twin, options.every_chain, **settings)
        except (Interrupted, KeyboardInterrupt):
            if options.out is not None:
                say(f"stopped and saved; go on with: maskov resume {options.out}")
            else:
                say("stopped; nothing was kept (with --out a run can be resumed)")
            raise typer.Exit(stop.exit_code) from None
    if options.json:
        print_json(translation.to_json() for translation in found)
    else:
        print_json(translation.text for translation in found)


def _named(name: str | None, pair: str | None, kind: str) -> str:
    """Return the model that was asked for, by its name or by its languages."""
    if name is not None:
        return name
    if pair is None:
        raise InputError("say what to translate: --pair, such as de-en, or --model.")
    return model_for(pair, kind)


def _load_twin(options: TranslatingOptions) -> AutoregressiveTranslator:
    name = _named(options.twin, options.pair, "twin")
    return AutoregressiveTranslator.load(
        folder_of(name) or Path(name), choose_device(options.device), name
    )
