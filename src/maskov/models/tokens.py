"""Tokens: from texts, in texts, and which of them must never be proposed.

Tokenizers may be anybody's, and their errors become one sentence: a `ModelError`. One of them is
that of Oniguruma, which runs a tokenizer's regular expressions and gives a match up after ten
million steps (less than a second, and other threads run meanwhile).
"""

from __future__ import annotations

import copy
import json
import re
import sys
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib import import_module
from itertools import accumulate, pairwise
from logging import CRITICAL, getLogger
from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer

from maskov.errors import ModelError, refuse
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
        # What panics in Rust is not an Exception. An incomplete vocabulary fails only here, too.
        if not isinstance(error, Exception) and type(error).__name__ != "PanicException":
            raise
        first = str(error).partition("\n")[0]
        raise ModelError(f"the tokenizer of '{name}' cannot read a text: {first}") from error


def frame_of(tokenizer: Any, name: str) -> tuple[list[int], list[int]]:
    """Return the special tokens that a tokenizer puts before and after a text."""
    coded = token_ids(tokenizer, tokenizer.mask_token, name)
    place = coded.index(tokenizer.mask_token_id)
    return list(coded[:place]), list(coded[place + 1 :])


# More rows than any network has for tokens that its tokenizer lacks.
_MOST_ADDED = 2**16


def with_mask(tokenizer: Any, wanted: int | None, name: str) -> Any:
    """Return a tokenizer whose mask token has this id: a copy, unless it is so already.

    A mask behind the vocabulary, where networks often keep it, gets a name.
    """
    if wanted is None or tokenizer.mask_token_id == wanted:
        return tokenizer
    if isinstance(tokenizer, PlainTokenizer):
        tokenizer = import_quietly().PreTrainedTokenizerFast(
            tokenizer_object=tokenizer.backend_tokenizer, **tokenizer.special_tokens_map
        )
    tokenizer = copy.deepcopy(tokenizer)
    vocabulary = {number: token for token, number in tokenizer.get_vocab().items()}
    size = max(vocabulary, default=-1) + 1
    if size <= wanted < size + _MOST_ADDED:
        tokenizer.add_tokens([f"[unused{number}]" for number in range(size, wanted)])
    names = [name for name in ("[MASK]", "<|mask|>") if name not in vocabulary.values()]
    tokenizer.add_special_tokens({"mask_token": vocabulary.get(wanted) or names[0]})
    refuse(
        (
            tokenizer.mask_token_id != wanted,
            f"the tokenizer of '{name}' cannot have the mask token {wanted}.",
        ),
        kind=ModelError,
    )
    return tokenizer


def check_tokens(tokenizer: Any, rows: int, name: str) -> None:
    """Refuse a tokenizer with tokens that a network of so many rows does not have."""
    largest = max(tokenizer.get_vocab().values(), default=0)
    refuse(
        (
            largest >= rows,
            f"the tokenizer of '{name}' has tokens up to {largest}, its network only {rows} rows "
            "of them; give the tokenizer it was trained with: --model 'NAME(tokenizer=FOLDER)'.",
        ),
        kind=ModelError,
    )


def embedding_rows(network: Any) -> int:
    """Return how many tokens a network takes; many, if it does not tell."""
    try:
        return int(network.get_input_embeddings().weight.shape[0])
    except (NotImplementedError, AttributeError):
        return 2**31


def read_json(file: Path) -> dict[str, Any]:
    """Return the entries of a JSON file; nothing, if it cannot be read."""
    try:
        content = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return {}
    return content if isinstance(content, dict) else {}


_SPECIAL = tuple(f"{name}_token" for name in ("bos", "eos", "unk", "sep", "pad", "cls", "mask"))
# Settings of a tokenizer that change nothing here: those of BERT's are in its tokenizer.json.
_SETTINGS = frozenset(
    {"tokenizer_class", "extra_special_tokens", "model_max_length", "clean_up_tokenization_spaces",
     "backend", "is_local", "do_lower_case", "strip_accents", "tokenize_chinese_chars"}
)  # fmt: skip
# Files that transformers reads besides tokenizer.json, and a size at which it may change that.
_OTHER_FILES = ("special_tokens_map.json", "added_tokens.json")
_LARGE = 100_000


