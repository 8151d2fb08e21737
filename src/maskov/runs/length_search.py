"""Choose target lengths by trying some: mask-predict at each, the lowest energy wins."""

from __future__ import annotations

from dataclasses import replace

from maskov.energies import Norm
from maskov.models.conditional.lengths import SEARCHED, choose_lengths
from maskov.models.conditional.model import ConditionalModel
from maskov.models.scorer import Scorer
from maskov.moves import MaskedConditional
from maskov.random import CounterRng
from maskov.starts import Layout, fill

# Sources whose candidates are held at once.
_AT_ONCE = 256


def search_lengths(model: ConditionalModel, chains: int, scorer: Scorer) -> list[list[int]]:
    """Return the lengths of the chains of each source: for all of them the best of a few.

    Mask-predict translates at each of the likeliest lengths; the one whose translation has the
    lowest E_norm per token is chosen, as mask-predict with several lengths does.
    """
    count = min(SEARCHED, model.max_length)
    tried = choose_lengths(model, "top", count, 0)
    layout = Layout.of_sources(model, tried)
    found: list[list[int]] = []
    for first in range(0, len(tried), _AT_ONCE):
        rows = range(first * count, min(first + _AT_ONCE, len(tried)) * count)
        width = max(len(layout.tokens[row]) for row in rows)
        blank = layout.chains(model, rows, width).to(model.device)
        filled = fill(blank, "mask-predict", MaskedConditional(), scorer, CounterRng(0)).sequences
        filled = replace(filled, sites=scorer.sites(filled))
        energy = (Norm()(model, filled) / filled.lengths).view(-1, count)
        best = filled.lengths.view(-1, count).gather(1, energy.argmin(1, keepdim=True))
        found += [[int(length)] * chains for length in best.flatten().tolist()]
    scorer.check()
    return found
