"""Tiny random encoders of every family that ours knows, and packed inputs for them."""

from typing import Any

import torch

import tiny_models

VOCABULARY, PAD = 30, 1
_SIZES = {"vocab_size": VOCABULARY, "pad_token_id": PAD, "initializer_range": 0.3}
# Settings of ModernBERT that `tiny_models` has otherwise: no biases, and a layer of each kind more.
_PLAIN = {"num_hidden_layers": 4, "norm_bias": False, "classifier_bias": False}
_BIASED = _PLAIN | {"norm_bias": True, "mlp_bias": True, "attention_bias": True}
_MAKERS: dict[str, tuple[str, dict[str, Any]]] = {
    **{
        family: (family, {"num_hidden_layers": 3})
        for family in ("bert", "roberta", "xlm-roberta", "camembert", "electra")
    },
    "distilbert": ("distilbert", {"n_layers": 3}),
    "modernbert": ("modernbert", _PLAIN),
    "modernbert-biased": ("modernbert", _BIASED),
    # The last layer is a local one here.
    "modernbert-local": ("modernbert", _PLAIN | {"num_hidden_layers": 2}),
}
FAMILIES, OTHERS = tuple(_MAKERS), ("albert", "mpnet")


def build(family: str, dtype: torch.dtype = torch.float64, **changes: Any) -> Any:
    """Return a network of a family; biases and norms are random, too."""
    family, options = _MAKERS.get(family, (family, {"num_hidden_layers": 3}))
    network = tiny_models.randomised(tiny_models.maker(family, **_SIZES | options | changes))
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
