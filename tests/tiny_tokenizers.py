"""Small tokenizers of each family's own kind, with its special tokens and its unused ones."""

from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import transformers as hf
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, processors

_WORDS = "the a cat dog bird saw ate ran sat on in old red big tree house and not"
WORDS = _WORDS.split()
AMINO_ACIDS = list("LAGVSERTIDPKQNFYMHWC")


def bert(**options: Any) -> Any:
    """Return whole words, pieces with ## and brackets; the unused tokens are not marked special."""
    special = ["[PAD]", "[unused0]", "[unused1]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    words = [*special, *WORDS, "##s", "##ed", ".", ","]
    return hf.BertTokenizer(vocab={word: i for i, word in enumerate(words)}, **options)


def mpnet() -> Any:
    """Return BERT's words in RoBERTa's frame, with two tokens for unknown words."""
    words = ["<s>", "<pad>", "</s>", "<unk>", "[UNK]", *WORDS, "##s", ".", "<mask>"]
    return hf.MPNetTokenizer(vocab={word: i for i, word in enumerate(words)})


def gpt2() -> Any:
    """Return byte pairs with one token that begins and ends, and no mask."""
    vocab, merges = _byte_pairs(["<|endoftext|>"], [])
    return hf.GPT2Tokenizer(vocab=vocab, merges=merges)


def roberta() -> Any:
    """Return byte pairs with fairseq's padding of the vocabulary."""
    vocab, merges = _byte_pairs(
        ["<s>", "<pad>", "</s>", "<unk>"], ["madeupword0000", "madeupword0001", "<mask>"]
    )
    return hf.RobertaTokenizer(vocab=vocab, merges=merges, mask_token=_mask("<mask>"))


def modernbert(model_max_length: int) -> Any:
    """Return byte pairs in BERT's frame, with controls that no text should hold."""
    vocab, merges = _byte_pairs(
        ["|||IP_ADDRESS|||", "<|padding|>", "<|endoftext|>"],
        ["[UNK]", "[CLS]", "[SEP]", "[PAD]", "[MASK]", "[unused0]", "[unused1]"],
    )
    backend = Tokenizer(models.BPE(vocab=vocab, merges=merges))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    backend.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]",
        special_tokens=[(token, vocab[token]) for token in ("[CLS]", "[SEP]")],
    )
    return hf.PreTrainedTokenizerFast(
        tokenizer_object=backend,
        unk_token="[UNK]",
        cls_token="[CLS]",
        sep_token="[SEP]",
        pad_token="[PAD]",
        mask_token=_mask("[MASK]"),
        model_max_length=model_max_length,
    )


def xlm_roberta() -> Any:
    """Return sentence pieces in RoBERTa's frame."""
    pieces = _pieces(["<s>", "<pad>", "</s>", "<unk>"], ["<extra_id_0>", "<mask>"])
    return hf.XLMRobertaTokenizer(vocab=pieces, mask_token=_mask("<mask>"))


def camembert() -> Any:
    """Return sentence pieces with the leftovers that CamemBERT's vocabulary has."""
    special = ["<s>NOTUSED", "<pad>", "</s>NOTUSED", "<unk>", "<unk>NOTUSED", "<s>", "</s>"]
    return hf.CamembertTokenizer(vocab=_pieces(special, ["<mask>"]))


def albert() -> Any:
    """Return sentence pieces in BERT's frame."""
    pieces = _pieces(["<pad>", "<unk>", "[CLS]", "[SEP]", "[MASK]"], ["[unused0]"])
    return hf.AlbertTokenizer(vocab=pieces, mask_token=_mask("[MASK]"))


def esm() -> Any:
    """Return amino acids in ESM's own order of tokens."""
    rare = ["X", "B", "U", "Z", "O", ".", "-"]
    tokens = ["<cls>", "<pad>", "<eos>", "<unk>", *AMINO_ACIDS, *rare, "<null_1>", "<mask>"]
    with TemporaryDirectory() as folder:
        vocabulary = Path(folder) / "vocab.txt"
        vocabulary.write_text("\n".join(tokens), encoding="utf-8")
        return hf.EsmTokenizer(str(vocabulary))


def _mask(token: str) -> AddedToken:
    """Return a mask that takes the space before it, as these tokenizers have it."""
    return AddedToken(token, lstrip=True, special=True)


def _byte_pairs(
    before: Sequence[str], after: Sequence[str]
) -> tuple[dict[str, int], list[tuple[str, str]]]:
    """Return a vocabulary in which each word after a space is one token, and its merges."""
    pieces = dict.fromkeys(["Ġ", *sorted(set("".join(WORDS)))])
    merges: dict[tuple[str, str], None] = {}
    for word in WORDS:
        for end in range(len(word)):
            left = f"Ġ{word[:end]}"
            merges[left, word[end]] = None
            pieces[left + word[end]] = None
    return {piece: i for i, piece in enumerate([*before, *pieces, *after])}, list(merges)


def _pieces(before: Sequence[str], after: Sequence[str]) -> list[tuple[str, float]]:
    """Return scored pieces in which each word is better than its letters."""
    words = [(f"▁{word}", -2.0) for word in WORDS]
    letters = [(letter, -9.0) for letter in ["▁", *sorted(set("".join(WORDS)))]]
    return [*((token, 0.0) for token in before), *words, *letters, *((t, 0.0) for t in after)]
