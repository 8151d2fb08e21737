"""The paper's Algorithm 1 as written, in plain Hugging Face code.

It uses none of the package's sampling code, so it is an independent reference for decisions and
for speed. We read line 8 as using the masked sequence; both proposal probabilities come from the
same masked pass. Sequences are framed by one special token on each side, such as [CLS] and [SEP].

A step runs 2T + 1 masked copies: T for the energy of the old sequence, one for the proposal, and T
for the energy of the new sequence. `copies` is the number of copies per batch: one as written, or
more, as a careful user would do.
"""

import math
from collections.abc import Sequence
from typing import Any

import torch

from maskov.types import Float, Tensor


def scores_at(
    network: Any, framed: Sequence[int], places: Sequence[int], mask_id: int
) -> Float[Tensor, "places vocabulary"]:
    """Mask each place in its own copy; return the logits at the masks, from one batch."""
    copies = torch.tensor([list(framed)] * len(places))
    rows, columns = torch.arange(len(places)), torch.tensor(places) + 1
    copies[rows, columns] = mask_id
    logits: Tensor = network(input_ids=copies.to(network.device)).logits
    return logits[rows, columns].double()


def energy(network: Any, framed: Sequence[int], mask_id: int, kind: str, copies: int = 1) -> float:
    """Return the energy: a sum over positions, each masked alone."""
    total, length = 0.0, len(framed) - 2
    for begin in range(0, length, copies):
        places = range(begin, min(begin + copies, length))
        scores = scores_at(network, framed, places, mask_id)
        if kind == "norm":
            scores = scores.log_softmax(1)
        tokens = torch.tensor([framed[place + 1] for place in places], device=scores.device)
        total -= float(scores.gather(1, tokens[:, None]).sum())
    return total


def step(
    network: Any,
    framed: list[int],
    place: int,
    mask_id: int,
    forbidden: Tensor,
    kind: str,
    target_temperature: float,
    u_token: float,
    u_accept: float,
    copies: int = 1,
) -> tuple[list[int], int, bool]:
    """Make one step; return the new sequence, the proposed token and whether it was accepted."""
    old = energy(network, framed, mask_id, kind, copies)
    scores = scores_at(network, framed, [place], mask_id)[0]
    log_q = scores.masked_fill(forbidden, -math.inf).log_softmax(0)
    # The first token whose cumulative probability exceeds the uniform number.
    token = int((log_q.exp().cumsum(0) > u_token).long().argmax())
    proposed = list(framed)
    proposed[place + 1] = token
    new = energy(network, proposed, mask_id, kind, copies)
    ratio = (old - new) / target_temperature + float(log_q[framed[place + 1]] - log_q[token])
    accepted = u_accept < math.exp(min(0.0, ratio))
    return (proposed if accepted else framed), token, accepted
