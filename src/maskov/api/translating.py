"""Translate texts from Python."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

from maskov.api.arguments import read_options, refuse_both, takes_options
from maskov.api.sampling import OF_WORKERS
from maskov.config import ModelSource
from maskov.errors import InputError
from maskov.models.conditional.model import ConditionalModel
from maskov.options.translating import TranslatingOptions
from maskov.runs.task_runner import Listener
from maskov.translation.api import Translation, translate_lines
from maskov.translation.autoregressive import AutoregressiveTranslator
from maskov.translation.methods import TranslationMethod
from maskov.ui.terminal import progress_bar
from maskov.workers import Workers

_OF_MODELS = ("pair", "device", "precision", "remove_smoothing")
_OF_METHODS = tuple(one.name for one in fields(TranslationMethod) if one.name != "name")


@takes_options(TranslatingOptions)
def translate(
    model: str | Path | ConditionalModel | None = None,
    texts: Sequence[str] | None = None,
    method: str | TranslationMethod = "mask-predict",
    twin: str | Path | AutoregressiveTranslator | None = None,
    every_chain: bool = False,
    drafts: Sequence[str] | None = None,
    *,
    progress: bool = True,
    listener: Listener | None = None,
    stop: Callable[[], bool] | None = None,
    source: ModelSource | None = None,
    workers: int | Workers | None = None,
    **options: Any,
) -> list[Translation]:
    """Translate each text, in order; empty lines stay empty.

        maskov.translate(pair="de-en", texts=["Guten Morgen!"], method="mh", epochs=20)

    `model` is a name, a folder or a ConditionalModel; `pair` names the shipped one of two languages
    instead. Every option of `maskov translate` is a keyword of the same name with the same default;
    a `TranslationMethod` has those of its method itself. `twin` is the autoregressive model of the
    method 'ar' and of the start 'autoregressive'; `drafts` are translations to start the chains
    from, one of each text. Returns one translation of each text, picked from its chains, or with
    `every_chain` the last sample of each chain. `progress`, `listener` and `stop` are those of
    `sample`.
    """
    if texts is None:
        raise InputError("there is nothing to translate: give `texts`, a list.")
    if isinstance(model, ConditionalModel):
        refuse_both(options, _OF_MODELS, "a model that is loaded")
    if isinstance(method, TranslationMethod):
        refuse_both(options, _OF_METHODS, "a TranslationMethod")
    if isinstance(workers, Workers):
        refuse_both(options, OF_WORKERS, "Workers")
    chosen = read_options(TranslatingOptions, options)
    if isinstance(model, str | Path):
        chosen = replace(chosen, model=str(model))
    if isinstance(twin, str | Path):
        chosen = replace(chosen, twin=str(twin))
    if isinstance(method, str):
        chosen = replace(chosen, method=method)
        method = chosen.build_method(drafts is not None)
    else:
        chosen = replace(chosen, method=method.name, start=method.start)
    chosen.check_used()
    loaded = model if isinstance(model, ConditionalModel) else chosen.load_model()
    other = twin if isinstance(twin, AutoregressiveTranslator) else None
    if method.needs_twin and other is None and (chosen.twin or chosen.pair) is not None:
        other = chosen.load_twin()
    if method.name == "ar":
        return translate_lines(loaded, texts, method, other, every_chain, drafts)
    if not isinstance(model, ConditionalModel):
        source = source or chosen.source()
    if not isinstance(workers, Workers):
        workers = replace(chosen, workers=workers).build_workers(chosen.threads)
    listening = listener is not None or not progress
    with progress_bar(method.sweeps, shown=not listening) as bar:
        return translate_lines(
            loaded, texts, method, other, every_chain, drafts,
            seed=chosen.seed, out=chosen.out, token_budget=chosen.token_budget,
            resident=chosen.resident, workers=workers, source=source,
            listener=listener or bar, stop=stop,
        )  # fmt: skip
