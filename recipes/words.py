"""Add whole words to a WordPiece tokenizer and to the masked LM that uses it.

Words become part of the WordPiece vocabulary itself. `tokenizer.add_tokens` would not do: an added
token also matches inside other words, and decoding puts spaces around it.
"""

from __future__ import annotations

import json
import string
import tempfile
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import torch


def split_words(tokenizer: Any, lines: Iterable[str], spaces: bool = False) -> Counter[str]:
    """Count the words of a text that the tokenizer knows only in pieces.

    With `spaces` a word is what stands between spaces, otherwise what the tokenizer's own rules
    separate.
    """
    backend = tokenizer.backend_tokenizer
    whole: Counter[str] = Counter()
    for line in lines:
        whole.update(line.split())
    words: Counter[str] = Counter()
    for text, count in whole.items():
        normal = backend.normalizer.normalize_str(text) if backend.normalizer else text
        if spaces:
            parts = normal.split()
        else:
            parts = [part for part, _ in backend.pre_tokenizer.pre_tokenize_str(normal)]
        for part in parts:
            words[part] += count
    known = tokenizer.get_vocab()
    return Counter({word: count for word, count in words.items() if word not in known})


def frequent(words: Counter[str], most: int) -> list[str]:
    """Return the most frequent words that occur at least twice; ties in alphabetical order."""
    ordered = sorted(words.items(), key=lambda item: (-item[1], item[0]))
    return [word for word, count in ordered[:most] if count > 1]


def extended(tokenizer: Any, words: Sequence[str], spaces: bool = False) -> Any:
    """Return the tokenizer with more words, whose ids follow those it has.

    With `spaces` it separates words at spaces only, and decoding puts a space between all of them,
    so that text with spaces around punctuation comes back as it was. Every ASCII character then is
    a piece, so that no such word is unknown.
    """
    from transformers import AutoTokenizer

    with tempfile.TemporaryDirectory() as folder:
        tokenizer.save_pretrained(folder)
        file, settings = Path(folder, "tokenizer.json"), Path(folder, "tokenizer_config.json")
        rules = json.loads(file.read_text("utf-8"))
        if rules["model"]["type"] != "WordPiece":
            raise SystemExit("only a WordPiece tokenizer can have words added")
        known = rules["model"]["vocab"]
        prefix = rules["model"]["continuing_subword_prefix"]
        more = list(words)
        if spaces:
            signs = sorted(set(string.digits + string.ascii_lowercase + string.punctuation))
            more += [*signs, *(prefix + sign for sign in signs)]
            rules["pre_tokenizer"] = {"type": "WhitespaceSplit"}
            rules["decoder"]["cleanup"] = False
        following = max(len(tokenizer), max(known.values()) + 1)
        for word in more:
            if word not in known:
                known[word] = following
                following += 1
        file.write_text(json.dumps(rules, ensure_ascii=False), "utf-8")
        about = json.loads(settings.read_text("utf-8"))
        # A class with its own rules would ignore those of the file.
        about["tokenizer_class"] = "PreTrainedTokenizerFast"
        about["clean_up_tokenization_spaces"] = False
        settings.write_text(json.dumps(about), "utf-8")
        return AutoTokenizer.from_pretrained(folder)


def extend_network(network: Any, before: Any, after: Any) -> None:
    """Give a masked LM rows for the tokens that `after` has and `before` has not.

    A new word starts as the mean of its pieces, in the embedding and in the output bias.
    """
    old = len(before)
    network.resize_token_embeddings(len(after), mean_resizing=False)
    rows = network.get_input_embeddings().weight
    outputs = network.get_output_embeddings()
    texts = after.convert_ids_to_tokens(list(range(old, len(after))))
    unknown = before.unk_token_id
    with torch.no_grad():
        overall = rows[:old].mean(0)
        for index, text in enumerate(texts, start=old):
            pieces = before(text.removeprefix("##"), add_special_tokens=False)["input_ids"]
            usable = [piece for piece in pieces if piece != unknown]
            rows[index] = rows[usable].mean(0) if usable else overall
            if outputs.weight is not rows:
                weight = outputs.weight
                weight[index] = weight[usable].mean(0) if usable else weight[:old].mean(0)
            if outputs.bias is not None:
                bias = outputs.bias
                bias[index] = bias[usable].mean() if usable else bias[:old].min()
