"""Tokens: from texts, in texts, and which of them must never be proposed.

Tokenizers may be anybody's, and their errors become one sentence: a `ModelError`. One of them is
that of Oniguruma, which runs a tokenizer's regular expressions and gives a match up after ten
million steps (less than a second, and other threads run meanwhile).
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module
from itertools import accumulate
from logging import CRITICAL
from typing import Any

import torch

from maskov.errors import ModelError
from maskov.types import Bool, Tensor


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
            "of them; give the tokenizer it was trained with: --model 'NAME(tokenizer=FOLDER)'."
        )


def embedding_rows(network: Any) -> int:
    """Return how many tokens a network takes; many, if it does not tell."""
    try:
        return int(network.get_input_embeddings().weight.shape[0])
    except (NotImplementedError, AttributeError):
        return 2**31


# transformers imports tqdm, which in a notebook without ipywidgets warns when it is first imported,
# about bars that are never shown here.
with warnings.catch_warnings():
    warnings.filterwarnings("ignore", message="IProgress not found")
    import_module("tqdm.auto")


@contextmanager
def silence_transformers() -> Iterator[None]:
    """Silence the logs and progress bars of transformers and huggingface_hub, then restore them."""
    from huggingface_hub.utils import logging as hub
    from transformers.utils import logging

    level, bars = logging.get_verbosity(), logging.is_progress_bar_enabled()
    hub_level = hub.get_verbosity()
    logging.set_verbosity_error()
    hub.set_verbosity(CRITICAL)  # if its retries fail, our own error says so
    logging.disable_progress_bar()
    try:
        yield
    finally:
        logging.set_verbosity(level)
        hub.set_verbosity(hub_level)
        if bars:
            logging.enable_progress_bar()


# Markers of word starts and continuations in vocabularies.
_BEFORE = ("##", "Ġ", "▁")
_AFTER = ("</w>", "@@")


def token_spans(text: str, tokens: Sequence[str]) -> list[str] | None:
    """Split a text into one span per token, with the spaces before it; None if they disagree.

    The concatenated spans are the text. They disagree if the decoder changed more than case and
    spaces.
    """
    spans: list[str] = []
    at = 0
    for token in tokens:
        end = _end(text, at, _spelling(token))
        if end is None:
            return None
        spans.append(text[at:end])
        at = end
    if not spans or text[at:].strip():
        return None
    spans[-1] += text[at:]
    return spans


def words_of(text: str, tokens: Sequence[str]) -> list[int]:
    """Return the number of the word, between spaces, that each token belongs to, from 0.

    Where the text does not show it, as for unknown words, the marks of the vocabulary do.
    """
    spans = token_spans(text, tokens)
    if spans is not None:
        starts = [span[:1].isspace() for span in spans]
    elif any(token.startswith(("Ġ", "▁")) for token in tokens):
        starts = [token.startswith(("Ġ", "▁")) for token in tokens]
    else:
        before = ["", *tokens][: len(tokens)]
        ended = any(token.endswith("</w>") for token in tokens)
        starts = [
            previous.endswith("</w>")
            if ended
            else not token.startswith("##") and not previous.endswith("@@")
            for token, previous in zip(tokens, before, strict=True)
        ]
    return [number - starts[0] for number in accumulate(starts)] if starts else []


def spelling(tokens: Sequence[str]) -> str:
    """Return the tokens of a word as one text."""
    return "".join(map(_spelling, tokens))


def _spelling(token: str) -> str:
    for mark in _BEFORE:
        if token != mark:
            token = token.removeprefix(mark)
    for mark in _AFTER:
        if token != mark:
            token = token.removesuffix(mark)
    return token


def _end(text: str, at: int, word: str) -> int | None:
    """Return where a word that starts here, after any spaces, ends; None if it does not."""
    while at < len(text) and text[at].isspace():
        at += 1
    end = at + len(word)
    return end if word and text[at:end].casefold() == word.casefold() else None


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
    added = getattr(tokenizer, "added_tokens_decoder", {}).items()
    special = {*tokenizer.all_special_ids, *(index for index, token in added if token.special)}
    for token, index in tokenizer.get_vocab().items():
        if index < size and index not in special:
            forbidden[index] = bool(_PLACEHOLDER.fullmatch(token.strip()))
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
