"""The pilot: what delayed acceptance would have gained on proposals that were tested in full.

For each choice of `nearest` it adds up the probability of acceptance and the passes that would
have been needed. Moves accepted per pass decide; plain acceptance wins a near tie, since one test
accepts at least as often as two.
"""

from __future__ import annotations

import torch

from maskov.energies.stages import near
from maskov.types import Float, Tensor

# 0 is no early test.
CHOICES = (0, 1, 2, 3, 4, 6, 8, 12)
_WORTH = 1.1


def expectations(
    chosen: Tensor,
    known: Tensor,
    terms: Tensor,
    place: Tensor,
    lengths: Tensor,
    width: int,
    beta: Tensor,
    tested: bool,
) -> Float[Tensor, "choices 2"]:
    """Return, for each choice, the expected moves and passes of the chosen proposals.

    `known` is the log-ratio as it is before any masked pass; it is `tested` by itself where the
    energy has other parts.
    """
    rows = []
    others = near(place, lengths, width, None)
    exact = known + torch.where(others, terms, 0.0).sum(1) * beta
    # A move whose reverse is impossible costs nothing in any case.
    counted = chosen & (known > -torch.inf)
    start = known if tested else torch.zeros_like(known)
    begun = start.clamp(max=0.0)
    for nearest in CHOICES:
        first = near(place, lengths, width, nearest)
        early = known + torch.where(first, terms, 0.0).sum(1) * beta if nearest else start
        passed = begun + (early - start).clamp(max=0.0)
        # What the first test cannot pass never meets the second.
        moves = torch.where(passed > -torch.inf, passed + (exact - early).clamp(max=0.0), passed)
        moves = moves.exp()
        passes = begun.exp() * first.sum(1) + passed.exp() * (others & ~first).sum(1)
        rows.append(torch.stack([torch.where(counted, x, 0.0).sum() for x in (moves, passes)]))
    return torch.stack(rows).double()


def choose(table: Float[Tensor, "choices 2"]) -> tuple[int, float]:
    """Return the best `nearest` and how many times more moves per pass it promises."""
    moves, passes = table.double().cpu().unbind(1)
    worth = torch.where(passes > 0, moves / passes, 0.0).nan_to_num()
    best = int(worth.argmax())
    if not worth[0] > 0 or worth[best] < _WORTH * worth[0]:
        return 0, 1.0
    return CHOICES[best], float(worth[best] / worth[0])
