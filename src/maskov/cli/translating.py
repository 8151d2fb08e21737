"""The command `translate`."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from maskov.cli.dataclass_options import FIRST, option, takes_options
from maskov.cli.model_options import findable
from maskov.cli.output import print_json, read_lines, say
from maskov.cli.signals import stop_on_signals
from maskov.cli.workers import WorkerOptions
from maskov.config import ModelSource
from maskov.errors import InputError, Interrupted
from maskov.shipped import folder_of, model_for

if TYPE_CHECKING:
    from maskov.translation.autoregressive import AutoregressiveTranslator
    from maskov.translation.methods import TranslationMethod

_MODEL = "Advanced: model"
_METHOD = "Advanced: method"
_RUN = "Advanced: run"
_METHODS = "greedy, mask-predict, gibbs, block-gibbs, mh, block-mh or ar"


@dataclass(frozen=True)
class TranslatingOptions(WorkerOptions):
    """The options of `translate`."""

    pair: Annotated[str | None, option("--pair", "languages, such as de-en or ro-en", FIRST)] = None
    model: Annotated[str | None, option("--model", "masked model: name or folder", FIRST, "-m")] = (
        None
    )
    twin: Annotated[
        str | None, option("--twin", "autoregressive model for --method ar", _MODEL)
    ] = None
    device: Annotated[str, option("--device", "auto, cpu, cuda, cuda:1 ...", _MODEL)] = "auto"
    precision: Annotated[
        str, option("--precision", "float32, float64, or coarser: tf32, bfloat16", _MODEL)
    ] = "float32"

    method: Annotated[str, option("--method", _METHODS, FIRST)] = "mask-predict"
    energy: Annotated[
        str | None, option("--energy", "target of mh: raw (default), norm, or a sum", FIRST, "-e")
    ] = None
    iterations: Annotated[
        int | None, option("--iterations", "iterations of mask-predict (default: 10)", _METHOD)
    ] = None
    length_beam: Annotated[
        int | None, option("--length-beam", "lengths tried by mask-predict (default: 5)", FIRST)
    ] = None
    epochs: Annotated[
        int | None, option("--epochs", "sweeps over the target (default: 33)", _METHOD, "-n")
    ] = None
    temperature: Annotated[
        float | None, option("--temperature", "temperature of the proposal (default: 0.8)", _METHOD)
    ] = None
    target_temperature: Annotated[
        float | None, option("--target-temperature", "initial T in p ∝ exp(-E/T)", _METHOD)
    ] = None
    anneal: Annotated[
        float | None, option("--anneal", "decrease of T per epoch (default: 0.02)", _METHOD)
    ] = None
    target_floor: Annotated[
        float | None, option("--target-floor", "lowest T (default: 0.01)", _METHOD)
    ] = None
    force_accept: Annotated[
        int | None,
        option("--force-accept", "first epochs that accept everything (default: 8)", _METHOD),
    ] = None
    block: Annotated[
        int | None, option("--block", "positions masked together (default: 4)", _METHOD)
    ] = None
    block_anneal: Annotated[
        float | None,
        option("--block-anneal", "decrease of the block size (default: 0.2)", _METHOD),
    ] = None
    chains: Annotated[
        int | None, option("--chains", "chains per source (default: 1)", FIRST, "-c")
    ] = None
    lengths: Annotated[
        str | None, option("--lengths", "lengths of the chains: best, top or drawn", _METHOD)
    ] = None
    pick: Annotated[
        str | None,
        option("--pick", "last sample, lowest energy per token, or mbr over the chains", _METHOD),
    ] = None
    beam: Annotated[
        int | None, option("--beam", "beam of ar; 1 is greedy (default: 5)", _METHOD)
    ] = None
    length_power: Annotated[
        float | None,
        option("--length-power", "x in ar's log p / length^x (default: 1)", _METHOD),
    ] = None

    every_chain: Annotated[
        bool, option("--every-chain", "print all chains instead of one", _RUN)
    ] = False
    seed: Annotated[int, option("--seed", "random seed", _RUN, "-s")] = 0
    out: Annotated[Path | None, option("--out", "run folder to write", FIRST, "-o")] = None
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

    def build_method(self) -> TranslationMethod:
        """Return the method; options that it does not use are refused."""
        from maskov.translation.methods import DEFAULT_LENGTHS, TranslationMethod

        known = {field.name for field in fields(TranslationMethod)} - {"name"}
        chosen = {name: getattr(self, name) for name in known}
        if self.method == "mask-predict" and self.length_beam is None:
            chosen["length_beam"] = DEFAULT_LENGTHS
        return TranslationMethod(self.method, **chosen)


@takes_options(TranslatingOptions)
def translate(
    options: TranslatingOptions,
    source: Annotated[
        str, typer.Argument(metavar="FILE|-", help="texts, one per line (- for standard input)")
    ],
) -> None:
    """Translate lines with a conditional masked model or an autoregressive one."""
    from maskov.cli.terminal import progress_for, watched_stop
    from maskov.models import load
    from maskov.models.conditional.model import ConditionalModel
    from maskov.runs.folder import RunFolder
    from maskov.translation.api import translate as translate_lines

    method = options.build_method()
    workers = options.build_workers(options.threads)
    if options.method == "ar":
        if not workers.here:
            raise InputError("the method 'ar' runs no chains: drop --workers and --engine.")
        unused = ["out", "token_budget", "resident", "threads"]
    else:
        unused = ["twin"]
    for name in unused:
        if getattr(options, name) is not None:
            flag = name.replace("_", "-")
            raise InputError(f"the method '{options.method}' makes no use of --{flag}: drop it.")
    if options.token_budget is not None and options.token_budget < 1:
        raise InputError(f"--token-budget must be at least 1, not {options.token_budget}.")
    if options.out is not None:
        RunFolder.check_free(options.out)
    model_name = _named(options.model, options.pair, "translation")
    lines = read_lines(source, empty=True)
    model = load(model_name, options.device, options.precision)
    if not isinstance(model, ConditionalModel):
        raise InputError(f"'{model_name}' is not a translation model: it has no source.")
    twin = _load_twin(options) if options.method == "ar" else None
    settings: dict[str, Any] = {}
    if options.method != "ar":
        settings = {
            "seed": options.seed,
            "out": options.out,
            "token_budget": options.token_budget,
            "resident": options.resident,
            "workers": workers,
            "source": ModelSource(findable(model_name)),
        }
    with stop_on_signals() as stop:
        try:
            with ExitStack() as stack:
                if options.method != "ar":
                    view = progress_for(model, method.sweeps, options.quiet)
                    if view is not None:
                        stack.enter_context(view)
                    settings |= {"listener": view, "stop": watched_stop(stop, view)}
                translations = translate_lines(
                    model, lines, method, twin, options.every_chain, **settings
                )
        except (Interrupted, KeyboardInterrupt):
            if options.out is not None:
                say(f"stopped and saved; continue with: maskov resume {options.out}")
            else:
                say("stopped; nothing was saved (a run with --out can be resumed)")
            raise typer.Exit(stop.exit_code) from None
    print_json(
        translation.to_json() if options.json else translation.text for translation in translations
    )


def _named(name: str | None, pair: str | None, kind: str) -> str:
    """Return the name of the model, given directly or by its languages."""
    if name is not None:
        return name
    if pair is None:
        raise InputError("give the languages, such as --pair de-en, or --model.")
    return model_for(pair, kind)


def _load_twin(options: TranslatingOptions) -> AutoregressiveTranslator:
    from maskov.models import choose_device
    from maskov.translation.autoregressive import AutoregressiveTranslator

    name = _named(options.twin, options.pair, "twin")
    return AutoregressiveTranslator.load(
        folder_of(name) or Path(name), choose_device(options.device), name
    )
