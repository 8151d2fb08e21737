"""Greedy and beam search with a causal decoder."""

from __future__ import annotations

import math

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel

from maskov.models.conditional.network import KeyValues, SpecialTokens, TranslationNetwork, additive
from maskov.types import Bool, Float, Int, Tensor

# Steps between checks for finished sources: each check synchronises with the device.
_CHECK_EVERY = 4
# cuDNN attention is left out: it would be rebuilt for every length of the cache.
_ATTENTIONS = [SDPBackend.FLASH_ATTENTION, SDPBackend.EFFICIENT_ATTENTION, SDPBackend.MATH]


@torch.no_grad()
def search(
    network: TranslationNetwork,
    source: Int[Tensor, "n s"],
    inside: Bool[Tensor, "n s"],
    special: SpecialTokens,
    forbidden: Bool[Tensor, " vocabulary"],
    beam: int = 1,
    length_power: float = 1.0,
) -> tuple[list[list[int]], Float[Tensor, " n"]]:
    """Return the best translation found for each source, and its log-probability.

    Hypotheses are ranked by log p / length^`length_power`, end token counted; finished ones stay
    in the beam. A beam of 1 is greedy search. Translations have at most 1.5 times the tokens of
    the longest source, plus 10, and none of the `forbidden` tokens.
    """
    count = len(source)
    longest = int(inside.sum(1).max())
    limit = min(network.shape.longest - 1, math.ceil(1.5 * longest) + 10)
    with sdpa_kernel(_ATTENTIONS):
        beams = _Beams(network, source, inside, special, forbidden, beam, length_power, limit)
        tokens = torch.full((count, limit + 1), special.pad, device=source.device)
        score = torch.zeros(count, device=source.device)
        left = count
        for place in range(limit + 1):
            beams.step(place, last=place == limit)
            if place % _CHECK_EVERY == _CHECK_EVERY - 1 or place == limit:
                still = ~beams.ended.all(1)
                left = int(still.sum())
                if 2 * left < len(still) or place == limit:
                    beams.report(tokens, score)
                    beams.keep_only(still.nonzero().squeeze(1))
            if left == 0:
                break
    lines = tokens.tolist()
    texts = [line[: line.index(special.end)] if special.end in line else line for line in lines]
    return texts, score


class _Beams:
    """The hypotheses of all unfinished sources, one row of hypotheses per source."""

    def __init__(
        self,
        network: TranslationNetwork,
        source: Int[Tensor, "n s"],
        inside: Bool[Tensor, "n s"],
        special: SpecialTokens,
        forbidden: Bool[Tensor, " vocabulary"],
        beam: int,
        length_power: float,
        limit: int,
    ) -> None:
        self.network, self.special = network, special
        self.beam, self.length_power = beam, length_power
        count, device = len(source), source.device
        memory, mask, _ = network.read(source, inside)
        self.memory = [_repeated(pair, beam) for pair in network.cross_key_values(memory)]
        self.memory_mask = mask.repeat_interleave(beam, 0)
        self.past = network.empty_cache(count * beam, limit + 1)
        self.tokens = torch.full((count, beam, limit + 1), special.pad, device=device)
        self.latest = torch.full((count * beam,), special.begin, device=device)
        # At first all hypotheses of a source are equal, so only one may be extended.
        self.score = torch.full((count, beam), -torch.inf, device=device)
        self.score[:, 0] = 0.0
        self.ended = torch.zeros((count, beam), dtype=torch.bool, device=device)
        self.length = torch.zeros((count, beam), device=device)
        self.number = torch.arange(count, device=device)  # the index of each row's source
        never = forbidden.clone()
        never[special.end] = False
        self._never = additive(~never, torch.float32)
        only_end = torch.zeros_like(never)
        only_end[special.end] = True
        self._only_end = additive(only_end, torch.float32)
        only_pad = torch.zeros_like(never)
        only_pad[special.pad] = True
        self._only_pad = additive(only_pad, torch.float32)

    def step(self, place: int, last: bool) -> None:
        """Extend every hypothesis by a token; by the end token in the last step."""
        states = self.network.decode_next(
            self.latest, place, self.memory, self.memory_mask, self.past
        )
        log_p = self.network.scores(states.float()).log_softmax(1)
        log_p = log_p + (self._only_end if last else self._never)
        log_p = log_p.view(*self.ended.shape, -1)
        # Finished hypotheses are only padded.
        log_p = torch.where(self.ended[:, :, None], self._only_pad, log_p)
        total = self.score[:, :, None] + log_p
        length = self.length + ~self.ended
        rank = total / length[:, :, None] ** self.length_power
        best = rank.flatten(1).topk(self.beam, dim=1).indices
        size = log_p.shape[2]
        parent, token = best // size, best % size
        self.score = total.flatten(1).gather(1, best)
        self.length = length.gather(1, parent)
        self.ended = self.ended.gather(1, parent) | (token == self.special.end)
        self.latest = token.flatten()
        if self.beam > 1:
            rows = torch.arange(len(parent), device=parent.device)[:, None]
            self.tokens = self.tokens[rows, parent]
            chosen = (rows * self.beam + parent).flatten()
            # Only positions up to here are filled.
            for cache in (tensor for pair in self.past for tensor in pair):
                cache[:, :, : place + 1] = cache[chosen, :, : place + 1]
        self.tokens[:, :, place] = token

    def report(self, tokens: Int[Tensor, "n limit"], score: Float[Tensor, " n"]) -> None:
        """Write the best hypothesis of each source into the results."""
        winner = (self.score / self.length.clamp(min=1) ** self.length_power).argmax(1)
        rows = torch.arange(len(winner), device=winner.device)
        tokens[self.number] = self.tokens[rows, winner]
        score[self.number] = self.score[rows, winner]

    def keep_only(self, kept: Int[Tensor, " left"]) -> None:
        """Drop all sources but those in `kept`."""
        each = torch.arange(self.beam, device=kept.device)
        rows = (kept[:, None] * self.beam + each).flatten()
        self.memory = [(key[rows], value[rows]) for key, value in self.memory]
        self.past = [(key[rows], value[rows]) for key, value in self.past]
        self.memory_mask, self.latest = self.memory_mask[rows], self.latest[rows]
        self.tokens, self.score, self.ended = self.tokens[kept], self.score[kept], self.ended[kept]
        self.length, self.number = self.length[kept], self.number[kept]


def _repeated(pair: KeyValues, beam: int) -> KeyValues:
    """Repeat keys and values for each hypothesis."""
    if beam == 1:
        return pair
    return pair[0].repeat_interleave(beam, 0), pair[1].repeat_interleave(beam, 0)
