"""Tokenise with tokenizers that may be anybody's: refused in one sentence.

A tokenizer's regular expressions run in Oniguruma, which gives a match up after ten million steps
(less than a second, and other threads run meanwhile); that is a `ModelError` here.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from maskov.errors import ModelError
from maskov.models.hf_logging import silence_transformers


def token_ids(
    tokenizer: Any,
    text: str | Sequence[str],
    name: str,
    what: str = "input_ids",
    **options: Any,
) -> Any:
    """Return the ids of a text, or of several, or what else is asked; errors name the model."""
    try:
        with silence_transformers():
            return tokenizer(text, **options)[what]
    except BaseException as error:
        # What panics in Rust is no Exception. An incomplete vocabulary fails only here, too.
        if not isinstance(error, Exception) and type(error).__name__ != "PanicException":
            raise
        first = str(error).partition("\n")[0]
        raise ModelError(f"the tokenizer of '{name}' cannot read a text: {first}") from error


def frame_of(tokenizer: Any, name: str) -> tuple[list[int], list[int]]:
    """Return the special tokens that a tokenizer puts before and after a text."""
    coded = token_ids(tokenizer, tokenizer.mask_token, name)
    place = coded.index(tokenizer.mask_token_id)
    return list(coded[:place]), list(coded[place + 1 :])


def check_tokens(tokenizer: Any, rows: int, name: str) -> None:
    """Refuse a tokenizer with tokens that a network of so many rows does not have."""
    largest = max(tokenizer.get_vocab().values(), default=0)
    if largest >= rows:
        raise ModelError(
            f"the tokenizer of '{name}' has tokens up to {largest}, its network only {rows} rows "
            "of them; give the tokenizer it was trained with (--tokenizer)."
        )


def embedding_rows(network: Any) -> int:
    """Return how many tokens a network takes; many, if it does not tell."""
    try:
        return int(network.get_input_embeddings().weight.shape[0])
    except (NotImplementedError, AttributeError):
        return 2**31
