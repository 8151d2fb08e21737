"""Enlarge a trained model without changing its outputs.

The cost of a run depends on how often proposals differ and are accepted, which random weights do
not show, and the package contains no trained model of the size of BERT-base. So the shipped model
is enlarged: every feature is duplicated (products average the two, norms are unaffected), and
layers are added that contribute nothing. It costs as much as a model of 12 layers of width 768 and
behaves like the small one.
"""

from __future__ import annotations

import copy

import torch

from maskov.models import HuggingFaceModel
from maskov.types import Tensor

LAYERS = 12


def grow(small: HuggingFaceModel) -> HuggingFaceModel:
    """Return a ModernBERT enlarged to twice its width and to 12 layers, in float32."""
    from transformers import ModernBertForMaskedLM

    old = small.network
    config = copy.deepcopy(old.config)
    config.hidden_size *= 2
    config.intermediate_size *= 2
    config.num_attention_heads *= 2
    config.num_hidden_layers = LAYERS
    config.layer_types = ["full_attention"] * LAYERS
    with torch.random.fork_rng(devices=[]):
        network = ModernBertForMaskedLM(config)
    source = {name: weight.float().cpu() for name, weight in old.state_dict().items()}
    with torch.no_grad():
        for name, weight in network.named_parameters():
            weight.copy_(_enlarged_weight(name, source, len(old.model.layers)))
    network.tie_weights()
    name = f"{small.name}-grown"
    return HuggingFaceModel(network.to(small.device), small.tokenizer, name)


def _enlarged_weight(name: str, source: dict[str, Tensor], layers: int) -> Tensor:
    """Return one weight of the larger network."""
    parts = name.split(".")
    if "layers" in parts:
        number = int(parts[parts.index("layers") + 1])
        # Added layers are copies of real ones with zero output weights.
        copied = 1 + number % (layers - 1) if number >= layers else number
        parts[parts.index("layers") + 1] = str(copied)
        weight = source[".".join(parts)]
        if number >= layers and parts[-2] == "Wo":
            weight = torch.zeros_like(weight)
    else:
        weight = source[name]
    if parts[-2] == "tok_embeddings":
        return torch.cat([weight, weight], dim=1)
    if parts[-2:] == ["decoder", "bias"]:
        return weight
    if weight.dim() == 1:
        # Logits sum twice as many features, through embeddings that cannot be halved.
        half = parts[:2] == ["head", "norm"]
        return torch.cat([weight, weight]) / (2 if half else 1)
    groups = {"Wqkv": 3, "Wi": 2}.get(parts[-2], 1)
    rows = torch.cat([torch.cat([part, part]) for part in weight.chunk(groups)])
    return torch.cat([rows, rows], dim=1) / 2
