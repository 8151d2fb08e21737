"""Antibody models by name, from the weights in the PyPI packages `antiberty` and `sapiens`.

The packages are looked up, never imported: both import code that their weights do not need, and
Sapiens' needs fairseq. Weights are read as tensors only. Those of Sapiens have fairseq's names and
are converted in memory into `RobertaForMaskedLM`.
"""

from __future__ import annotations

import argparse
import importlib.util
import pickle
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from maskov.errors import ModelError
from maskov.models.huggingface import HuggingFaceModel
from maskov.shipped import PACKAGED, Shipped
from maskov.types import Tensor

# fairseq puts the first four before the letters of its dictionary, and the mask after them.
_BEFORE, _MASK = ("<s>", "<pad>", "</s>", "<unk>"), "<mask>"
_PAD_ID = 1
_ENCODER, _HEAD = "decoder.sentence_encoder", "decoder.lm_head"
# fairseq's layer norm is torch's.
_EPSILON = 1e-5
# Far more than any model of these has.
_MOST_LAYERS = 64


@dataclass(frozen=True)
class _Package:
    """Where a package keeps a model."""

    name: str
    install: str
    weights: str
    vocabulary: str


_SAPIENS = "pip install --no-deps sapiens==1.0.3"
_PACKAGES = {
    "antiberty": _Package(
        "antiberty",
        "pip install '.[antibody]'",
        "trained_models/AntiBERTy_md_smooth/pytorch_model.bin",
        "trained_models/vocab.txt",
    ),
    "sapiens-vh": _Package(
        "sapiens", _SAPIENS, "models/v1/checkpoint_vh.pt", "models/v1/dict.txt"
    ),
    "sapiens-vl": _Package(
        "sapiens", _SAPIENS, "models/v1/checkpoint_vl.pt", "models/v1/dict.txt"
    ),
}  # fmt: skip
assert set(_PACKAGES) == {model.name for model in PACKAGED}


def installed() -> list[Shipped]:
    """Return the models whose packages are there."""
    found = []
    for model in PACKAGED:
        folder = _folder(_PACKAGES[model.name])
        if folder is not None:
            size = (folder / _PACKAGES[model.name].weights).stat().st_size
            found.append(replace(model, bytes=size))
    return found


def load_antibody(name: str, device: torch.device, dtype: torch.dtype) -> HuggingFaceModel:
    """Load one of these models, or say what to install."""
    package = _PACKAGES[name]
    folder = _folder(package)
    if folder is None:
        raise ModelError(
            f"'{name}' needs the weights in the package '{package.name}': {package.install}"
        )
    weights, vocabulary = folder / package.weights, folder / package.vocabulary
    if package.name == "antiberty":
        return HuggingFaceModel.load(
            str(weights.parent), device, dtype, str(vocabulary), called=name, allow_download=False
        )
    network, tokenizer = _sapiens(weights, vocabulary)
    return HuggingFaceModel(network.to(device, dtype), tokenizer, name)


def _folder(package: _Package) -> Path | None:
    """Return the folder of a package that has its weights, without importing it."""
    try:
        spec = importlib.util.find_spec(package.name)
    except (ImportError, ValueError, AttributeError):
        return None
    for place in (spec and spec.submodule_search_locations) or ():
        if (Path(place) / package.weights).is_file():
            return Path(place)
    return None


def _sapiens(weights: Path, vocabulary: Path) -> tuple[Any, Any]:
    """Read a checkpoint of fairseq's RoBERTa and its dictionary."""
    from transformers import RobertaConfig, RobertaForMaskedLM

    words = _words(vocabulary)
    args, state = _unpickle(weights)
    converted, layers = _converted(state, weights)
    size, width = converted["roberta.embeddings.word_embeddings.weight"].shape
    heads = args.get("encoder_attention_heads")
    if size != len(words) or type(heads) is not int or heads < 1 or width % heads:
        raise _damaged(weights)
    config = RobertaConfig(
        vocab_size=size,
        hidden_size=width,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        intermediate_size=len(converted["roberta.encoder.layer.0.intermediate.dense.bias"]),
        hidden_act=str(args.get("activation_fn", "gelu")),
        max_position_embeddings=len(converted["roberta.embeddings.position_embeddings.weight"]),
        type_vocab_size=1,
        layer_norm_eps=_EPSILON,
        pad_token_id=_PAD_ID,
        bos_token_id=0,
        eos_token_id=2,
        tie_word_embeddings=False,
    )
    try:
        # The meta device allocates and draws nothing; every weight is assigned.
        with torch.device("meta"):
            network = RobertaForMaskedLM(config)
        network.load_state_dict(converted, strict=False, assign=True)
        left = [name for name, value in network.named_parameters() if value.is_meta]
        if left or set(converted) - set(network.state_dict()):
            raise _damaged(weights)
    except (RuntimeError, KeyError, ValueError) as error:
        raise _damaged(weights) from error
    for name, value in network.named_buffers():
        if value.is_meta:  # counters, which no checkpoint holds
            parent, _, last = name.rpartition(".")
            fresh = torch.zeros(value.shape, dtype=value.dtype)
            if last == "position_ids":
                fresh = torch.arange(value.shape[-1]).expand(value.shape).clone()
            network.get_submodule(parent).register_buffer(last, fresh, persistent=False)
    return network, _tokenizer(words)


