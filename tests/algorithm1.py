"""The paper's Algorithm 1 as written, in plain Hugging Face code: slow, obvious, and separate.

Nothing here uses the package but its random numbers, so that both can be given the same ones.
FIELD's readings apply: line 8 uses the masked sequence, and the proposal's two probabilities come
from the same masked pass.
"""

from __future__ import annotations

import math

import torch


def logits_at(network, framed: list[int], place: int, mask_id: int) -> torch.Tensor:
    """Run one masked copy and return the scores at its mask (content positions follow [CLS])."""
    ids = list(framed)
    ids[place + 1] = mask_id
    return network(input_ids=torch.tensor([ids])).logits[0, place + 1].double()


def energy(network, framed, mask_id, kind: str) -> float:
    """Sum over the positions, each masked alone."""
    total = 0.0
    for place in range(len(framed) - 2):
        scores = logits_at(network, framed, place, mask_id)
        token = framed[place + 1]
        total -= float(scores[token] if kind == "raw" else scores.log_softmax(0)[token])
    return total


def step(network, framed, place, mask_id, forbidden, kind, target_temperature, u_token, u_accept):
    """Make one step; return the sequence after it, the proposed token and the decision."""
    old = energy(network, framed, mask_id, kind)
    scores = logits_at(network, framed, place, mask_id)
    log_q = scores.masked_fill(forbidden, -math.inf).log_softmax(0)
    running, token = 0.0, -1
    for candidate, chance in enumerate(log_q.exp().tolist()):
        running += chance
        if chance > 0 and running > u_token:
            token = candidate
            break
    proposed = list(framed)
    proposed[place + 1] = token
    new = energy(network, proposed, mask_id, kind)
    ratio = (old - new) / target_temperature + float(log_q[framed[place + 1]] - log_q[token])
    accepted = u_accept < math.exp(min(0.0, ratio))
    return (proposed if accepted else framed), token, accepted
