"""The samples of a report: as people read them, similar ones of a chain in groups, a few first.

With the run's model, every token of a sample has its energy terms.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import count, takewhile

import torch

from maskov.config import Manifest
from maskov.energies import Norm, Raw
from maskov.models.base import MaskedModel
from maskov.models.scorer import Scorer
from maskov.runs import Sample
from maskov.types import Sequences
from maskov.ui.detokenise import detokenised, readable_spans
from maskov.ui.report.curves import spaced

# Samples at the top of a report, and how many are looked at where chains are few.
FIRST_SAMPLES = 5
_LOOKED_AT = 50
# Samples are similar if at most one token in so many differs.
_ONE_IN = 4
# Groups of a chain that a sample is compared with, the latest first.
_COMPARED = 10
# Samples that are scored together; their masked passes already fill the batches.
_SCORED = 64


@dataclass(frozen=True)
class Terms:
    """The terms of one sample, one per token; they sum to its energies."""

    raw: list[float]
    norm: list[float]


@dataclass(frozen=True)
class ShownSample:
    """A sample; `token_spans` splits its text into one span per token, or is None.

    Similar samples of a chain have the same `group`.
    """

    chain: int
    epoch: int
    text: str
    tokens: list[str]
    token_spans: list[str] | None
    energy_raw: float
    energy_norm: float
    source: str | None
    terms: Terms | None
    name: str | None = None
    mutations: list[str] | None = None
    group: int = 0
    energy_target: float | None = None

    def rank(self, order: str, per_token: bool) -> float:
        """Return an energy of the sample, or that of a token of it."""
        return float(getattr(self, f"energy_{order}")) / (len(self.tokens) or 1 if per_token else 1)


def target_energy(manifest: Manifest, samples: Sequence[Sample]) -> str:
    """Return which energy of the samples is that of the target, as far as they have it."""
    if samples and all("target" in sample.energies for sample in samples):
        return "target"
    return "norm" if manifest.energy == "norm" else "raw"


def shown_samples(
    manifest: Manifest, samples: Sequence[Sample], terms: Sequence[Terms | None]
) -> list[ShownSample]:
    """Return samples as they are shown."""
    rows = zip(samples, terms, similar_groups(samples), strict=True)
    return [_shown(manifest, sample, scored, group) for sample, scored, group in rows]


def first_samples(manifest: Manifest, samples: Sequence[Sample]) -> list[ShownSample]:
    """Return a few different samples: the last of chains, evenly chosen, then earlier ones.

    They are not the most probable: these would show a run in too good a light.
    """
    last = list({sample.chain: sample for sample in samples}.values())
    earlier = [samples[place] for place in spaced(len(samples), _LOOKED_AT)]
    chosen: list[Sample] = []
    for sample in (*(last[place] for place in spaced(len(last), FIRST_SAMPLES)), *earlier[::-1]):
        known = any(
            sample.text == other.text
            or (sample.chain == other.chain and are_similar(sample.ids, other.ids))
            for other in chosen
        )
        if not known:
            chosen.append(sample)
    return [_shown(manifest, sample, None, 0) for sample in chosen[:FIRST_SAMPLES]]


def _shown(manifest: Manifest, sample: Sample, terms: Terms | None, group: int) -> ShownSample:
    sources = manifest.inputs.sources
    return ShownSample(
        sample.chain,
        sample.epoch + 1,
        detokenised(sample.text, sample.tokens),
        sample.tokens,
        readable_spans(sample.text, sample.tokens),
        sample.energy_raw,
        sample.energy_norm,
        None if sources is None else sources[sample.template],
        terms,
        sample.name,
        sample.mutations,
        group,
        sample.energies.get("target"),
    )


def similar_groups(samples: Sequence[Sample]) -> list[int]:
    """Return the group of each sample, a number; similar samples of a chain have the same.

    A chain that moves slowly repeats itself.
    """
    leaders: dict[int, list[tuple[int, Sequence[int]]]] = defaultdict(list)
    numbers, fresh = list[int](), count()
    for sample in samples:
        known = leaders[sample.chain]
        latest = reversed(known[-_COMPARED:])
        number = next((group for group, ids in latest if are_similar(ids, sample.ids)), None)
        if number is None:
            number = next(fresh)
            known.append((number, sample.ids))
        numbers.append(number)
    return numbers


def are_similar(one: Sequence[int], other: Sequence[int]) -> bool:
    """Whether at most a quarter of the tokens differ.

    Of sequences of other lengths, the tokens between the first and the last difference count.
    """
    longest = max(len(one), len(other))
    if len(one) == len(other):
        differing = sum(a != b for a, b in zip(one, other, strict=True))
    else:
        shared = _shared(one, other)
        differing = longest - shared - _shared(one[shared:][::-1], other[shared:][::-1])
    return differing <= longest // _ONE_IN


def _shared(one: Sequence[int], other: Sequence[int]) -> int:
    """Return how many tokens two sequences begin with alike."""
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(one, other, strict=False)))


def score_samples(model: MaskedModel, samples: Sequence[Sample]) -> list[Terms]:
    """Return the terms of each sample; its text could be tokenised differently, so ids are used."""
    scorer = Scorer(model)
    terms: list[Terms] = []
    for begin in range(0, len(samples), _SCORED):
        group = samples[begin : begin + _SCORED]
        lengths = torch.tensor([len(sample.ids) for sample in group], device=model.device)
        tokens = torch.full((len(group), int(lengths.max())), model.mask_id, device=model.device)
        for row, sample in enumerate(group):
            tokens[row, : len(sample.ids)] = torch.tensor(sample.ids, device=model.device)
        source = torch.tensor([sample.template for sample in group], device=model.device)
        given = Sequences(tokens, lengths, source=source)
        given = replace(given, pass_cache=scorer.cache(given))
        scorer.check()
        raw, norm = (energy.terms(model, given).tolist() for energy in (Raw(), Norm()))
        terms += [
            Terms(raw[row][: len(sample.ids)], norm[row][: len(sample.ids)])
            for row, sample in enumerate(group)
        ]
    return terms
