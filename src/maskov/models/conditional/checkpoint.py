"""Translation models as folders: config.json, model.safetensors and a tokenizer.

The tokenizer is a Hugging Face one. With `bpe_merges.txt` its words are split first, by byte-pair
merges as subword-nmt and fastBPE define them: every subword but the last of its word ends in `@@`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import asdict
from itertools import pairwise
from pathlib import Path
from typing import Any, get_type_hints

import torch
from safetensors.torch import load_file, save_file

from maskov.errors import ModelError
from maskov.models.checkpoint import ARCHITECTURE, check_files, read_config
from maskov.models.conditional.network import TranslationNetwork, TranslationShape
from maskov.models.tokens import PlainTokenizer, import_transformers, silence_transformers
from maskov.types import Tensor

# The merges of a saved tokenizer, next to its Hugging Face files.
FILE = "bpe_merges.txt"
CONTINUES = "@@"

_WORD_END = "</w>"


class Merges:
    """Byte-pair merges, in order of priority.

    With `separate_end` (version 0.1 of the file format) the end-of-word marker starts as a symbol
    of its own; otherwise (0.2) it starts attached to the word's last letter.
    """

    def __init__(self, merges: Sequence[tuple[str, str]], separate_end: bool = False) -> None:
        self.separate_end = separate_end
        self._rank = {merge: rank for rank, merge in enumerate(dict.fromkeys(merges))}

    @classmethod
    def read(cls, path: Path) -> Merges:
        """Read lines of `left right`, or fastBPE's `left right count`."""
        try:
            lines = path.read_text(encoding="utf-8").removesuffix("\n").split("\n")
        except (OSError, UnicodeError) as error:
            raise ModelError(f"cannot read the BPE merges '{path}': {error}.") from error
        version = re.fullmatch(r"#version: ([\d.]+)\s*", lines[0])
        # Split at spaces only: other whitespace may be part of a symbol.
        rows = [line.strip("\r\n ").split(" ") for line in lines[bool(version) :]]
        columns = {len(row) for row in rows}
        if columns not in ({2}, {3}):
            raise ModelError(f"'{path}' is not a BPE merges file: not every line is a pair.")
        # Files without a version: fastBPE (3 columns) is like 0.2, early subword-nmt is 0.1.
        default = "0.1" if columns == {2} else "0.2"
        separate_end = (version[1] if version else default) == "0.1"
        return cls([(row[0], row[1]) for row in rows], separate_end)

    def lines(self) -> list[str]:
        """Return the lines of a file of them, with its format version."""
        version = "0.1" if self.separate_end else "0.2"
        return [f"#version: {version}", *(f"{left} {right}" for left, right in self._rank)]

    def split(self, word: str) -> list[str]:
        """Return the subwords of a word, with `@@` on each but the last."""
        parts = [*word, _WORD_END] if self.separate_end else [*word[:-1], word[-1] + _WORD_END]
        while known := [pair for pair in pairwise(parts) if pair in self._rank]:
            parts = _merge(parts, min(known, key=self._rank.__getitem__))
        if parts[-1] == _WORD_END:
            parts.pop()
        else:
            parts[-1] = parts[-1].removesuffix(_WORD_END)
        return [part + CONTINUES for part in parts[:-1]] + parts[-1:]


def _merge(parts: Sequence[str], pair: tuple[str, str]) -> list[str]:
    """Join every occurrence of a pair, from the left."""
    merged: list[str] = []
    place = 0
    while place < len(parts):
        step = 2 if tuple(parts[place : place + 2]) == pair else 1
        merged.append("".join(parts[place : place + step]))
        place += step
    return merged


class BytePairTokenizer:
    """A word-level tokenizer whose words are split by merges first; special tokens stay whole.

    The BPE model of `tokenizers` cannot be used: it needs an id for every intermediate merge, and
    vocabularies of this kind list only the final subwords.
    """

    def __init__(self, words: Any, merges: Merges) -> None:
        self.words, self.merges = words, merges
        self._special = frozenset(words.all_special_tokens)
        self._pattern = re.compile("|".join(map(re.escape, sorted(self._special))))

    def __call__(self, text: str | Sequence[str], **options: Any) -> Any:
        """Tokenise one text or several, with the options of Hugging Face tokenizers."""
        return self.words(self._split(text), **options)

    def encode(self, text: str, **options: Any) -> Any:
        """Return the ids of one text."""
        return self.words.encode(self._split(text), **options)

    def tokenize(self, text: str, **options: Any) -> Any:
        """Return the subwords of one text, those outside the vocabulary included."""
        return self.words.tokenize(self._split(text), **options)

    def save_pretrained(self, folder: str | Path, **options: Any) -> None:
        """Write the word-level tokenizer and the merges."""
        self.words.save_pretrained(folder, **options)
        lines = "\n".join(self.merges.lines()) + "\n"
        (Path(folder) / FILE).write_text(lines, encoding="utf-8", newline="\n")

    def __len__(self) -> int:
        return len(self.words)

    def __getattr__(self, name: str) -> Any:
        # Copying and unpickling look up attributes before `words` exists.
        if name.startswith("__") or name == "words":
            raise AttributeError(name)
        return getattr(self.words, name)

    def _split(self, text: str | Sequence[str]) -> str | list[str]:
        return self._line(text) if isinstance(text, str) else [self._line(line) for line in text]

    def _line(self, text: str) -> str:
        parts = self._pattern.sub(r" \g<0> ", text).split()
        split = ([word] if word in self._special else self.merges.split(word) for word in parts)
        return " ".join(subword for subwords in split for subword in subwords)


