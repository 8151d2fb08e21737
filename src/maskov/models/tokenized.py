"""Masked models with a Hugging Face tokenizer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from maskov.models.base import MaskedModel
from maskov.models.tokenizing import token_ids


class TokenizedModel(MaskedModel):
    """A masked model with a tokenizer."""

    tokenizer: Any

    def encode(self, text: str) -> list[int]:
        """Tokenise without special tokens; [MASK] becomes this model's mask."""
        text = text.replace("[MASK]", self.tokenizer.mask_token)
        ids = token_ids(self.tokenizer, text, self.name, add_special_tokens=False)
        return [int(i) for i in ids]

    def token_spans(self, text: str) -> list[tuple[int, int]] | None:
        """Ask the tokenizer, if it knows where its tokens are from."""
        if not getattr(self.tokenizer, "is_fast", False):
            return super().token_spans(text)
        spans = token_ids(
            self.tokenizer, text, self.name, "offset_mapping",
            add_special_tokens=False, return_offsets_mapping=True,
        )  # fmt: skip
        return [(end - len(text[start:end].lstrip()), end) for start, end in spans]

    def decode(self, ids: Sequence[int]) -> str:
        """Decode with the tokenizer."""
        text: str = self.tokenizer.decode([int(i) for i in ids])
        return text.strip()

    def token_strings(self, ids: Sequence[int]) -> list[str]:
        """Return the vocabulary's spelling of each token."""
        return [str(t) for t in self.tokenizer.convert_ids_to_tokens([int(i) for i in ids])]

    def control_ids(self) -> frozenset[int]:
        """Return all special tokens but the unknown one, which may occur in a scored text."""
        return frozenset(self.tokenizer.all_special_ids) - {self.tokenizer.unk_token_id}
