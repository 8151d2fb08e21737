"""Groups of positions that one masked pass hides together: position t belongs to group t mod B.

The group of a position depends on the position and on B alone, never on the length of the sequence,
so that it stays the same whatever a move does.
"""

from __future__ import annotations

import torch

from maskov.types import Bool, Int, Tensor


def groups_with(marked: Bool[Tensor, "n length"], groups: int | None) -> Bool[Tensor, "n groups"]:
    """Mark the groups that hold a marked position; groups without any position are left out.

    Without `groups`, each position is one.
    """
    if groups is None:
        return marked
    width = marked.shape[1]
    count = min(groups, width)
    rows = -(-width // count)
    padded = torch.nn.functional.pad(marked, (0, rows * count - width))
    return padded.view(len(marked), rows, count).any(1)


def positions_of(held: Bool[Tensor, "n groups"], width: int) -> Bool[Tensor, "n length"]:
    """Mark the positions of the marked groups, those of padding included."""
    return held[:, torch.arange(width, device=held.device) % held.shape[1]]


def masked_with(
    place: Int[Tensor, " n"], inside: Bool[Tensor, "n length"], groups: int | None
) -> Bool[Tensor, "n length"]:
    """Mark what the pass of each place masks: the place alone, or its whole group."""
    position = torch.arange(inside.shape[1], device=place.device)
    if groups is None:
        return position == place[:, None]
    count = min(groups, inside.shape[1])
    return (position % count == place[:, None] % count) & inside


def unseen(changed: Bool[Tensor, "n length"], groups: int | None) -> Bool[Tensor, "n length"]:
    """Mark the positions whose pass saw none of the changes: the one group that holds them all."""
    held = groups_with(changed, groups)
    return positions_of(held, changed.shape[1]) & (held.sum(1) == 1)[:, None]
