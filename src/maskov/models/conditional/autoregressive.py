"""An autoregressive translation model of the same architecture: log p(translation | source)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from functools import cached_property
from pathlib import Path
from typing import Any, Self

import torch

from maskov.errors import ModelError
from maskov.models.checkpoint import LOADING, fingerprint, forbidden_ids
from maskov.models.conditional import checkpoint
from maskov.models.conditional.model import Sources, source_ids
from maskov.models.conditional.network import SpecialTokens, TranslationNetwork
from maskov.models.scorer import Batcher, token_budget
from maskov.models.tokens import forbidden_tokens
from maskov.types import Float, Int, Tensor, inside


class AutoregressiveModel:
    """A causal encoder-decoder and its tokenizer."""

    def __init__(self, network: TranslationNetwork, tokenizer: Any, name: str) -> None:
        if not network.shape.causal:
            raise ModelError(
                f"'{name}' is a masked model; --method ar, or the energy 'autoregressive', needs "
                "an autoregressive one."
            )
        self.name, self.network, self.tokenizer = name, network, tokenizer
        self.device = network.words.weight.device
        self.special = SpecialTokens.of(tokenizer)
        self.forbidden = forbidden_tokens(tokenizer, network.shape.vocabulary).to(self.device)

    @classmethod
    def load(
        cls, folder: Path, device: torch.device, name: str, dtype: torch.dtype = torch.float32
    ) -> Self:
        """Load a translation model folder."""
        with LOADING:
            network, tokenizer = checkpoint.load(folder, device, dtype)
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
            states, mask = self._source_states(sources, source[rows])
            # Padding on the right is never seen from the left, so it needs no mask.
            read = torch.cat([begin, target], dim=1)
            found = network.decode(read, network.cross_key_values(states), mask)
            scores = network.scores(found)
            picked = scores.gather(2, asked[:, :, None]).squeeze(2)
            negative = (scores.logsumexp(2) - picked).double()
            terms[rows, : most + 1] = negative.masked_fill(place > lengths[rows, None], 0.0)

        self._batcher.each(lengths, work)
        return terms

    @cached_property
    def _batcher(self) -> Batcher:
        # Scores of the whole vocabulary at every position are what fills the memory.
        shape, size = self.network.shape, self.network.words.weight.dtype.itemsize
        return Batcher(token_budget(size * (3 * shape.vocabulary + 16 * shape.width), self.device))

    def _source_states(self, sources: Sources, source: Tensor) -> tuple[Tensor, Tensor]:
        """Return the padded states of some sources, and which of them are not padding."""
        sizes = sources.sizes[source]
        within = inside(sizes, int(sizes.max()))
        place = sources.starts[source][:, None] + torch.arange(within.shape[1], device=self.device)
        return sources.states[torch.where(within, place, 0)], within[:, None, None]
