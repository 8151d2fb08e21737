"""How long each translation is to be: the likeliest length, one of the best few, or a draw."""

from __future__ import annotations

import torch

from maskov.errors import InputError
from maskov.models.conditional.model import ConditionalModel
from maskov.random import CounterRng, Purpose, categorical

RULES = ("best", "top", "drawn")


def choose_lengths(model: ConditionalModel, rule: str, chains: int, seed: int) -> list[list[int]]:
    """Return the lengths of the chains of each source.

    `best` gives all of them the likeliest length, `top` the likeliest ones from the first on,
    and `drawn` lets each chain draw its own.
    """
    if rule not in RULES:
        raise InputError(f"unknown rule for lengths '{rule}'; use one of {', '.join(RULES)}.")
    scores = model.length_scores()
    if rule == "best":
        found = scores.argmax(1, keepdim=True).expand(-1, chains)
    elif rule == "top":
        if chains > model.max_length:
            raise InputError(f"'{model.name}' has no more than {model.max_length} lengths to try.")
        found = scores.topk(chains, dim=1).indices
    else:
        count = scores.shape[0] * chains
        chain = torch.arange(count, device=scores.device)
        uniform = CounterRng(seed).uniform(chain, torch.zeros_like(chain), Purpose.LENGTH)
        chances = scores.exp().repeat_interleave(chains, dim=0)
        found = categorical(chances, uniform).view(-1, chains)
    return [[int(length) for length in row] for row in found.tolist()]
