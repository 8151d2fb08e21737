"""An autoregressive translation model of the same architecture: log p(translation | source).

It translates by greedy or beam search with a causal decoder.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, Self

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel

from maskov.errors import ModelError, refuse
from maskov.models.checkpoint import LOADING, fingerprint, forbidden_ids
from maskov.models.conditional import Sources, source_ids
from maskov.models.network import SpecialTokens, TranslationNetwork, additive, load_translation
from maskov.models.scorer import Batcher, token_budget
from maskov.models.tokens import forbidden_tokens
from maskov.types import Bool, Float, Int, Tensor, inside

DEFAULT_BEAM = 5
# The most source tokens, times beam size, of a batch, and a number: sources, with the network's
# extra first position, are padded to a multiple of it.
_ON_CPU, _ON_GPU = (2**11, 1), (2**17, 8)
# Steps between checks for finished sources: each check synchronises with the device.
_CHECK_EVERY = 4
# cuDNN attention is left out: it would be rebuilt for every length of the cache.
_ATTENTIONS = [SDPBackend.FLASH_ATTENTION, SDPBackend.EFFICIENT_ATTENTION, SDPBackend.MATH]


class AutoregressiveTranslator:
    """A causal encoder-decoder and its tokenizer, which translates from left to right."""

    def __init__(self, network: TranslationNetwork, tokenizer: Any, name: str) -> None:
        refuse(
            (
                not network.shape.causal,
                f"'{name}' is a masked model; --method ar, or the energy 'autoregressive', needs "
                "an autoregressive one.",
            ),
            kind=ModelError,
        )
        self.name, self.network, self.tokenizer = name, network, tokenizer
        self.device = network.words.weight.device
        self.special = SpecialTokens.of(tokenizer)
        self.forbidden = forbidden_tokens(tokenizer, network.shape.vocabulary).to(self.device)
        # Scores of the whole vocabulary at every position are what fills the memory.
        shape, size = network.shape, network.words.weight.dtype.itemsize
        self._batcher = Batcher(
            token_budget(size * (3 * shape.vocabulary + 16 * shape.width), self.device)
        )

    @classmethod
    def load(
        cls, folder: Path, device: torch.device, name: str, dtype: torch.dtype = torch.float32
    ) -> Self:
        """Load a translation model folder."""
        with LOADING:
            network, tokenizer = load_translation(folder, device, dtype)
        return cls(network, tokenizer, name)

    def fingerprint(self) -> str:
        """Hash the weights, the sizes and how texts become inputs."""
        return fingerprint(
            self.network,
            self.tokenizer,
            special=asdict(self.special),
            forbidden=forbidden_ids(self.forbidden),
        )

    @property
    def max_length(self) -> int:
        """The most tokens of a translation: the first position reads the start token."""
        return self.network.shape.longest - 1

    def read(self, texts: Sequence[str]) -> Sources:
        """Encode sources, once for all translations of them."""
        return Sources.encode(self.network, texts, source_ids(self, texts))

    def token_terms(
        self,
        sources: Sources,
        source: Int[Tensor, " n"],
        tokens: Int[Tensor, "n length"],
        lengths: Int[Tensor, " n"],
    ) -> Float[Tensor, "n length1"]:
        """Return −log p of each token and, after the last one, of the end; 0 beyond.

        One pass of the decoder reads a whole translation (teacher forcing).
        """
        network, width = self.network, tokens.shape[1]
        terms = torch.zeros((len(lengths), width + 1), dtype=torch.float64, device=self.device)

        def work(rows: Tensor, most: int) -> None:
            within = inside(lengths[rows], most)
            place = torch.arange(most + 1, device=self.device)
            target = torch.where(within, tokens[rows, :most], self.special.pad)
            begin = target.new_full((len(rows), 1), self.special.begin)
            asked = torch.cat([target, begin], dim=1)
            asked = asked.masked_fill(place == lengths[rows, None], self.special.end)
            text = source[rows]
            sizes = sources.sizes[text]
            real = inside(sizes, int(sizes.max()))
            key = sources.starts[text][:, None] + torch.arange(real.shape[1], device=self.device)
            states = sources.states[torch.where(real, key, 0)]
            mask = additive(real[:, None, None], states.dtype)
            # Padding on the right is never seen from the left, so it needs no mask.
            read = torch.cat([begin, target], dim=1)
            found = network.decode(read, network.cross_key_values(states), mask)
            scores = network.scores(found)
            picked = scores.gather(2, asked[:, :, None]).squeeze(2)
            negative = (scores.logsumexp(2) - picked).double()
            terms[rows, : most + 1] = negative.masked_fill(place > lengths[rows, None], 0.0)

        self._batcher.each(lengths, work)
        return terms

    def translate(
        self,
        texts: Sequence[str],
        beam: int = DEFAULT_BEAM,
        length_power: float = 1.0,
        lines: Sequence[int] | None = None,
    ) -> list[list[int]]:
        """Return the tokens of the best translation found for each text.

        Errors name texts by `lines`, by default 1, 2, ...
        """
        refuse((beam < 1, f"the beam size must be at least 1, not {beam}."))
        ids = source_ids(self, texts, lines)
        sizes = torch.tensor([len(line) for line in ids], device=self.device)
        translations: list[list[int]] = [[] for _ in ids]
        budget, unit = _ON_GPU if self.device.type == "cuda" else _ON_CPU

        def work(rows: Tensor, width: int) -> None:
            width = min(-(-(width + 1) // unit) * unit - 1, self.network.shape.longest)
            lines = [ids[row] for row in rows.tolist()]
            padded = [[*line, *[self.special.pad] * (width - len(line))] for line in lines]
            best, _ = search(
                self.network, torch.tensor(padded, device=self.device),
                inside(sizes[rows], width), self.special, self.forbidden, beam, length_power,
            )  # fmt: skip
            for row, tokens in zip(rows.tolist(), best, strict=True):
                translations[row] = tokens

        Batcher(max(1, budget // beam), padded_share=1.0).each(sizes, work)
        return translations


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
    limit = min(network.shape.longest - 1, math.ceil(1.5 * int(inside.sum(1).max())) + 10)
    with sdpa_kernel(_ATTENTIONS):
        beams = _Beams(network, source, inside, special, forbidden, beam, length_power, limit)
        tokens = torch.full((count, limit + 1), special.pad, device=source.device)
        score = torch.zeros(count, device=source.device)
        for place in range(limit + 1):
            beams.step(place, last=place == limit)
            if place % _CHECK_EVERY == _CHECK_EVERY - 1 or place == limit:
                still = ~beams.ended.all(1)
                left = int(still.sum())
                if 2 * left < len(still) or place == limit:
                    beams.report(tokens, score, still.nonzero().squeeze(1))
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
        self.memory = [
            (keys.repeat_interleave(beam, 0), values.repeat_interleave(beam, 0))
            for keys, values in network.cross_key_values(memory)
        ]
        self.memory_mask = mask.repeat_interleave(beam, 0)
        shape, like = network.shape, network.words.weight
        size = (count * beam, shape.heads, limit + 1, shape.width // shape.heads)
        self.past = [(like.new_empty(size), like.new_empty(size)) for _ in network.decoder]
        self.tokens = torch.full((count, beam, limit + 1), special.pad, device=device)
        self.latest = torch.full((count * beam,), special.begin, device=device)
        # At first all hypotheses of a source are equal, so only one may be extended.
        self.score = torch.full((count, beam), -torch.inf, device=device)
        self.score[:, 0] = 0.0
        self.ended = torch.zeros((count, beam), dtype=torch.bool, device=device)
        self.length = torch.zeros((count, beam), device=device)
        self.number = torch.arange(count, device=device)  # the index of each row's source
        token = torch.arange(len(forbidden), device=device)
        self._never, self._only_end, self._only_pad = (
            additive(allowed, torch.float32)
            for allowed in (
                ~forbidden | (token == special.end), token == special.end, token == special.pad,
            )
        )  # fmt: skip

    def step(self, place: int, last: bool) -> None:
        """Extend every hypothesis by a token; by the end token in the last step."""
        states = self.network.decode(
            self.latest[:, None], self.memory, self.memory_mask, past=self.past, begin=place
        )
        log_p = self.network.scores(states[:, 0].float()).log_softmax(1)
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

    def report(
        self,
        tokens: Int[Tensor, "n limit"],
        score: Float[Tensor, " n"],
        kept: Int[Tensor, " left"],
    ) -> None:
        """Write the best hypothesis of each source into the results; drop all but the `kept`."""
        winner = (self.score / self.length.clamp(min=1) ** self.length_power).argmax(1)
        rows = torch.arange(len(winner), device=winner.device)
        tokens[self.number] = self.tokens[rows, winner]
        score[self.number] = self.score[rows, winner]
        each = torch.arange(self.beam, device=kept.device)
        rows = (kept[:, None] * self.beam + each).flatten()
        self.memory = [(key[rows], value[rows]) for key, value in self.memory]
        self.past = [(key[rows], value[rows]) for key, value in self.past]
        self.memory_mask, self.latest = self.memory_mask[rows], self.latest[rows]
        self.tokens, self.score, self.ended = self.tokens[kept], self.score[kept], self.ended[kept]
        self.length, self.number = self.length[kept], self.number[kept]
