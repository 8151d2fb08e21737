"""Tiny random protein models: one reads letters as they are (ESM), one wants spaces (BERT)."""

from pathlib import Path

import torch
from transformers import BertConfig, BertForMaskedLM, EsmConfig, EsmForMaskedLM

import maskov
from maskov.models import HuggingFaceModel

AMINO_ACIDS = "ACDEFGHIKLMNPQRSTVWY"
SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
_SIZES = {
    "hidden_size": 16,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 32,
    "max_position_embeddings": 64,
    "initializer_range": 0.7,
}


def write_vocabulary(folder: Path, words: list[str]) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "vocab.txt").write_text("\n".join(words) + "\n")
    return folder / "vocab.txt"


def save_bert(folder: Path) -> None:
    """Write a BERT of the twenty residues, in AntiBERTy's vocabulary."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        network = BertForMaskedLM(BertConfig(vocab_size=25, pad_token_id=0, **_SIZES))
    network.save_pretrained(folder)
    write_vocabulary(folder, [*SPECIAL, *AMINO_ACIDS])


def spaced_model(folder: Path) -> HuggingFaceModel:
    """Return a model whose tokenizer wants spaces between letters."""
    save_bert(folder)
    return maskov.load(folder, "cpu", "float64", tokenizer=str(folder / "vocab.txt"))


def save_esm(folder: Path) -> Path:
    """Write an ESM with its own vocabulary."""
    from transformers import EsmTokenizer

    words = [
        "<cls>",
        "<pad>",
        "<eos>",
        "<unk>",
        *"LAGVSERTIDPKQNFYMHWCXBUZO.-",
        "<null_1>",
        "<mask>",
    ]
    tokenizer = EsmTokenizer(str(write_vocabulary(folder, words)))
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        network = EsmForMaskedLM(
            EsmConfig(
                vocab_size=len(words), mask_token_id=len(words) - 1, pad_token_id=1,
                position_embedding_type="rotary", **_SIZES,
            )
        )  # fmt: skip
    network.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def joined_model(folder: Path) -> HuggingFaceModel:
    """Return a model whose tokenizer takes letters without spaces."""
    return maskov.load(save_esm(folder), "cpu", "float64")
