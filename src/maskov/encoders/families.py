"""Where each Hugging Face family stores the parts of its encoder.

Only unmodified networks are described. A module of an unexpected class (quantised, wrapped, with
adapters), a hook or an unusual setting makes a network unsupported; its own forward then runs. So
does that of a network with which the described encoder does not agree.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from operator import attrgetter
from typing import Any, cast

import torch
import torch.nn.functional as F
from torch import nn

from maskov.encoders.blocks import (
    Affine,
    Block,
    Embedding,
    EncoderNetwork,
    FeedForward,
    LayerNorm,
    Packed,
    Rotary,
    TokenLayout,
    Uniform,
)
from maskov.types import Float, Int, Tensor


class UnsupportedError(Exception):
    """The network has a part that is not described here."""


def describe(network: Any) -> EncoderNetwork | None:
    """Return the parts of a masked LM's encoder, or None if it is not supported."""
    family = FAMILIES.get(getattr(network.config, "model_type", ""))
    if family is None or network.training:
        return None
    try:
        _require_ordinary(network)
        described = family(network.base_model, network.config)
    except (UnsupportedError, AttributeError, TypeError, KeyError, IndexError):
        return None
    return described if described.blocks else None


def _require_ordinary(network: Any) -> None:
    """Refuse decoders, relative positions, hooks, and weights of several dtypes or devices."""
    config = network.config
    if getattr(config, "is_decoder", False) or getattr(config, "add_cross_attention", False):
        raise UnsupportedError("a decoder")
    if getattr(config, "position_embedding_type", None) not in (None, "absolute"):
        raise UnsupportedError("relative positions")
    for module in network.base_model.modules():
        hooks = [*module._forward_hooks.values(), *module._forward_pre_hooks.values()]
        # Transformers' own hooks only record outputs.
        if any(hook.__module__ != "transformers.utils.output_capturing" for hook in hooks):
            raise UnsupportedError("hooks")
        if "forward" in vars(module):
            raise UnsupportedError("a replaced forward")
    kinds = {(weight.dtype, weight.device) for weight in network.base_model.parameters()}
    if len(kinds) != 1 or not next(iter(kinds))[0].is_floating_point:
        raise UnsupportedError("weights of several dtypes or devices")


# Where layers have queries, keys, values, their output and its norm, the two products of the
# feed-forward with the activation between them, and the last norm.
_BERT = (
    "attention.self.query", "attention.self.key", "attention.self.value",
    "attention.output.dense", "attention.output.LayerNorm",
    "intermediate.dense", "intermediate.intermediate_act_fn", "output.dense", "output.LayerNorm",
)  # fmt: skip
_DISTILBERT = (
    "attention.q_lin", "attention.k_lin", "attention.v_lin", "attention.out_lin", "sa_layer_norm",
    "ffn.lin1", "ffn.activation", "ffn.lin2", "output_layer_norm",
)  # fmt: skip


def _bert(model: Any, config: Any) -> EncoderNetwork:
    """Describe BERT and its variants."""
    # RoBERTa's positions start after the padding index.
    offset = 0 if config.model_type in ("bert", "electra") else model.embeddings.padding_idx + 1
    project = getattr(model, "embeddings_project", None)
    embedding = _learned(model.embeddings, int(offset), project)
    return _post_norm(model.encoder.layer, config.num_attention_heads, embedding, _BERT)


def _distilbert(model: Any, config: Any) -> EncoderNetwork:
    embedding = _learned(model.embeddings)
    return _post_norm(model.transformer.layer, config.n_heads, embedding, _DISTILBERT)


def _post_norm(
    layers: Iterable[Any], heads: int, embedding: Embedding, names: Sequence[str]
) -> EncoderNetwork:
    blocks = []
    for layer in layers:
        *qkv, out, after_attention, inner, activation, outer, after_feed = attrgetter(*names)(layer)
        feed = FeedForward(affine_of(inner), affine_of(outer), False, _activation(activation))
        blocks.append(
            Block(
                affine_of(*qkv),
                affine_of(out),
                norm_of(after_attention),
                feed,
                norm_of(after_feed),
            )
        )
    return EncoderNetwork(embedding, None, tuple(blocks), int(heads), False)