class PlainTokenizer:
    """A tokenizer.json and its special tokens, as transformers' general tokenizer has them.

    That takes a second to import. Attributes have its names.
    """

    is_fast = True
    clean_up_tokenization_spaces = False

    def __init__(self, backend: Any, special: Mapping[str, str], extra: Sequence[str], most: int):
        self.backend_tokenizer, self._extra = backend, list(extra)
        self.special_tokens_map = dict(special)
        self.all_special_tokens = list(dict.fromkeys([*special.values(), *extra]))
        self.all_special_ids = [backend.token_to_id(token) for token in self.all_special_tokens]
        self.added_tokens_decoder = backend.get_added_tokens_decoder()
        self.model_max_length = most
        for name in _SPECIAL:
            token = special.get(name)
            setattr(self, name, token)
            setattr(self, f"{name}_id", None if token is None else backend.token_to_id(token))

    @classmethod
    def read(cls, folder: Path) -> PlainTokenizer | None:
        """Read a folder; None if its files say more than this class knows."""
        file, settings = folder / "tokenizer.json", read_json(folder / "tokenizer_config.json")
        special = {name: settings[name] for name in _SPECIAL if settings.get(name) is not None}
        extra = settings.get("extra_special_tokens") or []
        if (
            settings.get("tokenizer_class") not in ("TokenizersBackend", "PreTrainedTokenizerFast")
            or not settings.keys() <= {*_SPECIAL, *_SETTINGS}
            or settings.get("clean_up_tokenization_spaces")
            or not isinstance(extra, list)
            or any((folder / name).exists() for name in _OTHER_FILES)
        ):
            return None
        try:
            backend = Tokenizer.from_file(str(file))
        except Exception:  # damaged files raise nothing more special; transformers says which
            return None
        known = {one.content for one in backend.get_added_tokens_decoder().values() if one.special}
        if (
            not known.issuperset([*special.values(), *extra])
            or backend.post_processor is None
            or backend.truncation is not None
            or backend.padding is not None
            or backend.get_vocab_size() > _LARGE
        ):
            return None
        return cls(backend, special, extra, settings.get("model_max_length") or 10**30)

    def __call__(
        self,
        text: str | Sequence[str],
        add_special_tokens: bool = True,
        return_offsets_mapping: bool = False,
    ) -> dict[str, Any]:
        """Return the ids of a text, or of several, and where the tokens are from."""
        one = isinstance(text, str)
        texts = [text] if one else list(text)
        coded = self.backend_tokenizer.encode_batch(texts, add_special_tokens=add_special_tokens)
        found: dict[str, Any] = {"input_ids": [row.ids for row in coded]}
        if return_offsets_mapping:
            found["offset_mapping"] = [row.offsets for row in coded]
        return {name: rows[0] for name, rows in found.items()} if one else found

    def get_vocab(self) -> dict[str, int]:
        """Return the id of every token."""
        return dict(self.backend_tokenizer.get_vocab(with_added_tokens=True))

    def convert_ids_to_tokens(self, ids: Sequence[int]) -> list[str | None]:
        """Return the spelling of tokens."""
        return [self.backend_tokenizer.id_to_token(number) for number in ids]

    def decode(self, ids: Sequence[int]) -> str:
        """Return the text of tokens, special ones included."""
        return str(self.backend_tokenizer.decode(list(ids), skip_special_tokens=False))

    def save_pretrained(self, folder: str | Path) -> None:
        """Write the files that `read` reads."""
        settings = {
            **self.special_tokens_map,
            "extra_special_tokens": self._extra,
            "model_max_length": self.model_max_length,
            "tokenizer_class": "TokenizersBackend",
        }
        self.backend_tokenizer.save(str(Path(folder) / "tokenizer.json"))
        text = json.dumps(settings, indent=2, ensure_ascii=False) + "\n"
        (Path(folder) / "tokenizer_config.json").write_text(text, encoding="utf-8")

    def __len__(self) -> int:
        return int(self.backend_tokenizer.get_vocab_size(with_added_tokens=True))


