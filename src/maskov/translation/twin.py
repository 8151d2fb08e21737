"""The autoregressive twin: an ordinary translation model of the same size, for comparison."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch

from maskov.engine.batches import Batcher
from maskov.errors import InputError, ModelError
from maskov.models.checkpoint import hash_of
from maskov.models.quiet import quiet
from maskov.models.vocabulary import forbidden_tokens
from maskov.translation import checkpoint
from maskov.translation.network import Network
from maskov.translation.search import Marks, search
from maskov.types import Tensor, inside

# Source tokens, times the beam, that are searched at once.
_CPU_TOKENS, _GPU_TOKENS = 2**11, 2**17


class Twin:
    """A model that writes from left to right, and its tokenizer."""

    def __init__(self, network: Network, tokenizer: Any, name: str) -> None:
        if not network.shape.causal:
            raise ModelError(f"'{name}' is a masked model; --method ar needs a causal one.")
        self.name, self.network, self.tokenizer = name, network, tokenizer
        self.device = network.words.weight.device
        forbidden = forbidden_tokens(tokenizer, network.shape.vocabulary).to(self.device)
        self.marks = Marks(
            tokenizer.bos_token_id, tokenizer.eos_token_id, tokenizer.pad_token_id, forbidden
        )

    @classmethod
    def load(cls, folder: Path, device: torch.device, name: str) -> Twin:
        """Read a twin."""
        network, tokenizer = checkpoint.load(folder, device, torch.float32)
        return cls(network, tokenizer, name)

    def fingerprint(self) -> str:
        """Hash every weight, the sizes and the vocabulary."""
        return hash_of(self.network, self.tokenizer, asdict(self.network.shape))

    def translate(
        self,
        texts: Sequence[str],
        beam: int = 5,
        length_power: float = 1.0,
        lines: Sequence[int] | None = None,
    ) -> list[list[int]]:
        """Return the tokens of the best translation found of each text.

        `lines` are the numbers by which complaints name them, from 1 unless given.
        """
        if beam < 1:
            raise InputError(f"a beam holds at least one hypothesis, not {beam}.")
        with quiet():
            coded = self.tokenizer(list(texts), add_special_tokens=False)["input_ids"]
        ids = [[*line, self.marks.end] for line in coded]
        most = self.network.shape.longest
        for line, tokens in zip(lines or range(1, len(ids) + 1), ids, strict=True):
            if len(tokens) > most:
                raise InputError(
                    f"line {line} has {len(tokens) - 1} tokens; '{self.name}' reads at most "
                    f"{most - 1}. Split it into sentences."
                )
        sizes = torch.tensor([len(line) for line in ids], device=self.device)
        found: list[list[int]] = [[] for _ in ids]

        def work(rows: Tensor, width: int) -> None:
            lines = [ids[row] for row in rows.tolist()]
            padded = [line + [self.marks.pad] * (width - len(line)) for line in lines]
            source = torch.tensor(padded, device=self.device)
            best, _ = search(
                self.network, source, inside(sizes[rows], width), self.marks, beam, length_power
            )
            for row, tokens in zip(rows.tolist(), best, strict=True):
                found[row] = tokens

        budget = _GPU_TOKENS if self.device.type == "cuda" else _CPU_TOKENS
        Batcher(max(1, budget // beam), padded_share=1.0).each(sizes, work)
        return found
