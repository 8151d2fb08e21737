"""Select one translation from the chains of a source."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch

from maskov.energies import parse_energy
from maskov.evaluation.risk import most_alike
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


def lowest_target(samples: Sequence[Sample]) -> Sample:
    """Return the sample with the lowest energy of the target; the first in case of ties.

    Epochs that accept everything have no target, and are left out.
    """
    known = [one for one in samples if not math.isnan(one.energies["target"])]
    return min(known or samples, key=lambda sample: sample.energies["target"])


def least_risk(samples: Sequence[Sample]) -> Sample:
    """Return the sample of minimum Bayes risk."""
    return samples[most_alike([sample.text for sample in samples])]