def _modernbert(model: Any, config: Any) -> EncoderNetwork:
    layers = list(model.layers)
    first = layers[0].attn_norm
    after = [*(layer.attn_norm for layer in layers[1:]), model.final_norm]
    kinds = list(config.layer_types)
    rotary = {kind: _rotary(model.rotary_emb, kind, config) for kind in set(kinds)}
    blocks = [
        Block(
            affine_of(layer.attn.Wqkv),
            affine_of(layer.attn.Wo),
            norm_of(layer.mlp_norm),
            FeedForward(
                affine_of(layer.mlp.Wi),
                affine_of(layer.mlp.Wo),
                gated=True,
                activation=_activation(layer.mlp.act),
            ),
            norm_of(following),
            rotary[kind],
            # Half of the window lies on each side of a token.
            None if kind == "full_attention" else int(config.local_attention) // 2,
        )
        for layer, following, kind in zip(layers, after, kinds, strict=True)
    ]
    table = _weight(model.embeddings.tok_embeddings, nn.Embedding)
    return EncoderNetwork(
        Embedding(table, None, norm_of(model.embeddings.norm)),
        None if type(first) is nn.Identity else norm_of(first),
        tuple(blocks),
        int(config.num_attention_heads),
        True,
    )


FAMILIES: dict[str, Callable[[Any, Any], EncoderNetwork]] = {
    "bert": _bert,
    "roberta": _bert,
    "xlm-roberta": _bert,
    "camembert": _bert,
    "electra": _bert,
    "distilbert": _distilbert,
    "modernbert": _modernbert,
}


def _learned(embeddings: Any, offset: int = 0, project: Any = None) -> Embedding:
    """Describe learned positions; the constant token type embedding is added to them."""
    places = _weight(embeddings.position_embeddings, nn.Embedding)[offset:]
    kinds = getattr(embeddings, "token_type_embeddings", None)
    if kinds is not None:
        places = places + _weight(kinds, nn.Embedding)[0]
    return Embedding(
        _weight(embeddings.word_embeddings, nn.Embedding),
        places,
        norm_of(embeddings.LayerNorm),
        None if project is None else affine_of(project),
    )


def _rotary(module: Any, kind: str, config: Any) -> Rotary:
    """Tabulate the angles as the module computes them: in float32, from its frequencies."""
    if config.rope_parameters[kind]["rope_type"] != "default":
        raise UnsupportedError("scaled positions")
    frequency = getattr(module, f"{kind}_inv_freq").float()
    place = torch.arange(int(config.max_position_embeddings), device=frequency.device)
    angle = place[:, None].float() * frequency
    scale = float(getattr(module, f"{kind}_attention_scaling"))
    return Rotary(angle.cos() * scale, angle.sin() * scale)


def _weight(module: Any, kind: type[nn.Module]) -> Float[Tensor, "rows columns"]:
    # Exactly this class: quantised and wrapped modules may be subclasses.
    if type(module) is not kind:
        raise UnsupportedError(f"a {type(module).__name__} in place of a {kind.__name__}")
    return cast(Tensor, module.weight).detach()


def affine_of(*modules: Any) -> Affine:
    """Return a product, or several products of one input as one, which copies their weights."""
    weights = [_weight(module, nn.Linear) for module in modules]
    biases = [module.bias.detach() for module in modules if module.bias is not None]
    if len(biases) not in (0, len(weights)):
        raise UnsupportedError("biases in only some of the products")
    weight, *more = weights
    return Affine(
        torch.cat(weights) if more else weight,
        (torch.cat(biases) if more else biases[0]) if biases else None,
    )


def norm_of(module: Any) -> LayerNorm:
    """Return a layer norm with weights."""
    if type(module) is not nn.LayerNorm or module.weight is None:
        raise UnsupportedError(f"a {type(module).__name__} as a norm")
    bias = None if module.bias is None else module.bias.detach()
    return LayerNorm(module.weight.detach(), bias, float(module.eps))


