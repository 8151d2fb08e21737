"""What coarser passes do to energies, measured before a run begins."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from maskov.execution.scorer import Engine
from maskov.models.base import MaskedModel
from maskov.types import ChainState

_MEASURED = 16


@dataclass(frozen=True)
class Shift:
    """How far energies move when passes are coarser: |E − E_exact| over some sequences."""

    precision: str
    sequences: int
    raw_mean: float
    raw_most: float
    norm_mean: float
    norm_most: float

    def __str__(self) -> str:
        return (
            f"{self.precision} shifts E_raw by {self.raw_mean:.3g} on average (at most "
            f"{self.raw_most:.3g}) and E_norm by {self.norm_mean:.3g} (at most "
            f"{self.norm_most:.3g}) on {self.sequences} of the starting sequences; acceptance is "
            "decided by these energies"
        )


def measure_shift(
    model: MaskedModel, exact: MaskedModel, state: ChainState, precision: str
) -> Shift:
    """Compare the energies of the first chains with those of the exact model."""
    first = state.rows(torch.arange(min(_MEASURED, len(state.chain)), device=state.chain.device))
    energies = []
    for one in (model, exact):
        sites = Engine(one).sites(first.to(one.device).sequences)
        raw, log_normaliser = -sites.logit, sites.log_normaliser
        terms = torch.stack([raw, raw + log_normaliser]).cpu()
        energies.append(torch.where(first.inside.cpu(), terms, 0.0).sum(2))
    raw_shift, norm_shift = (energies[0] - energies[1]).abs()
    return Shift(
        precision, len(first.chain), float(raw_shift.mean()), float(raw_shift.max()),
        float(norm_shift.mean()), float(norm_shift.max()),
    )  # fmt: skip
