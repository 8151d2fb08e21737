"""Greedy and beam search with a causal decoder: the most probable translation, as far as found."""

from __future__ import annotations

import math

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel

from maskov.models.conditional.network import Kept, Network, added
from maskov.models.conditional.special_tokens import Marks
from maskov.types import Bool, Float, Int, Tensor

# The host asks how many have ended only so often: every answer makes it wait for the device.
_ASK_EVERY = 4
# cuDNN's attention would be built anew for every length of the past.
_ATTENTIONS = [SDPBackend.FLASH_ATTENTION, SDPBackend.EFFICIENT_ATTENTION, SDPBackend.MATH]


@torch.no_grad()
def search(
    network: Network,
    source: Int[Tensor, "n s"],
    inside: Bool[Tensor, "n s"],
    marks: Marks,
    forbidden: Bool[Tensor, " vocabulary"],
    beam: int = 1,
    length_power: float = 1.0,
) -> tuple[list[list[int]], Float[Tensor, " n"]]:
    """Return the best translation found of each source, and its log-probability.

    Hypotheses are ranked by log p / length^`length_power`, the end counted; those that have ended
    stay in the beam as they are. Greedy search is a beam of one. A translation has at most half
    as many tokens again as the longest source, and ten; none of `forbidden` is ever written.
    """
    count = len(source)
    longest = int(inside.sum(1).max())
    limit = min(network.shape.longest - 1, math.ceil(1.5 * longest) + 10)
    with sdpa_kernel(_ATTENTIONS):
        beams = _Beams(network, source, inside, marks, forbidden, beam, length_power, limit)
        tokens = torch.full((count, limit + 1), marks.pad, device=source.device)
        score = torch.zeros(count, device=source.device)
        left = count
        for place in range(limit + 1):
            beams.step(place, last=place == limit)
            if place % _ASK_EVERY == _ASK_EVERY - 1 or place == limit:
                still = ~beams.ended.all(1)
                left = int(still.sum())
                if 2 * left < len(still) or place == limit:
                    beams.report(tokens, score)
                    beams.drop(still.nonzero().squeeze(1))
            if left == 0:
                break
    lines = tokens.tolist()
    texts = [line[: line.index(marks.end)] if marks.end in line else line for line in lines]
    return texts, score


class _Beams:
    """The hypotheses of all sources that are still searched, those of one source in a row."""

    def __init__(
        self,
        network: Network,
        source: Int[Tensor, "n s"],
        inside: Bool[Tensor, "n s"],
        marks: Marks,
        forbidden: Bool[Tensor, " vocabulary"],
        beam: int,
        length_power: float,
        limit: int,
    ) -> None:
        self.network, self.marks = network, marks
        self.beam, self.length_power = beam, length_power
        count, device = len(source), source.device
        memory, mask, _ = network.read(source, inside)
        self.memory = [_rows(kept, beam) for kept in network.remember(memory)]
        self.memory_mask = mask.repeat_interleave(beam, 0)
        self.past = network.room(count * beam, limit + 1)
        self.tokens = torch.full((count, beam, limit + 1), marks.pad, device=device)
        self.latest = torch.full((count * beam,), marks.begin, device=device)
        # At first all hypotheses of a source are the same; only one of them may be continued.
        self.score = torch.full((count, beam), -torch.inf, device=device)
        self.score[:, 0] = 0.0
        self.ended = torch.zeros((count, beam), dtype=torch.bool, device=device)
        self.length = torch.zeros((count, beam), device=device)
        self.number = torch.arange(count, device=device)  # which of the sources each is
        never = forbidden.clone()
        never[marks.end] = False
        self._never = added(~never, torch.float32)
        only_end = torch.zeros_like(never)
        only_end[marks.end] = True
        self._only_end = added(only_end, torch.float32)
        only_pad = torch.zeros_like(never)
        only_pad[marks.pad] = True
        self._only_pad = added(only_pad, torch.float32)

    def step(self, place: int, last: bool) -> None:
        """Continue every hypothesis by a token, by the end if it is the last."""
        states = self.network.decode_next(
            self.latest, place, self.memory, self.memory_mask, self.past
        )
        found = self.network.scores(states.float()).log_softmax(1)
        found = found + (self._only_end if last else self._never)
        found = found.view(*self.ended.shape, -1)
        # What has ended is only padded.
        found = torch.where(self.ended[:, :, None], self._only_pad, found)
        total = self.score[:, :, None] + found
        length = self.length + ~self.ended
        rank = total / length[:, :, None] ** self.length_power
        best = rank.flatten(1).topk(self.beam, dim=1).indices
        size = found.shape[2]
        parent, token = best // size, best % size
        self.score = total.flatten(1).gather(1, best)
        self.length = length.gather(1, parent)
        self.ended = self.ended.gather(1, parent) | (token == self.marks.end)
        self.latest = token.flatten()
        if self.beam > 1:
            rows = torch.arange(len(parent), device=parent.device)[:, None]
            self.tokens = self.tokens[rows, parent]
            chosen = (rows * self.beam + parent).flatten()
            # Only what is written so far; the rest is still empty.
            for whole in (tensor for kept in self.past for tensor in kept):
                whole[:, :, : place + 1] = whole[chosen, :, : place + 1]
        self.tokens[:, :, place] = token

    def report(self, tokens: Int[Tensor, "n limit"], score: Float[Tensor, " n"]) -> None:
        """Write the best hypothesis of each source."""
        winner = (self.score / self.length.clamp(min=1) ** self.length_power).argmax(1)
        rows = torch.arange(len(winner), device=winner.device)
        tokens[self.number] = self.tokens[rows, winner]
        score[self.number] = self.score[rows, winner]

    def drop(self, kept: Int[Tensor, " left"]) -> None:
        """Go on with some of the sources only."""
        each = torch.arange(self.beam, device=kept.device)
        rows = (kept[:, None] * self.beam + each).flatten()
        self.memory = [(key[rows], value[rows]) for key, value in self.memory]
        self.past = [(key[rows], value[rows]) for key, value in self.past]
        self.memory_mask, self.latest = self.memory_mask[rows], self.latest[rows]
        self.tokens, self.score, self.ended = self.tokens[kept], self.score[kept], self.ended[kept]
        self.length, self.number = self.length[kept], self.number[kept]


def _rows(kept: Kept, beam: int) -> Kept:
    """Repeat keys and values for each hypothesis."""
    if beam == 1:
        return kept
    return kept[0].repeat_interleave(beam, 0), kept[1].repeat_interleave(beam, 0)
