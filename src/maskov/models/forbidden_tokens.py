"""Which tokens must never be proposed: special and unused ones, and letters nobody can order."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import torch

from maskov.types import Bool, Tensor

# Placeholders that tokenizers reserve without listing them as special. Each pattern matches the
# whole token: BERT's [unused12], Gemma-like <unused12>, fairseq's madeupword0001, ESM's <null_1>,
# T5-like <extra_id_3>, CamemBERT's <s>NOTUSED, and bracketed controls such as <|padding|> and
# |||IP_ADDRESS|||.
_PLACEHOLDER = re.compile(
    r"\[unused\d+\]|<unused_?\d+>|\[reserved_?\d+\]|madeupword\d+|<null_\d+>|<extra_id_\d+>"
    r"|<[a-z/]+>NOTUSED"
    r"|<\|[^|]*\|>|\|\|\|[A-Z_]+\|\|\||\[(?:cls|sep|pad|mask|unk|bos|eos)\]"
    r"|<(?:s|/s|pad|unk|mask|cls|sep|eos|bos)>",
    re.IGNORECASE,
)
# What some vocabularies put before a token at the beginning of a word.
MARKS = "▁Ġ"
AMINO_ACIDS = frozenset("ACDEFGHIKLMNPQRSTVWY")
# What else vocabularies of proteins have: rare, ambiguous and unknown residues, gaps and stops.
_OTHER_LETTERS = frozenset("BJOUXZ.-*|")


def forbidden_tokens(tokenizer: Any, size: int) -> Bool[Tensor, " vocabulary"]:
    """Mark special and unused tokens, and rows of the model that belong to no token."""
    forbidden = torch.ones(size, dtype=torch.bool)
    for token, index in tokenizer.get_vocab().items():
        if index < size:
            forbidden[index] = bool(_PLACEHOLDER.fullmatch(token.strip()))
    for index in tokenizer.all_special_ids:
        if index < size:
            forbidden[index] = True
    for index, added in getattr(tokenizer, "added_tokens_decoder", {}).items():
        if index < size and added.special:
            forbidden[index] = True
    return forbidden


def other_letters(names: Sequence[str], forbidden: Bool[Tensor, " vocabulary"]) -> frozenset[int]:
    """Return the tokens of a protein model that are not amino acids; of any other model, none."""
    letters = {
        number: name.lstrip(MARKS)
        for number, name in enumerate(names)
        if not bool(forbidden[number])
    }
    found = set(letters.values())
    if not AMINO_ACIDS <= found <= AMINO_ACIDS | _OTHER_LETTERS:
        return frozenset()
    return frozenset(number for number, name in letters.items() if name not in AMINO_ACIDS)
