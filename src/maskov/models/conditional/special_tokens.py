"""The special tokens of a translation model."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class SpecialTokens:
    """Ids of the tokens that pad, begin, end and mask a text."""

    pad: int
    begin: int
    end: int
    mask: int

    @classmethod
    def of(cls, tokenizer: Any) -> SpecialTokens:
        """Read the ids from a tokenizer."""
        return cls(
            tokenizer.pad_token_id,
            tokenizer.bos_token_id,
            tokenizer.eos_token_id,
            tokenizer.mask_token_id,
        )
