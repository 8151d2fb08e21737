"""The forward pass of our ModernBERT shapes for training: compiled, on one flat row of tokens.

A batch of sentences of one length is one row of tokens, filled up to a constant number, so that all
layers but attention are compiled once and serve every length.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor


class FlatModernBert:
    """Returns the last hidden states of batches of at most `tokens` tokens.

    `network` is a `ModernBertForMaskedLM` whose layers all have global attention; its weights are
    used as they are, so it is trained.
    """

    def __init__(self, network: Any, tokens: int, compiled: bool = True) -> None:
        config = network.config
        if config.model_type != "modernbert" or set(config.layer_types) != {"full_attention"}:
            raise ValueError("only ModernBERT with global attention everywhere is made flat")
        self.network = network
        self.tokens = tokens
        self.heads = config.num_attention_heads
        width = config.hidden_size // self.heads
        theta = config.rope_parameters["full_attention"]["rope_theta"]
        speeds = 1.0 / theta ** (torch.arange(0, width, 2).double() / width)
        self._angles = torch.arange(config.max_position_embeddings)[:, None] * speeds
        self._known: dict[tuple[int, torch.dtype], tuple[Tensor, Tensor]] = {}
        compiler: Callable[[Any], Any] = torch.compile if compiled else lambda function: function
        self._before, self._after = compiler(before), compiler(after)

    def __call__(self, ids: Tensor) -> Tensor:
        """Return the states of framed sentences of one length, [sentences, length, width]."""
        model, (count, length) = self.network.model, ids.shape
        size = count * length
        flat = F.pad(ids.flatten(), (0, self.tokens - size))
        states = model.embeddings.norm(F.embedding(flat, model.embeddings.tok_embeddings.weight))
        cos, sin = self._rotation(length, states)
        for layer in model.layers:
            norm = getattr(layer.attn_norm, "weight", None)  # the first layer has none
            q, k, v = self._before(states, norm, layer.attn.Wqkv.weight, cos, sin, self.heads)
            rows = (x[:size].unflatten(0, (count, length)).transpose(1, 2) for x in (q, k, v))
            seen = F.scaled_dot_product_attention(*rows).transpose(1, 2).reshape(size, -1)
            states = self._after(
                states, F.pad(seen, (0, 0, 0, self.tokens - size)), layer.attn.Wo.weight,
                layer.mlp_norm.weight, layer.mlp.Wi.weight, layer.mlp.Wo.weight,
            )  # fmt: skip
        return model.final_norm(states[:size]).unflatten(0, (count, length))

    def _rotation(self, length: int, like: Tensor) -> tuple[Tensor, Tensor]:
        """Return cosine and sine of each flat place, for sentences of one length."""
        key = (length, like.dtype)
        if key not in self._known:
            place = torch.arange(self.tokens) % length
            angles = self._angles[place][:, None].to(like.device)
            self._known[key] = angles.cos().to(like.dtype), angles.sin().to(like.dtype)
        return self._known[key]


def before(
    states: Tensor, norm: Tensor | None, qkv: Tensor, cos: Tensor, sin: Tensor, heads: int
) -> tuple[Tensor, ...]:
    """Return the rotated queries, rotated keys and the values of a layer."""
    if norm is not None:
        states = F.layer_norm(states, norm.shape, norm, None, 1e-5)
    q, k, v = F.linear(states, qkv).unflatten(-1, (3, heads, -1)).unbind(1)
    return rotated(q, cos, sin), rotated(k, cos, sin), v


def rotated(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Rotate pairs of dimensions by the angles of their places."""
    one, other = x.chunk(2, -1)
    return torch.cat((one * cos - other * sin, other * cos + one * sin), -1)


def after(
    states: Tensor, seen: Tensor, out: Tensor, norm: Tensor, wide: Tensor, narrow: Tensor
) -> Tensor:
    """Return the states after a layer, given what its attention saw."""
    states = states + F.linear(seen, out)
    one, gate = F.linear(F.layer_norm(states, norm.shape, norm, None, 1e-5), wide).chunk(2, -1)
    return states + F.linear(F.gelu(one) * gate, narrow)
