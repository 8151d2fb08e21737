"""Floating-point operations of the matrix products of one masked pass.

A product of n × k and k × m takes 2·n·k·m. With L tokens (special ones included), width H,
feed-forward width I and vocabulary V, a layer takes

    projections to queries, keys, values and out   2·L·4H²
    attention scores and their use                 2·L·2LH
    feed-forward                                   2·L·2HI, or 2·L·3HI where it is gated

and the head 2·H² + 2·H·V at each position where it runs. If the last layer runs at the masked
position only, other positions need only its keys and values. Only executed products are counted;
padding is not.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from maskov.models import HuggingFaceModel

_PLAIN = ("bert", "roberta", "xlm-roberta", "camembert", "esm")
_GATED = ("modernbert",)


@dataclass(frozen=True)
class NetworkSize:
    """The dimensions that determine a network's matrix products."""

    layers: int
    width: int
    inner: int
    vocabulary: int
    gated: bool

    @classmethod
    def of(cls, config: Any) -> NetworkSize | None:
        """Read a configuration; return None for unsupported families."""
        family = getattr(config, "model_type", "")
        if family not in _PLAIN + _GATED:
            return None
        return cls(
            layers=int(config.num_hidden_layers),
            width=int(config.hidden_size),
            inner=int(config.intermediate_size),
            vocabulary=int(config.vocab_size),
            gated=family in _GATED,
        )

    @property
    def products(self) -> list[tuple[int, int]]:
        """The (in, out) widths of one layer's weights."""
        width, inner = self.width, self.inner
        into = 2 * inner if self.gated else inner
        return [(width, 3 * width), (width, width), (width, into), (inner, width)]

    def layer(self, tokens: int, queries: int) -> int:
        """Count a layer whose output is needed at `queries` of its tokens."""
        keys_values = 2 * tokens * 2 * self.width**2
        query_out = 2 * queries * 2 * self.width**2
        attention = 2 * queries * 2 * tokens * self.width
        forward = 2 * queries * (3 if self.gated else 2) * self.width * self.inner
        return keys_values + query_out + attention + forward

    @property
    def projection(self) -> int:
        """Count the projection of one position onto the vocabulary."""
        return 2 * self.width * self.vocabulary


def flops_per_pass(
    config: Any,
    length: int,
    frame: int = 2,
    last_layer_query_only: bool = False,
    head: str = "everywhere",
) -> int | None:
    """Count one masked pass of `length` content tokens and `frame` special tokens.

    `head` says where the head runs: `everywhere`, as in plain Hugging Face code; at the `masked`
    position; or there without the projection (`transform`), if one token's score is enough.
    """
    size = NetworkSize.of(config)
    if size is None:
        return None
    tokens = length + frame
    full_layers = size.layers - 1 if last_layer_query_only else size.layers
    total = full_layers * size.layer(tokens, tokens)
    if last_layer_query_only:
        total += size.layer(tokens, 1)
    transform = 2 * size.width**2
    if head == "everywhere":
        return total + tokens * (transform + size.projection)
    return total + transform + (size.projection if head == "masked" else 0)


def sampling_flops(
    model: HuggingFaceModel, length: int, frame: int, passes: int, steps: int, energy: str
) -> int | None:
    """Count what maskov executes for chains of one length: passes, and one proposal per step."""
    config = model.network.config
    size = NetworkSize.of(config)
    if size is None:
        return None
    if not model.head_at_masked_positions:
        each = flops_per_pass(config, length, frame)
        return None if each is None else passes * each
    head = "masked" if energy == "norm" else "transform"
    each = flops_per_pass(config, length, frame, last_layer_query_only(model), head)
    return None if each is None else passes * each + steps * size.projection


def last_layer_query_only(model: HuggingFaceModel) -> bool:
    """Whether this model's passes run the last layer at the masked position only."""
    return model.encoder is not None
