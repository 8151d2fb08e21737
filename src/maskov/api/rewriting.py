"""Rewrite texts from Python."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from maskov.api.arguments import (
    as_option,
    read_options,
    refuse_both,
    refuse_unused,
    takes_options,
)
from maskov.api.kinds import TextFunction
from maskov.api.sampling import OF_MODELS, OF_WORKERS
from maskov.energies import Energy
from maskov.errors import InputError
from maskov.fasta import Record
from maskov.models import MaskedModel
from maskov.options.rewriting import RewritingOptions
from maskov.rewriting import Rewriter, Rewriting
from maskov.runs.task_runner import Listener
from maskov.texts import Mask
from maskov.ui.terminal import progress_bar
from maskov.workers import Workers

# Options of the run, which a Rewriter does not have.
_OF_RUNS = (
    "every_chain", "seed", "out", "batch", "token_budget", "resident", "threads", "engine",
    "address", "gpus_per_worker",
)  # fmt: skip


@takes_options(RewritingOptions)
def rewrite(
    model: str | Path | MaskedModel,
    texts: Sequence[str | Record],
    toward: str | Energy | TextFunction | Rewriter | None = None,
    *,
    freeze: str | Sequence[Mask] | None = None,
    progress: bool = True,
    listener: Listener | None = None,
    stop: Callable[[], bool] | None = None,
    workers: int | Workers | None = None,
    **options: Any,
) -> list[Rewriting]:
    """Rewrite texts: sample texts like them that an expert prefers, and pick one of each.

        toward = "classifier(wiki-genre, label=news)"
        rewritten = maskov.rewrite("wiki-small", ["The film was released in May."], toward)

    `toward` is what texts should become: an energy by name, an Energy, a function that takes a list
    of texts and returns a number for each (low is good), or a whole `Rewriter`. Without it, name
    the words that texts should hold: `contains="river"`. Every option of
    `maskov rewrite` is a keyword of the same name with the same default, such as strength, keep,
    fluency, chains, epochs, pick, moves, contains, avoid, out. Texts may be records of FASTA
    (`read_fasta`): rewritings then carry their names and mutations, and unless `moves` asks for it
    no letter is inserted or deleted. Tokens that `freeze` names stay, as `sample` reads it. With
    `out`, a folder, finished texts are kept, and the same call continues after them. `progress`,
    `listener` and `stop` are those of `sample`; epochs of all batches are counted as of one run.
    """
    if isinstance(toward, Rewriter):
        own = [name for name in options if name not in (*_OF_RUNS, *OF_MODELS)]
        refuse_both(options, own, "a Rewriter")
    if isinstance(model, MaskedModel):
        refuse_both(options, OF_MODELS, "a model that is loaded")
    if isinstance(workers, Workers):
        refuse_both(options, OF_WORKERS, "Workers")
    refuse_unused(options)
    chosen = read_options(RewritingOptions, options)
    if isinstance(model, str | Path):
        name = str(model.resolve()) if isinstance(model, Path) else model
        chosen = replace(chosen, model=name)
    if not isinstance(toward, Rewriter):
        if toward is not None:
            chosen = replace(chosen, toward=as_option(RewritingOptions, "toward", toward))
        if not chosen.aims:
            raise InputError("give `toward`, what texts should become, or `contains`, a word.")
        chosen.build("cpu")  # refused before a model is loaded
    if not isinstance(workers, Workers):
        workers = replace(chosen, workers=workers).build_workers(chosen.threads)
    loaded = model if isinstance(model, MaskedModel) else chosen.load_model()
    records = any(isinstance(text, Record) for text in texts)
    rewriter = toward if isinstance(toward, Rewriter) else chosen.build(loaded.device, records)
    listening = listener is not None or not progress
    epochs = rewriter.all_epochs(loaded, len(texts), chosen.batch)
    with progress_bar(epochs, shown=not listening) as bar:
        return list(
            rewriter.rewrite(
                loaded,
                texts,
                freeze=freeze,
                seed=chosen.seed,
                batch=chosen.batch,
                every_chain=chosen.every_chain,
                out=chosen.out,
                listener=listener or bar,
                stop=stop,
                source=None if isinstance(model, MaskedModel) else chosen.source(),
                workers=workers,
                token_budget=chosen.token_budget,
                resident=chosen.resident,
            )
        )