def _activation(function: Any) -> Callable[[Tensor], Tensor] | None:
    """Return None for the exact GELU, which has its own kernels, else the function itself."""
    if isinstance(function, nn.Module) and any(True for _ in function.parameters()):
        raise UnsupportedError("an activation with weights")
    exact = function is F.gelu or getattr(function, "act", None) is F.gelu
    if exact or (type(function) is nn.GELU and function.approximate == "none"):
        return None
    other: Callable[[Tensor], Tensor] = function
    return other


# Tolerated difference, relative to the largest value, by dtype.
_TOLERANCE = {
    torch.float64: 1e-9,
    torch.float32: 1e-3,
    torch.float16: 1e-2,
    torch.bfloat16: 8e-2,
}
# Wider windows are not tested: the probe would take too long.
_LONGEST = 300

Forward = Callable[
    [Int[Tensor, " tokens"], Int[Tensor, " tokens"], TokenLayout, Int[Tensor, " passes"]],
    Float[Tensor, "passes hidden"],
]


def agrees(encoder: Any, network: Any) -> bool:
    """Compare at every token of two sequences of different lengths, in both layouts."""
    lengths = _lengths(encoder.network)
    ids = [_tokens(length, network) for length in lengths]
    try:
        with torch.no_grad(), _exact_products():
            theirs = torch.cat([network.base_model(input_ids=row[None])[0][0] for row in ids])
            ours = [_packed(encoder, ids), torch.cat([_uniform(encoder, row) for row in ids])]
    except (AttributeError, TypeError, ValueError, IndexError, RuntimeError):
        return False
    limit = _TOLERANCE.get(theirs.dtype, 1e-3) * theirs.abs().max()
    return all(
        own.shape == theirs.shape and bool((own - theirs).abs().max() <= limit) for own in ours
    )


def _lengths(network: EncoderNetwork) -> list[int]:
    """Choose two lengths, one longer than every narrow window so that a wrong window shows."""
    windows = [block.window for block in network.blocks if block.window is not None]
    longer = max([9, *(window + 4 for window in windows if window < _LONGEST)])
    return [min(5, network.limit), min(longer, network.limit)]


def _tokens(length: int, network: Any) -> Int[Tensor, " length"]:
    """Return some tokens other than padding, which some families treat specially."""
    config = network.config
    size, pad = int(config.vocab_size), getattr(config, "pad_token_id", None)
    usable = [token for token in range(min(size, 2 * length + 2)) if token != pad]
    ids = [usable[3 * place % len(usable)] for place in range(length)]
    return torch.tensor(ids, device=network.device)


def _packed(encoder: Forward, ids: list[Tensor]) -> Float[Tensor, "tokens hidden"]:
    """Run each sequence once for each of its tokens, concatenated."""
    copies = [row for row in ids for _ in row]
    lengths = torch.tensor([len(row) for row in copies], device=ids[0].device)
    starts = torch.cat([lengths.new_zeros(1), lengths.cumsum(0)])
    places = torch.cat([torch.arange(len(row), device=row.device) for row in ids])
    position = torch.cat([torch.arange(len(row), device=row.device) for row in copies])
    layout = Packed(starts.int(), max(len(row) for row in ids))
    return encoder(torch.cat(copies), position, layout, starts[:-1] + places)


def _uniform(encoder: Forward, ids: Tensor) -> Float[Tensor, "length hidden"]:
    """Run one sequence once for each of its tokens, as rows of one width."""
    width = len(ids)
    place = torch.arange(width, device=ids.device)
    query = place * (width + 1)
    return encoder(ids.repeat(width), place.repeat(width), Uniform(width, width), query)


@contextmanager
def _exact_products() -> Iterator[None]:
    """Turn TF32 off during the comparison: the two sides round differently."""
    if not torch.backends.cuda.matmul.allow_tf32:
        yield
        return
    torch.backends.cuda.matmul.allow_tf32 = False
    try:
        yield
    finally:
        torch.backends.cuda.matmul.allow_tf32 = True
