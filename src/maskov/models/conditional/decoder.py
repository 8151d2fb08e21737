"""The decoder of a conditional masked LM, described as an encoder that also reads a source."""

from __future__ import annotations

from typing import cast

import torch
from torch import nn

from maskov.encoders import Encoder
from maskov.encoders.blocks import (
    Affine,
    Block,
    CrossAttention,
    Embedding,
    EncoderNetwork,
    FeedForward,
    LayerNorm,
)
from maskov.models.conditional.network import Layer, TranslationNetwork


def decoder_of(network: TranslationNetwork) -> Encoder:
    """Return the decoder of a masked network; it shares the weights but those of self-attention."""
    layers = [cast(Layer, layer) for layer in network.decoder]
    first: LayerNorm | None = None
    norms: list[tuple[nn.LayerNorm | None, ...]]
    if network.shape.norm_first:
        # The norm before a sublayer is the one that follows the sublayer before it.
        first = _norm(layers[0].attention_norm)
        following = [*(layer.attention_norm for layer in layers[1:]), network.decoder_norm]
        norms = [
            (layer.cross_norm, layer.inner_norm, after)
            for layer, after in zip(layers, following, strict=True)
        ]
    else:
        norms = [(layer.attention_norm, layer.cross_norm, layer.inner_norm) for layer in layers]
    blocks = tuple(
        _block(layer, *(_norm(norm) for norm in after))
        for layer, after in zip(layers, norms, strict=True)
    )
    words, places = network.words.weight.detach(), network.target_positions.weight.detach()
    return Encoder(
        EncoderNetwork(
            Embedding(words, places, None),
            first,
            blocks,
            network.shape.heads,
            keeps_sum=network.shape.norm_first,
        )
    )


def _block(layer: Layer, *norms: LayerNorm) -> Block:
    after_attention, after_cross, after_feed = norms
    own, cross = layer.attention, layer.cross
    assert cross is not None
    return Block(
        _affine(own.query, own.memory),
        _affine(own.out),
        after_attention,
        FeedForward(_affine(layer.widen), _affine(layer.narrow), gated=False, activation=None),
        after_feed,
        cross=CrossAttention(
            _affine(cross.query), _affine(cross.memory), _affine(cross.out), after_cross
        ),
    )


def _affine(*modules: nn.Linear) -> Affine:
    if len(modules) == 1:
        return Affine(modules[0].weight.detach(), modules[0].bias.detach())
    weight = torch.cat([module.weight.detach() for module in modules])
    return Affine(weight, torch.cat([module.bias.detach() for module in modules]))


def _norm(module: nn.LayerNorm | None) -> LayerNorm:
    assert module is not None
    return LayerNorm(module.weight.detach(), module.bias.detach(), module.eps)
