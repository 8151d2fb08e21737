"""A trained model made larger without changing what it computes.

What a run costs depends on how often proposals differ and are accepted, which random weights do
not show; and no trained model of BERT-base's size comes with the package. So the shipped one is
grown to that size: every feature is there twice (products take the mean of the two, norms do not
notice), and layers are added that add nothing to the stream. It costs what a model of 12 layers of
width 768 costs, and behaves as the small one does.
"""

from __future__ import annotations

import copy

import torch

from maskov.models import HuggingFaceModel
from maskov.types import Tensor

LAYERS = 12


def grown(small: HuggingFaceModel) -> HuggingFaceModel:
    """Return a ModernBERT grown to twice its width and to 12 layers, in float32."""
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
            weight.copy_(_grown(name, source, len(old.model.layers)))
    network.tie_weights()
    name = f"{small.name}-grown"
    return HuggingFaceModel(network.to(small.device), small.tokenizer, name)


def _grown(name: str, source: dict[str, Tensor], layers: int) -> Tensor:
    """Return one weight of the larger network."""
    parts = name.split(".")
    if "layers" in parts:
        number = int(parts[parts.index("layers") + 1])
        # Added layers are copies of real ones, but what they would add to the stream is nothing.
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
        # Scores come from twice as many features, through a projection that cannot be halved.
        half = parts[:2] == ["head", "norm"]
        return torch.cat([weight, weight]) / (2 if half else 1)
    groups = {"Wqkv": 3, "Wi": 2}.get(parts[-2], 1)
    rows = torch.cat([torch.cat([part, part]) for part in weight.chunk(groups)])
    return torch.cat([rows, rows], dim=1) / 2
