"""The one accept/reject decision in the package."""

from __future__ import annotations

from maskov.types import Bool, Float, Tensor


def accept(log_ratio: Float[Tensor, " n"], uniform: Float[Tensor, " n"]) -> Bool[Tensor, " n"]:
    """Accept with probability min(1, exp(log_ratio)); not-a-number is never accepted."""
    return uniform.log() < log_ratio
