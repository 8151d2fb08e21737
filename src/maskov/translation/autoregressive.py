"""An ordinary autoregressive translation model of the same architecture, for comparison."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch

from maskov.errors import InputError, ModelError
from maskov.models.batches import Batcher
from maskov.models.conditional import checkpoint
from maskov.models.conditional.network import TranslationNetwork
from maskov.models.conditional.special_tokens import SpecialTokens
from maskov.models.fingerprints import fingerprint, forbidden_ids
from maskov.models.forbidden_tokens import forbidden_tokens
from maskov.models.loading import LOADING
from maskov.models.tokenizing import token_ids
from maskov.translation.search import search
from maskov.types import Tensor, inside

# Maximum source tokens, times beam size, per batch.
_CPU_TOKENS, _GPU_TOKENS = 2**11, 2**17
# Sources, with the network's extra first position, are padded to a multiple of this.
_CPU_UNIT, _GPU_UNIT = 1, 8


class AutoregressiveTranslator:
    """A translation model that generates from left to right."""

    def __init__(self, network: TranslationNetwork, tokenizer: Any, name: str) -> None:
        if not network.shape.causal:
            raise ModelError(
                f"'{name}' is a masked model; --method ar needs an autoregressive one."
            )
        self.name, self.network, self.tokenizer = name, network, tokenizer
        self.device = network.words.weight.device
        self.special = SpecialTokens.of(tokenizer)
        self.forbidden = forbidden_tokens(tokenizer, network.shape.vocabulary).to(self.device)

    @classmethod
    def load(cls, folder: Path, device: torch.device, name: str) -> AutoregressiveTranslator:
        """Load a translation model folder."""
        with LOADING:
            network, tokenizer = checkpoint.load(folder, device, torch.float32)
        return cls(network, tokenizer, name)

    def fingerprint(self) -> str:
        """Hash the weights, the sizes and how texts become inputs."""
        return fingerprint(
            self.network,
            self.tokenizer,
            special=asdict(self.special),
            forbidden=forbidden_ids(self.forbidden),
        )

    def translate(
        self,
        texts: Sequence[str],
        beam: int = 5,
        length_power: float = 1.0,
        lines: Sequence[int] | None = None,
    ) -> list[list[int]]:
        """Return the tokens of the best translation found for each text.

        Errors name texts by `lines`, by default 1, 2, ...
        """
        if beam < 1:
            raise InputError(f"the beam size must be at least 1, not {beam}.")
        encoded = token_ids(self.tokenizer, list(texts), self.name, add_special_tokens=False)
        ids = [[*line, self.special.end] for line in encoded]
        most = self.network.shape.longest
        for line, tokens in zip(lines or range(1, len(ids) + 1), ids, strict=True):
            if len(tokens) > most:
                raise InputError(
                    f"line {line} has {len(tokens) - 1} tokens; '{self.name}' takes at most "
                    f"{most - 1}. Split it into sentences."
                )
        return self.translate_ids(ids, beam, length_power)

    def translate_ids(
        self, ids: Sequence[Sequence[int]], beam: int, length_power: float = 1.0
    ) -> list[list[int]]:
        """Return the tokens of the best translation found for each source, which has its end."""
        sizes = torch.tensor([len(line) for line in ids], device=self.device)
        translations: list[list[int]] = [[] for _ in ids]
        on_gpu = self.device.type == "cuda"
        unit = _GPU_UNIT if on_gpu else _CPU_UNIT

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

        budget = _GPU_TOKENS if on_gpu else _CPU_TOKENS
        Batcher(max(1, budget // beam), padded_share=1.0).each(sizes, work)
        return translations
