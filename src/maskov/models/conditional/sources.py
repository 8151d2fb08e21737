"""The source texts of a conditional model, encoded once for all passes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from maskov.models.batches import Batcher, token_budget
from maskov.models.conditional.network import TranslationNetwork
from maskov.types import Float, Int, Tensor, inside


@dataclass(frozen=True)
class Sources:
    """Concatenated encoder states of texts, and the scores of their target lengths.

    No text has more tokens than `longest`, which the host knows.
    """

    texts: tuple[str, ...]
    states: Float[Tensor, "tokens width"]
    starts: Int[Tensor, " texts"]
    sizes: Int[Tensor, " texts"]
    length_scores: Float[Tensor, "texts lengths"]
    longest: int

    @classmethod
    def encode(
        cls, network: TranslationNetwork, texts: Sequence[str], ids: Sequence[Sequence[int]]
    ) -> Sources:
        """Run the encoder over all texts, batched by length."""
        weight = network.words.weight
        device = weight.device
        sizes = torch.tensor([len(line) for line in ids], device=device)
        starts = sizes.cumsum(0) - sizes
        flat = torch.tensor([token for line in ids for token in line], device=device)
        states = weight.new_zeros((len(flat), weight.shape[1]))
        lengths = weight.new_zeros((len(ids), network.lengths.weight.shape[0]))

        def work(rows: Tensor, width: int) -> None:
            within = inside(sizes[rows], width)
            place = starts[rows][:, None] + torch.arange(width, device=device)
            source = flat[torch.where(within, place, 0)]
            memory, scores = network.encode(source, within)
            states[place[within]] = memory[within]
            lengths[rows] = scores

        bytes_per_token = 16 * weight.shape[1] * weight.dtype.itemsize
        Batcher(token_budget(bytes_per_token, device)).each(sizes, work)
        return cls(tuple(texts), states, starts, sizes, lengths, max(map(len, ids)))

    def only(self, index: Int[Tensor, " n"]) -> Sources:
        """Return some of the texts, in this order."""
        sizes = self.sizes[index]
        starts = sizes.cumsum(0) - sizes
        text = torch.repeat_interleave(torch.arange(len(index), device=index.device), sizes)
        place = self.starts[index][text] + torch.arange(len(text), device=index.device)
        texts = tuple(self.texts[number] for number in index.tolist())
        states, scores = self.states[place - starts[text]], self.length_scores[index]
        return Sources(texts, states, starts, sizes, scores, self.longest)
