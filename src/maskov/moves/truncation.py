"""Small functions from scores to scores that sharpen or cut a conditional distribution.

Each takes and returns unnormalised log-probabilities, −inf meaning impossible, so they can be
folded in any order; `MaskedConditional` states the one it uses.
"""

from __future__ import annotations

import torch

from maskov.types import Bool, Float, Tensor


def tempered(
    scores: Float[Tensor, "n vocabulary"], temperature: float
) -> Float[Tensor, "n vocabulary"]:
    """Divide by the temperature; at zero only the most probable token is left."""
    if temperature == 1:
        return scores
    if temperature == 0:
        return top_k(scores, 1)
    # Counted from the best, so that no temperature, however small, overflows.
    return (scores - scores.amax(1, keepdim=True)) / temperature


def top_k(scores: Float[Tensor, "n vocabulary"], count: int) -> Float[Tensor, "n vocabulary"]:
    """Keep the `count` most probable tokens; among equals, those that come first."""
    if count >= scores.shape[1]:
        return scores
    keep = torch.zeros_like(scores, dtype=torch.bool)
    if count == 1:  # the first of the largest; much faster than to sort
        best = scores.max(1, keepdim=True).indices
    else:
        best = scores.sort(dim=1, descending=True, stable=True).indices[:, :count]
    return _kept(scores, keep.scatter(1, best, True))


def top_p(scores: Float[Tensor, "n vocabulary"], mass: float) -> Float[Tensor, "n vocabulary"]:
    """Keep the smallest set of most probable tokens that holds at least `mass` (the nucleus)."""
    if mass >= 1:
        return scores
    ordered = scores.sort(dim=1, descending=True, stable=True)
    probabilities = ordered.values.softmax(1)
    # A token belongs to the nucleus while those before it hold less than the mass.
    needed = probabilities.cumsum(1) - probabilities < mass
    keep = torch.zeros_like(needed).scatter(1, ordered.indices, needed)
    return _kept(scores, keep)


def _kept(scores: Tensor, keep: Bool[Tensor, "n vocabulary"]) -> Tensor:
    return scores.masked_fill(~keep, -torch.inf)
