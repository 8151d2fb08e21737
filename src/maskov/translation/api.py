"""Translate texts, line by line, with any of the methods."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any

import torch

from maskov import api
from maskov.arguments import Arguments, arguments_of, workers_of
from maskov.energies import Norm, Raw, parse_energy
from maskov.energies.networks import Loading
from maskov.energies.other_models import AutoregressiveTranslation
from maskov.errors import InputError, refuse
from maskov.models.autoregressive import DEFAULT_BEAM, AutoregressiveTranslator
from maskov.models.checkpoint import translation_folder
from maskov.models.conditional import ConditionalModel
from maskov.models.scorer import Scorer
from maskov.plan import execute, plan
from maskov.runs import Run, Sample
from maskov.runs.coordinator import Listener
from maskov.runs.store import Store
from maskov.texts import read_text
from maskov.translation.methods import (
    DRAFTS,
    OPTIONS,
    TranslationMethod,
    least_risk,
    lowest,
    lowest_target,
    method_of,
    named_model,
)
from maskov.types import padded
from maskov.workers import Workers


@dataclass(frozen=True)
class Translation:
    """A translation of a source, with its energies under the masked model.

    `chain` counts the chains of one source. An empty line has an empty translation with energies 0.
    """

    source: str
    text: str
    energy_raw: float
    energy_norm: float
    chain: int

    def to_json(self) -> str:
        """Return the translation as one line of JSON."""
        return json.dumps(asdict(self), ensure_ascii=False)


@dataclass(frozen=True)
class Task:
    """Texts to translate: by which models and method, and the settings of the run."""

    model: ConditionalModel
    texts: Sequence[str]
    method: TranslationMethod
    autoregressive: AutoregressiveTranslator | None
    every_chain: bool
    drafts: Sequence[str] | None
    settings: dict[str, Any]

    def translations(
        self, listener: Listener | None, stop: Callable[[], bool] | None
    ) -> list[Translation]:
        """Translate each text, in order: one of each, picked from its chains, or one of each chain.

        Empty lines stay empty.
        """
        method, drafts, found = self.method, None, list[Translation]()
        lines = [line for line, text in enumerate(self.texts) if text.strip()]
        if lines:
            numbers = [line + 1 for line in lines]
            given = self.model.given([self.texts[line] for line in lines], numbers)
            if method.name == "ar":
                assert self.autoregressive is not None
                found = _autoregressive(given, self.autoregressive, method, numbers)
            else:
                if self.drafts is not None:
                    drafts = [self.drafts[line] for line in lines]
                    for number, draft in zip(numbers, drafts, strict=True):
                        read_text(given, draft, f"draft {number}")  # refused by its line
                elif self.autoregressive is not None and method.needs_autoregressive:
                    drafts = drafts_of(given, self.autoregressive, numbers)
                own = self.settings | {"listener": listener, "stop": stop}
                run = run_method(given, method, drafts, **own)
                found = translations_of(run, method, self.every_chain)
        each, rest = len(found) // max(len(lines), 1), iter(found)
        return [
            translation
            for text in self.texts
            for translation in (
                islice(rest, each) if text.strip() else [Translation(text, "", 0.0, 0.0, 0)]
            )
        ]


def plan_translation(**given: Any) -> Task:
    """Return what to translate, and how, from the arguments of `maskov.translate`; or refuse."""
    kinds = (ConditionalModel, AutoregressiveTranslator, TranslationMethod)
    asked = arguments_of(api.translate, given, *kinds)
    if asked.texts is None:
        raise InputError("there is nothing to translate: give `texts`, a list.")
    if isinstance(asked.model, ConditionalModel):
        asked.refuse_both("a model that is loaded", "pair")
    method = asked.method
    if isinstance(method, TranslationMethod):
        asked.refuse_both("a TranslationMethod", *OPTIONS)
    else:
        method = method_of(asked)
    workers, drafts = workers_of(asked), asked.drafts
    _check_used(asked, method, workers)
    used = "method 'ar'" if method.name == "ar" else "start 'autoregressive'"
    refuse(
        (
            (drafts is not None) != (method.start == DRAFTS),
            "translations to start from are given as drafts, with the start 'drafts': both or "
            "none.",
        ),
        (
            drafts is not None and len(drafts) != len(asked.texts),
            f"there are {len(drafts or ())} drafts of {len(asked.texts)} lines: give one of each, "
            "an empty one of an empty line.",
        ),
        (
            method.needs_autoregressive and asked.autoregressive is None and asked.pair is None,
            f"the {used} needs an autoregressive model: give `autoregressive`.",
        ),
    )
    if asked.out is not None:
        Store.check_free(asked.out)
    if not isinstance(asked.model, ConditionalModel):
        asked.model = named_model(asked.model, asked.pair, "translation")
    given_model = asked.given_model()
    model = given_model.load(asked.precision)
    if not isinstance(model, ConditionalModel):
        raise InputError(f"'{model.name}' is not a translation model: it has no source.")
    writer = asked.autoregressive
    if method.needs_autoregressive and not isinstance(writer, AutoregressiveTranslator):
        name = named_model(writer, asked.pair, "autoregressive")
        folder = translation_folder(name, download=True) or Path(name)
        writer = AutoregressiveTranslator.load(folder, given_model.device, name)
    settings = {
        "seed": asked.seed, "out": asked.out, "token_budget": asked.token_budget,
        "resident": asked.resident, "workers": workers, "source": given_model.source,
    }  # fmt: skip
    return Task(model, asked.texts, method, writer, asked.every_chain, drafts, settings)


def _check_used(asked: Arguments, method: TranslationMethod, workers: Workers) -> None:
    """Refuse options of the run that the method does not use."""
    why = f"the method '{method.name}' makes no use of {{}}: drop it."
    if method.name == "ar":
        if not workers.here:
            raise InputError("the method 'ar' runs no chains: drop --workers.")
        asked.refuse(why, "out", "token_budget", "resident", "threads")
    elif not isinstance(asked.autoregressive, AutoregressiveTranslator):
        parts = () if method.energy is None else parse_energy(method.energy).parts
        used = any(isinstance(part, AutoregressiveTranslation) for _, part in parts)
        if not used and not method.needs_autoregressive:
            asked.refuse(why, "autoregressive")


def drafts_of(
    given: ConditionalModel, writer: AutoregressiveTranslator, lines: Sequence[int] | None = None
) -> list[str]:
    """Return the autoregressive model's translation of each source, to start chains from.

    Where the masked model cannot read it (it is empty, or too long), mask-predict's takes its
    place.
    """
    assert given.sources is not None
    texts = given.sources.texts
    ids = writer.translate(texts, DEFAULT_BEAM, lines=lines)
    drafts = [writer.tokenizer.decode(line).strip() for line in ids]
    for row, draft in enumerate(drafts):
        try:
            read_text(given, draft, "draft")
        except InputError:
            drafts[row] = api.translate(given, [texts[row]], progress=False)[0].text
    return drafts


def run_method(
    given: ConditionalModel,
    method: TranslationMethod,
    drafts: Sequence[str] | None = None,
    **settings: Any,
) -> Run:
    """Run the chains of a method over the sources of a model.

    A method that starts from translations needs `drafts`, one of each source.
    """
    if (drafts is not None) != method.from_drafts:
        raise InputError("a method that starts from translations, and no other, takes drafts.")
    listener, stop = settings.pop("listener", None), settings.get("stop")
    planned = plan(
        model=given,
        kernel=method.kernel(Loading(given.device)),
        schedule=method.schedule(),
        chains=method.many,
        lengths=method.length_rule,
        start=method.first_state,
        texts=drafts,
        thin=1 if method.pick == "lowest" else 0,
        trace="kept",
        **settings,
    )
    return execute(planned, listener, stop)


def translations_of(
    run: Run, method: TranslationMethod, every_chain: bool = False
) -> list[Translation]:
    """Return the translations of a run of non-empty sources, as many of each."""
    sources = run.manifest.inputs.sources or ()
    chains: list[list[Sample]] = [[] for _ in sources]
    for kept in run.samples:
        chains[kept.template].append(kept)
    found = []
    for source, samples in zip(sources, chains, strict=True):
        first = min(kept.chain for kept in samples)
        last = max(kept.epoch for kept in samples)
        ends = [kept for kept in samples if kept.epoch == last]
        chosen = ends if every_chain else [_selected(samples, ends, method)]
        found += [
            Translation(source, one.text, one.energy_raw, one.energy_norm, one.chain - first)
            for one in chosen
        ]
    return found


def _selected(samples: list[Sample], ends: list[Sample], method: TranslationMethod) -> Sample:
    """Select from all samples of a source, or from the last samples of its chains."""
    if method.pick == "lowest":
        # A target that weighs lengths compares them; any other does so per token.
        return lowest_target(samples) if method.compares_lengths else lowest(samples, method.target)
    if method.pick == "mbr":
        return least_risk(ends)
    if method.name == "mask-predict":
        # Candidates of several lengths: the most probable per token.
        return lowest(ends, "norm")
    return ends[0]


def _autoregressive(
    given: ConditionalModel,
    writer: AutoregressiveTranslator,
    method: TranslationMethod,
    lines: Sequence[int],
) -> list[Translation]:
    """Translate with the autoregressive model, and score with the masked one."""
    assert given.sources is not None
    texts = given.sources.texts
    power = 1.0 if method.length_power is None else method.length_power
    ids = writer.translate(texts, method.beam or DEFAULT_BEAM, power, lines)
    translated = [writer.tokenizer.decode(line).strip() for line in ids]
    raw, norm = energies_of(given, translated)
    rows = zip(texts, translated, raw, norm, strict=True)
    return [Translation(source, text, a, b, 0) for source, text, a, b in rows]


def energies_of(given: ConditionalModel, texts: Sequence[str]) -> tuple[list[float], list[float]]:
    """Return E_raw and E_norm of one translation of each source; 0 for empty ones."""
    ids = [given.encode(text)[: given.max_length] for text in texts]
    scorer, whole = Scorer(given), padded(ids, given.mask_id, given.device)
    whole = replace(whole, source=torch.arange(len(ids), device=given.device))
    whole = replace(whole, pass_cache=scorer.cache(whole))
    scorer.check()
    both = (energy(given, whole).tolist() for energy in (Raw(), Norm()))
    raw, norm = ([e if line else 0.0 for e, line in zip(each, ids, strict=True)] for each in both)
    return raw, norm
