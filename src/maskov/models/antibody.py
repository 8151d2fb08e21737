"""Antibody models by name, from the weights in the PyPI packages `antiberty` and `sapiens`.

The packages are looked up, never imported: both import code that their weights do not need, and
Sapiens' needs fairseq. Weights are read as tensors only. Those of Sapiens have fairseq's names and
are converted in memory into `RobertaForMaskedLM`.
"""

from __future__ import annotations

import argparse
import pickle
from pathlib import Path
from typing import Any

import torch

from maskov.errors import ModelError
from maskov.models.huggingface import HuggingFaceModel
from maskov.shipped import PACKAGES

# fairseq puts the first four before the letters of its dictionary, and the mask after them.
_BEFORE, _MASK = ("<s>", "<pad>", "</s>", "<unk>"), "<mask>"
# fairseq's names of weights, and what stands for them in Hugging Face's.
_NAMES = {
    "decoder.sentence_encoder.embed_tokens": "roberta.embeddings.word_embeddings",
    "decoder.sentence_encoder.embed_positions": "roberta.embeddings.position_embeddings",
    "decoder.sentence_encoder.emb_layer_norm": "roberta.embeddings.LayerNorm",
    "decoder.sentence_encoder.layers": "roberta.encoder.layer",
    "self_attn.q_proj": "attention.self.query",
    "self_attn.k_proj": "attention.self.key",
    "self_attn.v_proj": "attention.self.value",
    "self_attn.out_proj": "attention.output.dense",
    "self_attn_layer_norm": "attention.output.LayerNorm",
    "fc1": "intermediate.dense",
    "fc2": "output.dense",
    "final_layer_norm": "output.LayerNorm",
    "decoder.lm_head.weight": "lm_head.decoder.weight",
    "decoder.lm_head.bias": "lm_head.decoder.bias",
    "decoder.lm_head": "lm_head",
}


def load_antibody(name: str, device: torch.device, dtype: torch.dtype) -> HuggingFaceModel:
    """Load one of these models, or say what to install."""
    package = PACKAGES[name]
    folder = package.folder()
    if folder is None:
        raise ModelError(
            f"'{name}' needs the weights in the package '{package.name}': {package.install}"
        )
    weights, vocabulary = folder / package.weights, folder / package.vocabulary
    if package.name == "antiberty":
        return HuggingFaceModel.load(
            str(weights.parent), device, dtype, str(vocabulary), called=name, allow_download=False
        )
    try:
        lines = vocabulary.read_text(encoding="utf-8").split("\n")
        words = [*_BEFORE, *(line.split(" ")[0] for line in lines if line), _MASK]
        network = _sapiens(weights, len(words))
    except pickle.UnpicklingError as error:
        raise ModelError(
            f"'{weights}' is damaged, or has more than tensors and settings, which may be code: "
            "nothing in it was run; install its package again."
        ) from error
    except Exception as error:  # damaged files raise many kinds of errors
        raise ModelError(
            f"'{weights}' is damaged or of another version; install its package again."
        ) from error
    return HuggingFaceModel(network.to(device, dtype), _tokenizer(words), name)


def _sapiens(file: Path, size: int) -> Any:
    """Read a checkpoint of fairseq's RoBERTa with so many tokens; no code in it runs."""
    from transformers import RobertaConfig, RobertaForMaskedLM

    with torch.serialization.safe_globals([argparse.Namespace]):
        content = torch.load(file, map_location="cpu", weights_only=True)
    state, settings = {}, vars(content["args"])
    for name, value in content["model"].items():
        for theirs, ours in _NAMES.items():
            name = name.replace(theirs, ours)
        state[name] = value
    state["lm_head.bias"] = state["lm_head.decoder.bias"]
    width = state["roberta.embeddings.word_embeddings.weight"].shape[1]
    # fairseq has no token types, and its layer norm is torch's.
    state["roberta.embeddings.token_type_embeddings.weight"] = torch.zeros(1, width)
    config = RobertaConfig(
        vocab_size=size,
        hidden_size=width,
        num_hidden_layers=sum(name.endswith("intermediate.dense.bias") for name in state),
        num_attention_heads=settings["encoder_attention_heads"],
        intermediate_size=len(state["roberta.encoder.layer.0.intermediate.dense.bias"]),
        hidden_act=str(settings.get("activation_fn", "gelu")),
        max_position_embeddings=len(state["roberta.embeddings.position_embeddings.weight"]),
        type_vocab_size=1,
        layer_norm_eps=1e-5,
        pad_token_id=_BEFORE.index("<pad>"),
        bos_token_id=_BEFORE.index("<s>"),
        eos_token_id=_BEFORE.index("</s>"),
        tie_word_embeddings=False,
    )
    with torch.random.fork_rng(devices=[]):  # the weights that are replaced are drawn
        network = RobertaForMaskedLM(config)
    network.load_state_dict(state)
    return network


def _tokenizer(words: list[str]) -> Any:
    """Return a tokenizer of letters that are separated by spaces."""
    from tokenizers import Tokenizer, models, pre_tokenizers, processors
    from transformers import PreTrainedTokenizerFast

    ids = {word: index for index, word in enumerate(words)}
    begin, pad, end, unknown = _BEFORE
    backend = Tokenizer(models.WordLevel(ids, unk_token=unknown))
    backend.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    backend.post_processor = processors.TemplateProcessing(
        single=f"{begin} $A {end}", special_tokens=[(begin, ids[begin]), (end, ids[end])]
    )
    return PreTrainedTokenizerFast(
        tokenizer_object=backend,
        bos_token=begin,
        pad_token=pad,
        eos_token=end,
        unk_token=unknown,
        mask_token=_MASK,
        clean_up_tokenization_spaces=False,
    )
