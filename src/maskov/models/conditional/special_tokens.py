"""The special tokens of a translation model, by what they mean."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Marks:
    """The tokens that stand for no word, but for where text begins, ends or is missing."""

    pad: int
    begin: int
    end: int
    mask: int

    @classmethod
    def of(cls, tokenizer: Any) -> Marks:
        """Read them off a tokenizer."""
        return cls(
            tokenizer.pad_token_id,
            tokenizer.bos_token_id,
            tokenizer.eos_token_id,
            tokenizer.mask_token_id,
        )