# Byte-pair merges as subword-nmt and fastBPE define them, next to the files of a tokenizer.
MERGES_FILE = "bpe_merges.txt"
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
        refuse(
            (
                columns not in ({2}, {3}),
                f"'{path}' is not a BPE merges file: not every line is a pair.",
            ),
            kind=ModelError,
        )
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
            pair = min(known, key=self._rank.__getitem__)
            for place in range(len(parts)):  # every occurrence, from the left; parts get fewer
                if tuple(parts[place : place + 2]) == pair:
                    parts[place : place + 2] = ["".join(pair)]
        if parts[-1] == _WORD_END:
            parts.pop()
        else:
            parts[-1] = parts[-1].removesuffix(_WORD_END)
        return [part + CONTINUES for part in parts[:-1]] + parts[-1:]


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
        cut = self._line(text) if isinstance(text, str) else list(map(self._line, text))
        return self.words(cut, **options)

    def save_pretrained(self, folder: str | Path, **options: Any) -> None:
        """Write the word-level tokenizer and the merges."""
        self.words.save_pretrained(folder, **options)
        lines = "\n".join(self.merges.lines()) + "\n"
        (Path(folder) / MERGES_FILE).write_text(lines, encoding="utf-8", newline="\n")

    def __len__(self) -> int:
        return len(self.words)

    def __getattr__(self, name: str) -> Any:
        # Copying and unpickling look up attributes before `words` exists.
        if name.startswith("__") or name == "words":
            raise AttributeError(name)
        return getattr(self.words, name)

    def _line(self, text: str) -> str:
        parts = self._pattern.sub(r" \g<0> ", text).split()
        split = ([word] if word in self._special else self.merges.split(word) for word in parts)
        return " ".join(subword for subwords in split for subword in subwords)


def import_quietly(name: str = "transformers") -> Any:
    """Import tqdm, or what imports it: in a notebook without ipywidgets it warns about its bars.

    To import transformers takes seconds, so this is called only where it is needed.
    """
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="IProgress not found")
        return import_module(name)


@contextmanager
def silence_transformers() -> Iterator[None]:
    """Silence the logs and progress bars of transformers and huggingface_hub, then restore them.

    Tokenizers that do without transformers need nothing.
    """
    if "transformers" not in sys.modules:
        yield
        return
    from transformers.utils import logging

    bars = logging.is_progress_bar_enabled()
    levels = {one: one.level for one in map(getLogger, ("transformers", "huggingface_hub"))}
    for logger in levels:  # if the hub's retries fail, our own error says so
        logger.setLevel(CRITICAL)
    logging.disable_progress_bar()
    try:
        yield
    finally:
        for logger, level in levels.items():
            logger.setLevel(level)
        if bars:
            logging.enable_progress_bar()


# Markers of word starts and continuations in vocabularies; a token may be nothing else.
_BEFORE = re.compile(r"\A(##)?Ġ?▁?(?=.)", re.DOTALL)
_AFTER = re.compile(r"(?<=.)(@@)?(</w>)?\Z", re.DOTALL)


def token_spans(text: str, tokens: Sequence[str]) -> list[str] | None:
    """Split a text into one span per token, with the spaces before it; None if they disagree.

    The concatenated spans are the text. They disagree if the decoder changed more than case and
    spaces.
    """
    spans: list[str] = []
    at = 0
    for token in tokens:
        word, start = spelling([token]), at
        while text[start : start + 1].isspace():
            start += 1
        end = start + len(word)
        if not word or text[start:end].casefold() != word.casefold():
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
    return "".join(_AFTER.sub("", _BEFORE.sub("", token)) for token in tokens)


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
    if not AMINO_ACIDS <= set(letters.values()) <= AMINO_ACIDS | _OTHER_LETTERS:
        return frozenset()
    return frozenset(number for number, name in letters.items() if name not in AMINO_ACIDS)