def save(folder: Path, network: TranslationNetwork, tokenizer: Any, dtype: torch.dtype) -> None:
    """Write a network and its tokenizer."""
    folder.mkdir(parents=True, exist_ok=True)
    weights = {name: value.to(dtype).contiguous() for name, value in network.state_dict().items()}
    save_file({name: value.cpu() for name, value in weights.items()}, folder / "model.safetensors")
    config = {"architecture": ARCHITECTURE, **asdict(network.shape)}
    (folder / "config.json").write_text(json.dumps(config, indent=2) + "\n", encoding="utf-8")
    tokenizer.save_pretrained(folder)


def load(folder: Path, device: torch.device, dtype: torch.dtype) -> tuple[TranslationNetwork, Any]:
    """Read a network and its tokenizer."""
    config = read_config(folder)
    if config.pop("architecture", None) != ARCHITECTURE:
        raise ModelError(f"'{folder}' is not a translation model, by its config.json.")
    check_files(folder)
    # The meta device allocates and draws nothing; every weight is assigned below.
    with torch.device("meta"):
        network = TranslationNetwork(_shape(config, folder))
    try:
        weights = load_file(folder / "model.safetensors")
    except Exception as error:  # safetensors has its own exception class
        raise ModelError(
            f"the translation model '{folder}' is damaged: its model.safetensors is missing or "
            "cannot be read."
        ) from error
    expected, actual = _sizes(network.state_dict()), _sizes(weights)
    differ = [name for name in expected.keys() | actual if expected.get(name) != actual.get(name)]
    if differ:
        raise ModelError(
            f"the translation model '{folder}' is damaged: its weights do not fit its config.json "
            f"({min(differ)})."
        )
    copies = {name: value.to(device, dtype, copy=True) for name, value in weights.items()}
    network.load_state_dict(copies, assign=True)
    tokenizer = load_tokenizer(folder)
    if max(tokenizer.get_vocab().values(), default=0) >= network.shape.vocabulary:
        raise ModelError(f"the tokenizer of '{folder}' has more tokens than its network.")
    return network.eval().requires_grad_(False), tokenizer


def load_tokenizer(folder: Path) -> Any:
    """Read the tokenizer of a translation model."""
    tokenizer: Any = PlainTokenizer.read(folder)
    try:
        if tokenizer is None:
            general = import_transformers().PreTrainedTokenizerFast
            with silence_transformers():
                tokenizer = general.from_pretrained(folder)
    except Exception as error:  # damaged files raise many kinds of errors
        raise ModelError(f"'{folder}' has no readable tokenizer.") from error
    for name in ("pad", "bos", "eos", "unk", "mask"):
        if getattr(tokenizer, f"{name}_token_id") is None:
            raise ModelError(f"the tokenizer of '{folder}' lacks its {name} token.")
    merges = Path(folder) / FILE
    return BytePairTokenizer(tokenizer, Merges.read(merges)) if merges.exists() else tokenizer


def _shape(config: dict[str, Any], folder: Path) -> TranslationShape:
    """Refuse impossible sizes before anything is allocated."""
    kinds = get_type_hints(TranslationShape)
    try:
        shape = TranslationShape(**{name: config[name] for name in kinds if name in config})
        values = asdict(shape)
        sizes = [value for value in values.values() if type(value) is int]
        valid = (
            all(type(value) is kinds[name] for name, value in values.items())
            and all(0 < size <= 2**20 for size in sizes)
            and max(shape.encoder_layers, shape.decoder_layers) <= 2**10
            and shape.width % shape.heads == 0
            and 0 < shape.norm_epsilon < 1
        )
    except TypeError:  # a required size is missing
        valid = False
    if not valid:
        raise ModelError(
            f"the translation model '{folder}' is damaged: invalid sizes in its config.json."
        )
    return shape


def _sizes(weights: dict[str, Tensor]) -> dict[str, list[int]]:
    return {name: list(value.shape) for name, value in weights.items()}