def _unpickle(file: Path) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """Return settings and weights of a checkpoint; no code in it runs."""
    try:
        with torch.serialization.safe_globals([argparse.Namespace]):
            content = torch.load(file, map_location="cpu", weights_only=True)
        args, state = vars(content["args"]), content["model"]
    except pickle.UnpicklingError as error:
        raise ModelError(
            f"'{file}' is damaged, or has more than tensors and settings, which may be code: "
            "nothing in it was run; install its package again."
        ) from error
    except Exception as error:  # damaged files raise many kinds of errors
        raise _damaged(file) from error
    if not isinstance(state, dict) or not all(isinstance(x, torch.Tensor) for x in state.values()):
        raise _damaged(file)
    return args, state


def _converted(state: dict[str, Tensor], file: Path) -> tuple[dict[str, Tensor], int]:
    """Return the weights by Hugging Face's names, and the number of layers."""
    layers = 0
    while f"{_ENCODER}.layers.{layers}.fc1.weight" in state and layers < _MOST_LAYERS:
        layers += 1
    names = {
        f"{_ENCODER}.embed_tokens": "roberta.embeddings.word_embeddings",
        f"{_ENCODER}.embed_positions": "roberta.embeddings.position_embeddings",
        f"{_ENCODER}.emb_layer_norm": "roberta.embeddings.LayerNorm",
        f"{_HEAD}.dense": "lm_head.dense",
        f"{_HEAD}.layer_norm": "lm_head.layer_norm",
    }
    for layer in range(layers):
        theirs, ours = f"{_ENCODER}.layers.{layer}", f"roberta.encoder.layer.{layer}"
        names |= {
            f"{theirs}.self_attn.q_proj": f"{ours}.attention.self.query",
            f"{theirs}.self_attn.k_proj": f"{ours}.attention.self.key",
            f"{theirs}.self_attn.v_proj": f"{ours}.attention.self.value",
            f"{theirs}.self_attn.out_proj": f"{ours}.attention.output.dense",
            f"{theirs}.self_attn_layer_norm": f"{ours}.attention.output.LayerNorm",
            f"{theirs}.fc1": f"{ours}.intermediate.dense",
            f"{theirs}.fc2": f"{ours}.output.dense",
            f"{theirs}.final_layer_norm": f"{ours}.output.LayerNorm",
        }
    left = dict(state)
    found: dict[str, Tensor] = {}
    try:
        for theirs, ours in names.items():
            found[f"{ours}.weight"] = left.pop(f"{theirs}.weight").float()
            if "embed_" not in theirs:
                found[f"{ours}.bias"] = left.pop(f"{theirs}.bias").float()
        found["lm_head.decoder.weight"] = left.pop(f"{_HEAD}.weight").float()
        found["lm_head.decoder.bias"] = left.pop(f"{_HEAD}.bias").float()
    except KeyError as error:
        raise _damaged(file) from error
    if left or not layers:
        raise _damaged(file)
    found["lm_head.bias"] = found["lm_head.decoder.bias"]
    width = found["roberta.embeddings.word_embeddings.weight"].shape[-1]
    # fairseq has no token types.
    found["roberta.embeddings.token_type_embeddings.weight"] = torch.zeros(1, width)
    return found, layers


def _words(file: Path) -> list[str]:
    """Read a dictionary of lines `letter count`."""
    try:
        lines = file.read_text(encoding="utf-8").split("\n")
    except (OSError, UnicodeError) as error:
        raise _damaged(file) from error
    return [*_BEFORE, *(line.split(" ")[0] for line in lines if line), _MASK]


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


def _damaged(file: Path) -> ModelError:
    return ModelError(f"'{file}' is damaged or of another version; install its package again.")
