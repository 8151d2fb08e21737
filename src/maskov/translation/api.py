"""Translate texts, line by line, with any of the methods."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import torch

from maskov.energies import Norm, Raw
from maskov.energies.loading import Loading
from maskov.errors import InputError
from maskov.models.conditional.model import ConditionalModel
from maskov.models.scorer import Scorer
from maskov.runs import Run, Sample
from maskov.sampling import run_chains
from maskov.translation.autoregressive import AutoregressiveTranslator
from maskov.translation.methods import DEFAULT_LENGTHS, TranslationMethod
from maskov.translation.selection import least_risk, lowest, lowest_target
from maskov.types import Sequences


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


def translate_lines(
    model: ConditionalModel,
    texts: Sequence[str],
    method: TranslationMethod | None = None,
    twin: AutoregressiveTranslator | None = None,
    every_chain: bool = False,
    **settings: Any,
) -> list[Translation]:
    """Translate each text, in order; empty lines stay empty.

    Returns one translation per source, selected from its chains by `method.pick`, or with
    `every_chain` the last sample of each chain. `twin` is the autoregressive model that the method
    'ar' needs. The default method is mask-predict with five lengths. `settings` are passed to
    `run_chains`, such as `seed`, `out` or `listener`.
    """
    method = method or TranslationMethod(length_beam=DEFAULT_LENGTHS)
    lines = [line for line, text in enumerate(texts) if text.strip()]
    translations: dict[int, list[Translation]] = {}
    if lines:
        given = model.given([texts[line] for line in lines], [line + 1 for line in lines])
        if method.name == "ar":
            rows = _autoregressive(given, twin, method, [line + 1 for line in lines])
        else:
            rows = _sampled(run_method(given, method, **settings), method, every_chain)
        translations = dict(zip(lines, rows, strict=True))
    return [
        translation
        for line, text in enumerate(texts)
        for translation in translations.get(line, [Translation(text, "", 0.0, 0.0, 0)])
    ]


def run_method(given: ConditionalModel, method: TranslationMethod, **settings: Any) -> Run:
    """Run the chains of a method over the sources of a model."""
    return run_chains(
        given,
        method.kernel(Loading(given.device)),
        method.schedule(),
        chains=method.many,
        lengths=method.length_rule,
        start=method.first_state,
        thin=1 if method.pick == "lowest" else 0,
        trace="kept",
        **settings,
    )


def translations_of(
    run: Run, method: TranslationMethod, every_chain: bool = False
) -> list[Translation]:
    """Return the translations of a run of non-empty sources."""
    return [translation for row in _sampled(run, method, every_chain) for translation in row]


def _sampled(run: Run, method: TranslationMethod, every_chain: bool) -> list[list[Translation]]:
    sources = run.manifest.inputs.sources or ()
    chains: list[list[Sample]] = [[] for _ in sources]
    for kept in run.samples:
        chains[kept.template].append(kept)
    rows = []
    for source, samples in zip(sources, chains, strict=True):
        first = min(kept.chain for kept in samples)
        last = max(kept.epoch for kept in samples)
        ends = [kept for kept in samples if kept.epoch == last]
        chosen = ends if every_chain else [_selected(samples, ends, method)]
        rows.append([_translation(source, kept, kept.chain - first) for kept in chosen])
    return rows


def _translation(source: str, kept: Sample, chain: int) -> Translation:
    return Translation(source, kept.text, kept.energy_raw, kept.energy_norm, chain)


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
    twin: AutoregressiveTranslator | None,
    method: TranslationMethod,
    lines: Sequence[int],
) -> list[list[Translation]]:
    """Translate with the autoregressive model, and score with the masked one."""
    if twin is None:
        raise InputError("the method 'ar' needs an autoregressive model: give `twin`.")
    assert given.sources is not None
    texts = given.sources.texts
    power = 1.0 if method.length_power is None else method.length_power
    ids = twin.translate(texts, method.beam or 5, power, lines)
    translated = [twin.tokenizer.decode(line).strip() for line in ids]
    raw, norm = energies_of(given, translated)
    rows = zip(texts, translated, raw, norm, strict=True)
    return [[Translation(source, text, a, b, 0)] for source, text, a, b in rows]


def energies_of(given: ConditionalModel, texts: Sequence[str]) -> tuple[list[float], list[float]]:
    """Return E_raw and E_norm of one translation of each source; 0 for empty ones."""
    ids = [given.encode(text)[: given.max_length] for text in texts]
    device = given.device
    lengths = torch.tensor([max(1, len(line)) for line in ids], device=device)
    tokens = torch.full((len(ids), int(lengths.max())), given.mask_id, device=device)
    for row, line in enumerate(ids):
        tokens[row, : len(line)] = torch.tensor(line, dtype=torch.long, device=device)
    engine = Scorer(given)
    whole = Sequences(tokens, lengths, source=torch.arange(len(ids), device=device))
    sites = engine.sites(whole)
    engine.check()
    known = Sequences(tokens, lengths, sites, whole.source)
    nonempty = torch.tensor([bool(line) for line in ids], device=device)
    both = (torch.where(nonempty, energy(given, known), 0.0) for energy in (Raw(), Norm()))
    raw, norm = (values.tolist() for values in both)
    return raw, norm
