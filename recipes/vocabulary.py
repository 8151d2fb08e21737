"""Learn a lower-case WordPiece tokenizer from sentences."""

from __future__ import annotations

import lzma
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]


def read_sentences(file: Path, most: int | None = None) -> Iterator[str]:
    """Yield the lines of a file, which may be .xz."""
    opened = lzma.open if file.suffix == ".xz" else open
    with opened(file, "rt", encoding="utf-8") as stream:
        for line in islice(stream, most):
            yield line.rstrip("\n")


def obtain(folder: Path, sentences: Path, size: int, most: int | None = None) -> Any:
    """Return the tokenizer in `folder`; learn it and save it there first if there is none."""
    from transformers import AutoTokenizer

    if folder.exists():
        return AutoTokenizer.from_pretrained(folder)
    tokenizer = learn(read_sentences(sentences, most), size)
    tokenizer.save_pretrained(folder)
    return tokenizer


def learn(sentences: Iterator[str], size: int) -> Any:
    """Return a BERT tokenizer with `size` tokens learned from the sentences.

    [CLS] and [SEP] surround a sentence; the causal model uses them as start and end.
    """
    from tokenizers import BertWordPieceTokenizer
    from transformers import BertTokenizer

    trainer = BertWordPieceTokenizer(lowercase=True)
    trainer.train_from_iterator(
        sentences, vocab_size=size, min_frequency=2, special_tokens=SPECIAL, show_progress=False
    )
    vocabulary = trainer.get_vocab()
    # Tokens are saved in this order, so it must be that of their ids.
    ordered = dict(sorted(vocabulary.items(), key=lambda item: item[1]))
    return BertTokenizer(vocab=ordered, do_lower_case=True, model_max_length=128)
