"""Choose entries of a mask under a budget, in a fixed number of places."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from maskov.types import Bool, Int, Tensor


@dataclass(frozen=True)
class Chosen:
    """`index` lists the chosen entries; places beyond their number are not `valid`.

    `taken` marks them in the mask they were chosen from, `place` says where each is listed.
    """

    index: Int[Tensor, " places"]
    valid: Bool[Tensor, " places"]
    taken: Bool[Tensor, " entries"]
    place: Int[Tensor, " entries"]


def choose_first(
    wanted: Bool[Tensor, " entries"], cost: Int[Tensor, " entries"], budget: int, places: int
) -> Chosen:
    """Choose the first wanted entries whose costs together stay within the budget."""
    spent = torch.where(wanted, cost, 0).cumsum(0)
    place = wanted.long().cumsum(0) - 1
    taken = wanted & (spent <= budget) & (place < places)
    # Whatever is not taken goes to one place too many.
    target = torch.where(taken, place, places)
    entry = torch.arange(len(wanted), device=wanted.device)
    index = entry.new_zeros(places + 1).scatter_(0, target, entry)[:places]
    valid = torch.arange(places, device=wanted.device) < taken.sum()
    return Chosen(torch.where(valid, index, 0), valid, taken, place.clamp(0, places - 1))
