"""The source texts of a conditional model, encoded once for all passes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from maskov.models.batches import Batcher, token_budget
from maskov.models.conditional.network import TranslationNetwork
from maskov.types import Bool, Float, Int, Tensor, inside


@dataclass(frozen=True)
class Sources:
    """Concatenated encoder states of texts, and the scores of their target lengths."""

    texts: tuple[str, ...]
    states: Float[Tensor, "tokens width"]
    starts: Int[Tensor, " texts"]
    sizes: Int[Tensor, " texts"]
    length_scores: Float[Tensor, "texts lengths"]

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
        return cls(tuple(texts), states, starts, sizes, lengths)

    def padded(
        self, index: Int[Tensor, " n"]
    ) -> tuple[Float[Tensor, "n s width"], Bool[Tensor, "n s"]]:
        """Return the states of some texts, padded, and a mask of the real positions."""
        sizes = self.sizes[index]
        width = int(sizes.max())
        within = inside(sizes, width)
        place = self.starts[index][:, None] + torch.arange(width, device=index.device)
        return self.states[torch.where(within, place, 0)], within
