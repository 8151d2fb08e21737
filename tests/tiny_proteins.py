"""Tiny random models of proteins, and stand-ins for the packages of antibody models."""

import argparse
import json
from pathlib import Path

import torch
from transformers import (
    BertConfig,
    BertForMaskedLM,
    RobertaConfig,
    RobertaForMaskedLM,
)

import maskov
from maskov.models import HuggingFaceModel
from tiny_models import build

AMINO_ACIDS = "ACDEFGHIKLMNPQRSTVWY"
SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
_SIZES = {
    "hidden_size": 16,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 32,
    "max_position_embeddings": 64,
    "initializer_range": 0.7,
    "vocab_size": 25,
}


def write_vocabulary(folder: Path, words: list[str]) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "vocab.txt").write_text("\n".join(words) + "\n")
    return folder / "vocab.txt"


def save_bert(folder: Path) -> None:
    """Write a BERT of the twenty residues, in AntiBERTy's vocabulary."""
    _bert().save_pretrained(folder)
    write_vocabulary(folder, [*SPECIAL, *AMINO_ACIDS])


def _bert() -> BertForMaskedLM:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return BertForMaskedLM(BertConfig(pad_token_id=0, **_SIZES)).eval()


def spaced_model(folder: Path) -> HuggingFaceModel:
    """Return a model whose tokenizer wants spaces between letters."""
    save_bert(folder)
    return maskov.load(folder, "cpu", "float64", tokenizer=str(folder / "vocab.txt"))


def joined_model(folder: Path) -> HuggingFaceModel:
    """Return a model whose tokenizer takes letters without spaces."""
    return maskov.load(build("esm", folder), "cpu", "float64")


# The packages `antiberty` and `sapiens`: the same files, tiny random weights.


def write_antiberty(site: Path) -> BertForMaskedLM:
    """Write the package's files; its code must never be imported."""
    folder = _package(site / "antiberty") / "trained_models"
    write_vocabulary(folder, [*SPECIAL, *AMINO_ACIDS])
    network = _bert()
    weights = folder / "AntiBERTy_md_smooth"
    weights.mkdir()
    settings = network.config.to_dict() | {"model_type": "bert", "architectures": ["AntiBERTy"]}
    (weights / "config.json").write_text(json.dumps(settings))
    # Heads for species and chains, which a masked LM does not have.
    more = {"cls.species_classifier.weight": torch.zeros(6, _SIZES["hidden_size"])}
    torch.save(network.state_dict() | more, weights / "pytorch_model.bin")
    return network


def write_sapiens(site: Path) -> dict[str, RobertaForMaskedLM]:
    """Write checkpoints with fairseq's names; return the same networks by kind of chain."""
    folder = _package(site / "sapiens") / "models" / "v1"
    folder.mkdir(parents=True)
    (folder / "dict.txt").write_text("".join(f"{letter} 1\n" for letter in AMINO_ACIDS))
    networks = {}
    for seed, kind in enumerate(("vh", "vl")):
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            config = RobertaConfig(
                type_vocab_size=1, pad_token_id=1, layer_norm_eps=1e-5, tie_word_embeddings=False,
                **_SIZES,
            )  # fmt: skip
            network = RobertaForMaskedLM(config).eval()
            torch.nn.init.normal_(network.lm_head.decoder.bias)
        torch.nn.init.zeros_(network.roberta.embeddings.token_type_embeddings.weight)
        args = argparse.Namespace(
            encoder_attention_heads=_SIZES["num_attention_heads"], activation_fn="gelu"
        )
        state = fairseq_state(network.state_dict())
        torch.save(
            {"args": args, "model": state, "extra_state": {}}, folder / f"checkpoint_{kind}.pt"
        )
        networks[kind] = network
    return networks


def fairseq_state(state: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Return weights by fairseq's names."""
    renamed = {
        "roberta.encoder.layer": "decoder.sentence_encoder.layers",
        "attention.self.query": "self_attn.q_proj",
        "attention.self.key": "self_attn.k_proj",
        "attention.self.value": "self_attn.v_proj",
        "attention.output.dense": "self_attn.out_proj",
        "attention.output.LayerNorm": "self_attn_layer_norm",
        "intermediate.dense": "fc1",
        "output.dense": "fc2",
        "output.LayerNorm": "final_layer_norm",
        "roberta.embeddings.word_embeddings": "decoder.sentence_encoder.embed_tokens",
        "roberta.embeddings.position_embeddings": "decoder.sentence_encoder.embed_positions",
        "roberta.embeddings.LayerNorm": "decoder.sentence_encoder.emb_layer_norm",
        "lm_head.decoder": "decoder.lm_head",
        "lm_head.dense": "decoder.lm_head.dense",
        "lm_head.layer_norm": "decoder.lm_head.layer_norm",
    }
    found = {}
    for name, value in state.items():
        if "token_type" in name or "position_ids" in name or name == "lm_head.bias":
            continue
        for ours, theirs in renamed.items():
            name = name.replace(ours, theirs)
        found[name] = value.clone()
    return found


def _package(folder: Path) -> Path:
    folder.mkdir(parents=True)
    (folder / "__init__.py").write_text("raise RuntimeError('imported')\n")
    return folder
