"""Translate texts: from lines to lines, by any of the methods."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import torch

from maskov.energies import Norm, Raw
from maskov.errors import InputError
from maskov.models.conditional.model import ConditionalModel
from maskov.models.scorer import Scorer
from maskov.runs import Run, Sample
from maskov.sampling import sample
from maskov.translation.autoregressive import Twin
from maskov.translation.methods import Method
from maskov.translation.selection import least_risk, lowest
from maskov.types import Sequences


@dataclass(frozen=True)
class Translation:
    """One translation of one source, with its energies under the masked model.

    `chain` is the number of the chain among those of its source. The translation of an empty line
    is empty, and the energies of nothing are 0.
    """

    source: str
    text: str
    energy_raw: float
    energy_norm: float
    chain: int

    def to_json(self) -> str:
        """Return the translation as one line of JSON."""
        return json.dumps(asdict(self), ensure_ascii=False)


def translate(
    model: ConditionalModel,
    texts: Sequence[str],
    method: Method | None = None,
    twin: Twin | None = None,
    every_chain: bool = False,
    **settings: Any,
) -> list[Translation]:
    """Translate each text; the order is kept, and empty lines stay empty.

    `settings` are those of `maskov.sample`, such as `seed`, `out` or `listener`. One translation
    of each source is returned, picked from its chains as the method says, or with `every_chain`
    the last sample of each chain.
    """
    method = method or Method()
    lines = [line for line, text in enumerate(texts) if text.strip()]
    found: dict[int, list[Translation]] = {}
    if lines:
        given = model.given([texts[line] for line in lines], [line + 1 for line in lines])
        if method.name == "ar":
            each = _written(given, twin, method, [line + 1 for line in lines])
        else:
            each = _sampled(run_method(given, method, **settings), method, every_chain)
        found = dict(zip(lines, each, strict=True))
    return [
        translation
        for line, text in enumerate(texts)
        for translation in found.get(line, [Translation(text, "", 0.0, 0.0, 0)])
    ]


def run_method(given: ConditionalModel, method: Method, **settings: Any) -> Run:
    """Run the chains of a method over the sources that a model was given."""
    return sample(
        given,
        method.kernel(),
        method.schedule(),
        chains=method.many,
        lengths=method.length_rule,
        start="masked" if method.name in ("greedy", "mask-predict") else "greedy",
        thin=1 if method.pick == "lowest" else 0,
        trace="kept",
        **settings,
    )


def translations_of(run: Run, method: Method, every_chain: bool = False) -> list[Translation]:
    """Return the translations of a run of non-empty sources."""
    return [translation for row in _sampled(run, method, every_chain) for translation in row]


def _sampled(run: Run, method: Method, every_chain: bool) -> list[list[Translation]]:
    sources = run.manifest.inputs.sources or ()
    chains: list[list[Sample]] = [[] for _ in sources]
    for kept in run.samples:
        chains[kept.template].append(kept)
    rows = []
    for source, samples in zip(sources, chains, strict=True):
        first = min(kept.chain for kept in samples)
        last = max(kept.epoch for kept in samples)
        ends = [kept for kept in samples if kept.epoch == last]
        chosen = ends if every_chain else [_picked(samples, ends, method)]
        rows.append([_translation(source, kept, kept.chain - first) for kept in chosen])
    return rows


def _translation(source: str, kept: Sample, chain: int) -> Translation:
    return Translation(source, kept.text, kept.energy_raw, kept.energy_norm, chain)


def _picked(samples: list[Sample], ends: list[Sample], method: Method) -> Sample:
    """Choose among all samples of a source, or among those that its chains ended with."""
    if method.pick == "lowest":
        return lowest(samples, method.target)
    if method.pick == "mbr":
        return least_risk(ends)
    if method.name == "mask-predict":
        # Candidates of several lengths: the one the model is surest of, token by token.
        return lowest(ends, "norm")
    return ends[0]


def _written(
    given: ConditionalModel, twin: Twin | None, method: Method, lines: Sequence[int]
) -> list[list[Translation]]:
    """Let the twin write, and the masked model say what energy that has."""
    if twin is None:
        raise InputError("the method 'ar' needs the twin, a model that writes left to right.")
    assert given.sources is not None
    texts = given.sources.texts
    power = 1.0 if method.length_power is None else method.length_power
    ids = twin.translate(texts, method.beam or 5, power, lines)
    written = [twin.tokenizer.decode(line).strip() for line in ids]
    raw, norm = energies_of(given, written)
    rows = zip(texts, written, raw, norm, strict=True)
    return [[Translation(source, text, a, b, 0)] for source, text, a, b in rows]


def energies_of(given: ConditionalModel, texts: Sequence[str]) -> tuple[list[float], list[float]]:
    """Return E_raw and E_norm of one translation of each source; those of nothing are 0."""
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
    there = torch.tensor([bool(line) for line in ids], device=device)
    both = (torch.where(there, energy(given, known), 0.0) for energy in (Raw(), Norm()))
    raw, norm = (values.tolist() for values in both)
    return raw, norm
