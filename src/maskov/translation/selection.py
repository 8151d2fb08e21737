"""Select one translation from the chains of a source."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from maskov.energies import parse_energy
from maskov.errors import InputError
from maskov.runs.sample import Sample

PICKS = ("last", "lowest", "mbr")


def energy_per_token(sample: Sample, energy: str) -> float:
    """Return an energy per token, to compare lengths: raw, norm or a sum of these."""
    logit = torch.tensor(-sample.energy_raw, dtype=torch.float64)
    value = parse_energy(energy).of_scores(logit, logit + sample.energy_norm)
    return float(value) / len(sample.ids)


def lowest(samples: Sequence[Sample], energy: str) -> Sample:
    """Return the sample with the lowest energy per token; the first in case of ties."""
    return min(samples, key=lambda sample: energy_per_token(sample, energy))


def least_risk(samples: Sequence[Sample]) -> Sample:
    """Return the sample of minimum Bayes risk: the most similar to all others by chrF."""
    if len(samples) < 2:
        return samples[0]
    try:
        from sacrebleu.metrics.chrf import CHRF
    except ImportError as error:
        raise InputError("--pick mbr needs sacreBLEU: pip install 'maskov[evaluate]'.") from error
    metric = CHRF()
    texts = [sample.text for sample in samples]
    # Each distinct text is compared once.
    distinct = list(dict.fromkeys(texts))

    def gain(text: str) -> float:
        alike = (metric.sentence_score(text, [other]).score for other in distinct)
        return float(sum(texts.count(o) * a for o, a in zip(distinct, alike, strict=True)))

    best = max(distinct, key=gain)
    return samples[texts.index(best)]
