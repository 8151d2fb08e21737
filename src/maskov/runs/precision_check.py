"""Measure what coarser passes do to energies, before a run begins."""

from __future__ import annotations

import torch

from maskov.config import PrecisionCheck
from maskov.models.base import MaskedModel
from maskov.models.scorer import Scorer
from maskov.types import Chains

_MEASURED = 16


def check_precision(
    model: MaskedModel, exact: MaskedModel, chains: Chains, precision: str
) -> PrecisionCheck:
    """Compare the energies of the first chains with those of the exact model."""
    first = chains.rows(torch.arange(min(_MEASURED, len(chains.chain)), device=chains.chain.device))
    energies = []
    for one in (model, exact):
        sites = Scorer(one).sites(first.to(one.device).sequences)
        raw, log_normaliser = -sites.logit, sites.log_normaliser
        terms = torch.stack([raw, raw + log_normaliser]).cpu()
        energies.append(torch.where(first.inside.cpu(), terms, 0.0).sum(2))
    raw_shift, norm_shift = (energies[0] - energies[1]).abs()
    return PrecisionCheck(
        precision, len(first.chain), float(raw_shift.mean()), float(raw_shift.max()),
        float(norm_shift.mean()), float(norm_shift.max()),
    )  # fmt: skip
