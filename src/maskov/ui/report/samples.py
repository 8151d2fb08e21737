"""The samples of a report: as people read them, similar ones of a chain in groups, a few first."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from maskov.config import Manifest
from maskov.runs import Sample
from maskov.ui.detokenise import detokenised, readable_spans
from maskov.ui.report.curves import spaced
from maskov.ui.report.terms import Terms
from maskov.ui.similar import are_similar, similar_groups

# Samples at the top of a report, and how many are looked at where chains are few.
FIRST_SAMPLES = 5
_LOOKED_AT = 50


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
    groups = similar_groups(samples)
    rows = zip(samples, terms, groups, strict=True)
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
