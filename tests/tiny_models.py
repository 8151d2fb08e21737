"""Tiny checkpoints with random weights, one for each family, and their tokenizers.

Every parameter is random, biases and scales of norms included: where all biases are zero, a head
that forgets one looks right.
"""

from collections.abc import Callable, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
import transformers as hf
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, processors

from json_files import edited

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


TEXTS = ["the cat sat", "a big red dog ran and the old bird ate", "not in the house", "dog"]
PROTEINS = ["M K T A", "L A G V S E R T I D P K", "W C H", "E"]
# Tokens that fit into each model, special ones included.
CAPACITY = 24
# Rows that a model has and its tokenizer has not, as where a vocabulary was rounded up.
SPARE_ROWS = {"roberta": 3, "modernbert": 5, "esm": 2}

_SHAPE = {
    "hidden_size": 16,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 24,
    "initializer_range": 0.5,
    "max_position_embeddings": CAPACITY,
}
# These count positions from the padding's id, 1, so that their first two rows hold no token.
_OFFSET = _SHAPE | {"max_position_embeddings": CAPACITY + 2}
_DISTILBERT = {
    "dim": 16,
    "n_layers": 2,
    "n_heads": 2,
    "hidden_dim": 24,
    "initializer_range": 0.5,
    "max_position_embeddings": CAPACITY,
}
# A narrow window and layers of both kinds: local attention must see the right neighbours.
_MODERNBERT = _SHAPE | {"local_attention": 4, "norm_bias": True, "classifier_bias": True}
_NO_IDS = dict.fromkeys(["bos_token_id", "eos_token_id", "cls_token_id", "sep_token_id"])
# As ESM-2 has it: rotary positions, and masked tokens that change the scale of all others.
_ESM = _OFFSET | {"position_embedding_type": "rotary", "token_dropout": True}


def build(family: str, folder: Path, dtype: torch.dtype = torch.float32) -> Path:
    """Save a tiny model of a family with its tokenizer; return the folder."""
    tokenizer = _FAMILIES[family][0]()
    settings = {
        "vocab_size": len(tokenizer) + SPARE_ROWS.get(family, 0),
        "pad_token_id": tokenizer.pad_token_id,
        "mask_token_id": tokenizer.mask_token_id,
    }
    return save(maker(family, **settings), tokenizer, folder, dtype)


def maker(family: str, **settings: Any) -> Callable[[], Any]:
    """Return a function that makes a network of a family."""
    _, make_model, options = _FAMILIES[family]
    return lambda: make_model(make_model.config_class(**options | settings))


def build_gpt2(folder: Path, tokenizer: Any, dtype: torch.dtype = torch.float32) -> Path:
    """Save a tiny causal model for a tokenizer; return the folder."""
    config = hf.GPT2Config(
        vocab_size=len(tokenizer),
        n_embd=16,
        n_layer=2,
        n_head=2,
        n_positions=CAPACITY,
        initializer_range=0.5,
        bos_token_id=0,
        eos_token_id=0,
    )
    return save(lambda: hf.GPT2LMHeadModel(config), tokenizer, folder, dtype)


def save(
    make_model: Callable[[], Any], tokenizer: Any, folder: Path, dtype: torch.dtype = torch.float32
) -> Path:
    """Save a model with random weights, the same ones each time, and its tokenizer."""
    randomised(make_model).to(dtype).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def randomised(make_model: Callable[[], Any]) -> Any:
    """Return a network whose every parameter is random, the same ones each time."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(1)
        made = make_model()
        with torch.no_grad():
            for parameter in made.parameters():
                parameter.add_(0.3 * torch.randn_like(parameter))
    return made


def edit_config(folder: Path, **changes: Any) -> None:
    """Change entries of a saved model's config."""
    with edited(folder / "config.json") as config:
        config.update(changes)


def texts_for(family: str) -> list[str]:
    """Return texts of mixed lengths in the family's vocabulary."""
    return PROTEINS if family == "esm" else TEXTS


_FAMILIES: dict[str, tuple[Callable[[], Any], Any, dict[str, Any]]] = {
    "bert": (lambda: bert(model_max_length=CAPACITY), hf.BertForMaskedLM, _SHAPE),
    "distilbert": (bert, hf.DistilBertForMaskedLM, _DISTILBERT),
    "roberta": (roberta, hf.RobertaForMaskedLM, _OFFSET),
    "xlm-roberta": (xlm_roberta, hf.XLMRobertaForMaskedLM, _OFFSET),
    "camembert": (camembert, hf.CamembertForMaskedLM, _OFFSET),
    "albert": (albert, hf.AlbertForMaskedLM, _SHAPE | {"embedding_size": 12}),
    "electra": (bert, hf.ElectraForMaskedLM, _SHAPE | {"embedding_size": 12}),
    "modernbert": (lambda: modernbert(CAPACITY), hf.ModernBertForMaskedLM, _MODERNBERT | _NO_IDS),
    "esm": (esm, hf.EsmForMaskedLM, _ESM),
    # No family that maskov knows: its own forward must serve.
    "mpnet": (mpnet, hf.MPNetForMaskedLM, _OFFSET),
}
FAMILIES = tuple(_FAMILIES)


def word_tokenizer(words: str) -> Any:
    """Return a tokenizer of a few words, as `small.tiny_bert` has it."""
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "[unused0]"]
    return hf.BertTokenizer(vocab={word: i for i, word in enumerate([*special, *words.split()])})


def build_classifier(
    folder: Path,
    words: str,
    labels: tuple[str, ...] = ("negative", "positive"),
    tokenizer: Any = None,
    **options: Any,
) -> Path:
    """Save a tiny sequence classifier; return the folder."""
    tokenizer = tokenizer or word_tokenizer(words)
    names = dict(enumerate(labels))
    ids = {name: index for index, name in names.items()}
    shape = {"vocab_size": len(tokenizer), "id2label": names, "label2id": ids}
    config = hf.BertConfig(**_SHAPE | shape | options)
    return save(lambda: hf.BertForSequenceClassification(config), tokenizer, folder)


def build_encoder(folder: Path, words: str) -> Path:
    """Save a tiny encoder, whose vectors say how alike texts are; return the folder."""
    tokenizer = word_tokenizer(words)
    config = hf.BertConfig(**_SHAPE | {"vocab_size": len(tokenizer)})
    return save(lambda: hf.BertModel(config), tokenizer, folder)


def build_masked(folder: Path, words: str) -> Path:
    """Save a tiny masked model of a few words; return the folder."""
    tokenizer = word_tokenizer(words)
    config = hf.BertConfig(**_SHAPE | {"vocab_size": len(tokenizer)})
    return save(lambda: hf.BertForMaskedLM(config), tokenizer, folder)
