"""Tiny random encoders of every family that ours knows, and packed inputs for them."""

from typing import Any

import torch
import transformers as hf

VOCABULARY, CAPACITY, PAD = 30, 24, 1

_SHAPE = {
    "vocab_size": VOCABULARY,
    "pad_token_id": PAD,
    "hidden_size": 16,
    "num_hidden_layers": 3,
    "num_attention_heads": 2,
    "intermediate_size": 24,
    "initializer_range": 0.3,
    "max_position_embeddings": CAPACITY,
}
_OFFSET = _SHAPE | {"max_position_embeddings": CAPACITY + PAD + 1}
_DISTILBERT = {
    "vocab_size": VOCABULARY,
    "pad_token_id": PAD,
    "dim": 16,
    "n_layers": 3,
    "n_heads": 2,
    "hidden_dim": 24,
    "initializer_range": 0.3,
    "max_position_embeddings": CAPACITY,
}
_NO_IDS = dict.fromkeys(["bos_token_id", "eos_token_id", "cls_token_id", "sep_token_id"])
# Layers of both kinds, and a window of two tokens on each side.
_MODERNBERT = _SHAPE | _NO_IDS | {"local_attention": 4, "num_hidden_layers": 4}

_MAKERS: dict[str, tuple[Any, dict[str, Any]]] = {
    "bert": (hf.BertForMaskedLM, _SHAPE),
    "roberta": (hf.RobertaForMaskedLM, _OFFSET),
    "xlm-roberta": (hf.XLMRobertaForMaskedLM, _OFFSET),
    "camembert": (hf.CamembertForMaskedLM, _OFFSET),
    "electra": (hf.ElectraForMaskedLM, _SHAPE | {"embedding_size": 12}),
    "distilbert": (hf.DistilBertForMaskedLM, _DISTILBERT),
    "modernbert": (hf.ModernBertForMaskedLM, _MODERNBERT),
    "modernbert-biased": (
        hf.ModernBertForMaskedLM,
        _MODERNBERT | {"norm_bias": True, "mlp_bias": True, "attention_bias": True},
    ),
    # The last layer is a local one here.
    "modernbert-local": (hf.ModernBertForMaskedLM, _MODERNBERT | {"num_hidden_layers": 2}),
}
FAMILIES = tuple(_MAKERS)
OTHERS: dict[str, tuple[Any, dict[str, Any]]] = {
    "albert": (hf.AlbertForMaskedLM, _SHAPE | {"embedding_size": 12}),
    "mpnet": (hf.MPNetForMaskedLM, _OFFSET),
}


def build(family: str, dtype: torch.dtype = torch.float64, **changes: Any) -> Any:
    """Return a network of a family; biases and norms are random, too."""
    make, options = (_MAKERS | OTHERS)[family]
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(1)
        network = make(make.config_class(**(options | changes)))
        with torch.no_grad():
            for parameter in network.parameters():
                parameter.add_(0.2 * torch.randn_like(parameter))
    return network.to(dtype).eval().requires_grad_(False)


def tokens(count: int, seed: int = 0) -> torch.Tensor:
    """Return random tokens, none of them padding."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(PAD + 1, VOCABULARY, (count,), generator=generator)


def packed(
    lengths: list[int], tail: int = 0, device: str = "cpu"
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return tokens end to end with junk behind them, their starts and a query in each.

    The queries of empty sequences point at the first token of the junk, or at the last token.
    """
    starts = torch.tensor([0, *lengths]).cumsum(0)
    ids = tokens(int(starts[-1]) + tail, seed=len(lengths))
    place = torch.tensor([(5 * i + 2) % n if n else 0 for i, n in enumerate(lengths)])
    query = torch.where(torch.tensor(lengths) > 0, starts[:-1] + place, starts[-1])
    query = query.clamp(max=len(ids) - 1)
    return ids.to(device), starts.int().to(device), query.to(device)


def places(starts: torch.Tensor, count: int) -> torch.Tensor:
    """Return how far each token is from the start of its sequence; junk gets what it gets."""
    token = torch.arange(count, device=starts.device)
    owner = torch.searchsorted(starts[1:].contiguous(), token.int(), right=True)
    return token - starts[owner.clamp(max=len(starts) - 2)]
