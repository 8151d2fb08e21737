"""Choose target lengths: the likeliest, one of the likeliest few, or a random draw."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from maskov.errors import InputError
from maskov.models.conditional.model import ConditionalModel
from maskov.random import CounterRng, Purpose, categorical

RULES = ("best", "top", "drawn", "searched")
# Of translations that start from drafts, as a manifest has it: nothing is chosen.
DRAFTED = "drafts"
# The likeliest lengths that a search tries.
SEARCHED = 5


def bounds_of(model: ConditionalModel, chosen: Sequence[Sequence[int]]) -> list[tuple[int, int]]:
    """Return the fewest and the most tokens of each source's translations, if lengths are sampled.

    They are half its likeliest length and half as much again, and hold the lengths `chosen` for its
    chains, which thus have one target.
    """
    found = []
    for best, lengths in zip(model.length_scores().argmax(1).tolist(), chosen, strict=True):
        most = min(model.max_length, best + best // 2 + 1)
        found.append((min((best + 1) // 2, *lengths), max(most, *lengths)))
    return found


def choose_lengths(model: ConditionalModel, rule: str, chains: int, seed: int) -> list[list[int]]:
    """Return the lengths of the chains of each source.

    `best` gives all chains the likeliest length, `top` gives chain i the i-th likeliest, and
    `drawn` draws each chain's length.
    """
    if rule not in RULES or rule == "searched":  # which needs passes
        raise InputError(f"unknown length rule '{rule}'; use one of {', '.join(RULES)}.")
    scores = model.length_scores()
    if rule == "best":
        lengths = scores.argmax(1, keepdim=True).expand(-1, chains)
    elif rule == "top":
        if chains > model.max_length:
            raise InputError(f"'{model.name}' has only {model.max_length} lengths to try.")
        lengths = scores.topk(chains, dim=1).indices
    else:
        count = scores.shape[0] * chains
        chain = torch.arange(count, device=scores.device)
        uniform = CounterRng(seed).uniform(chain, torch.zeros_like(chain), Purpose.LENGTH)
        chances = scores.exp().repeat_interleave(chains, dim=0)
        lengths = categorical(chances, uniform).view(-1, chains)
    return [[int(length) for length in row] for row in lengths.tolist()]
