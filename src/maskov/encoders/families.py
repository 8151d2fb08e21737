"""Where each Hugging Face family keeps its weights, by their names in checkpoints.

A masked LM is described from the settings of its config.json and its weights by name, which needs
no network. A weight that is missing or has another shape, or an unusual setting, makes it
unsupported; the network's own forward then runs.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F

from maskov.encoders.blocks import (
    Activation,
    Affine,
    Block,
    Embedding,
    FeedForward,
    LayerNorm,
    LMHead,
    Rotary,
)
from maskov.encoders.encoder import Encoder
from maskov.types import Tensor

Config = Mapping[str, Any]


# What a part that is not described here raises, and incomplete and odd settings do.
UNSUPPORTED = (AttributeError, TypeError, ValueError, LookupError)


def rule_out(wrong: object, what: str) -> None:
    """Raise one of `UNSUPPORTED` if anything is wrong."""
    if wrong:
        raise ValueError(what)


class Weights:
    """The weights of a network by name; `used` are those that were asked for."""

    def __init__(self, named: Mapping[str, Tensor]) -> None:
        self._named = named
        self.used: dict[str, Tensor] = {}

    def take(self, name: str, *shape: int) -> Tensor:
        """Return a weight, which must have this shape."""
        value = self._named.get(name)
        if value is None or tuple(value.shape) != shape:
            raise ValueError(f"no {name} of shape {shape}")
        self.used[name] = value
        return value

    def affine(self, rows: Mapping[str, int], columns: int, bias: bool = True) -> Affine:
        """Return a product, or several of one input as one, which copies their weights."""
        weights = [self.take(f"{name}.weight", count, columns) for name, count in rows.items()]
        biases = [self.take(f"{name}.bias", count) for name, count in rows.items() if bias]
        if len(rows) == 1:
            return Affine(weights[0], biases[0] if bias else None)
        return Affine(torch.cat(weights), torch.cat(biases) if bias else None)

    def norm(self, name: str, width: int, eps: float, bias: bool = True) -> LayerNorm:
        """Return a layer norm."""
        shift = self.take(f"{name}.bias", width) if bias else None
        return LayerNorm(self.take(f"{name}.weight", width), shift, float(eps))


# What config.json calls the exact GELU, and other activations.
_ACTIVATIONS: dict[str, Activation] = {
    **dict.fromkeys(("gelu", "gelu_python"), F.gelu),
    **dict.fromkeys(("gelu_new", "gelu_pytorch_tanh"), partial(F.gelu, approximate="tanh")),
    **dict.fromkeys(("silu", "swish"), F.silu),
    "relu": F.relu,
}


# Where layers have queries, keys, values, their output and its norm, the two products of the
# feed-forward and the last norm.
_BERT_LAYER = (
    "attention.self.query", "attention.self.key", "attention.self.value",
    "attention.output.dense", "attention.output.LayerNorm",
    "intermediate.dense", "output.dense", "output.LayerNorm",
)  # fmt: skip
_DISTILBERT_LAYER = (
    "attention.q_lin", "attention.k_lin", "attention.v_lin", "attention.out_lin", "sa_layer_norm",
    "ffn.lin1", "ffn.lin2", "output_layer_norm",
)  # fmt: skip


@dataclass(frozen=True)
class Family:
    """Where a family keeps its weights, and what it calls its settings.

    The defaults are those of BERT. Without a `layer` our encoder does not know the layers.
    """

    encoder: str
    # The product, the norm and the projection of the head, and a bias outside the projection.
    head: tuple[str, str, str]
    outside: str | None = None
    # The setting that names the head's activation; without one it is the GELU.
    head_activation: str | None = None
    tokens: str = "embeddings.word_embeddings"
    width: str = "hidden_size"
    eps: str = "layer_norm_eps"
    # Settings of the layers: how many, the width inside the feed-forward, heads, the activation.
    sizes: tuple[str, str, str, str] = (
        "num_hidden_layers", "intermediate_size", "num_attention_heads", "hidden_act",
    )  # fmt: skip
    layers: str = "encoder.layer"
    layer: tuple[str, ...] = _BERT_LAYER
    # The setting that counts token types, the first of which every token has.
    kinds: str | None = "type_vocab_size"
    # Whether positions start after the padding index.
    after_padding: bool = False

    def tied(self) -> dict[str, str]:
        """Return the weights that checkpoints leave out, and which weights they equal."""
        *_, projection = self.head
        ties = {f"{projection}.weight": f"{self.encoder}.{self.tokens}.weight"}
        return ties | ({f"{projection}.bias": self.outside} if self.outside else {})

    def epsilon(self, config: Config) -> float:
        """Return what layer norms add to the variance; DistilBERT has no setting for it."""
        return 1e-12 if config["model_type"] == "distilbert" else float(config[self.eps])


_ROBERTA = Family(
    "roberta",
    ("lm_head.dense", "lm_head.layer_norm", "lm_head.decoder"),
    "lm_head.bias",
    after_padding=True,
)
# The families whose heads are known.
FAMILIES = {
    "bert": Family(
        "bert",
        (
            "cls.predictions.transform.dense",
            "cls.predictions.transform.LayerNorm",
            "cls.predictions.decoder",
        ),
        "cls.predictions.bias",
        "hidden_act",
    ),
    "distilbert": Family(
        "distilbert",
        ("vocab_transform", "vocab_layer_norm", "vocab_projector"),
        head_activation="activation",
        width="dim",
        sizes=("n_layers", "hidden_dim", "n_heads", "activation"),
        layers="transformer.layer",
        layer=_DISTILBERT_LAYER,
        kinds=None,
    ),
    "albert": Family(
        "albert",
        ("predictions.dense", "predictions.LayerNorm", "predictions.decoder"),
        "predictions.bias",
        "hidden_act",
        layer=(),
    ),
    "electra": Family(
        "electra",
        ("generator_predictions.dense", "generator_predictions.LayerNorm", "generator_lm_head"),
    ),
    "modernbert": Family(
        "model",
        ("head.dense", "head.norm", "decoder"),
        head_activation="classifier_activation",
        tokens="embeddings.tok_embeddings",
        eps="norm_eps",
        layer=(),
    ),
    "esm": replace(_ROBERTA, encoder="esm", layer=()),
    **dict.fromkeys(("roberta", "xlm-roberta", "camembert"), _ROBERTA),
}


def describe_head(config: Config, weights: Weights) -> LMHead:
    """Return the head of a masked LM of a known family."""
    family = FAMILIES[config["model_type"]]
    dense, norm, projection = family.head
    width, rows = config[family.width], config["vocab_size"]
    inner = config.get("embedding_size", width)
    biased = config.get("decoder_bias", True)
    bias = weights.take(f"{projection}.bias", rows) if biased and family.encoder != "esm" else None
    if family.outside is not None:
        bias = weights.take(family.outside, rows)
    activation = "gelu" if family.head_activation is None else config[family.head_activation]
    return LMHead(
        weights.take(f"{projection}.weight", rows, inner),
        bias,
        weights.affine({dense: inner}, width, config.get("classifier_bias", True)),
        _ACTIVATIONS[activation],
        weights.norm(norm, inner, family.epsilon(config), config.get("norm_bias", True)),
    )


def encoder_of(network: Any) -> Encoder | None:
    """Return the encoder of a Hugging Face masked LM, or None if its parts are not known.

    Whether it computes the same must be tried: third-party code may use a known family name for a
    different network.
    """
    try:
        rule_out(network.training or not is_ordinary(network.base_model), "a changed network")
        return describe(network.config.to_dict(), Weights(network.state_dict()))
    except UNSUPPORTED:
        return None


def describe(config: Config, weights: Weights) -> Encoder:
    """Return the encoder of a masked LM, or raise one of `UNSUPPORTED`."""
    rule_out(config.get("is_decoder") or config.get("add_cross_attention"), "a decoder")
    rule_out(config.get("position_embedding_type") not in (None, "absolute"), "relative positions")
    kind = config["model_type"]
    described = (_modernbert if kind == "modernbert" else _post_norm)(config, weights)
    rule_out(
        not described.blocks or config[FAMILIES[kind].width] % described.heads,
        "no layers, or heads of several widths",
    )
    return described


def _post_norm(config: Config, weights: Weights) -> Encoder:
    """Describe BERT and its variants, whose norms follow each sum."""
    family = FAMILIES[config["model_type"]]
    rule_out(not family.layer, "other layers")
    width: int = config[family.width]
    eps = family.epsilon(config)
    count, inside, heads, activation = (config[name] for name in family.sizes)
    start, most = f"{family.encoder}.embeddings", config["max_position_embeddings"]
    narrow = config.get("embedding_size", width)
    offset = config["pad_token_id"] + 1 if family.after_padding else 0
    places = weights.take(f"{start}.position_embeddings.weight", most, narrow)[offset:]
    if family.kinds is not None:
        # Every token has the first type.
        kinds = weights.take(f"{start}.token_type_embeddings.weight", config[family.kinds], narrow)
        places = places + kinds[0]
    embedding = Embedding(
        weights.take(f"{start}.word_embeddings.weight", config["vocab_size"], narrow),
        places,
        weights.norm(f"{start}.LayerNorm", narrow, eps),
        None if narrow == width else weights.affine({f"{start}_project": width}, narrow),
    )
    blocks = []
    for number in range(count):
        layer = f"{family.encoder}.{family.layers}.{number}."
        *qkv, out, after_attention, inner, outer, after_feed = (layer + n for n in family.layer)
        projections: dict[str, int] = dict.fromkeys(qkv, width)
        products = weights.affine({inner: inside}, width), weights.affine({outer: width}, inside)
        blocks.append(
            Block(
                weights.affine(projections, width),
                weights.affine({out: width}, width),
                weights.norm(after_attention, width, eps),
                FeedForward(*products, False, _ACTIVATIONS[activation]),
                weights.norm(after_feed, width, eps),
            )
        )
    return Encoder(embedding, None, tuple(blocks), heads, False)


def _modernbert(config: Config, weights: Weights) -> Encoder:
    width, inside = config["hidden_size"], config["intermediate_size"]
    kinds, eps, bias = config["layer_types"], config["norm_eps"], config["norm_bias"]
    rule_out(len(kinds) != config["num_hidden_layers"], "layers of no kind")
    tokens = weights.take("model.embeddings.tok_embeddings.weight", config["vocab_size"], width)
    rotary = {kind: _rotary(config, kind, tokens.device) for kind in set(kinds)}
    layers = [f"model.layers.{number}" for number in range(len(kinds))]
    # The norm after a layer is the one that the next layer starts with; the first has none.
    after = [*(f"{layer}.attn_norm" for layer in layers[1:]), "model.final_norm"]
    blocks = [
        Block(
            weights.affine({f"{layer}.attn.Wqkv": 3 * width}, width, config["attention_bias"]),
            weights.affine({f"{layer}.attn.Wo": width}, width, config["attention_bias"]),
            weights.norm(f"{layer}.mlp_norm", width, eps, bias),
            FeedForward(
                weights.affine({f"{layer}.mlp.Wi": 2 * inside}, width, config["mlp_bias"]),
                weights.affine({f"{layer}.mlp.Wo": width}, inside, config["mlp_bias"]),
                True,
                _ACTIVATIONS[config["hidden_activation"]],
            ),
            weights.norm(following, width, eps, bias),
            rotary[kind],
            # Half of the window lies on each side of a token.
            None if kind == "full_attention" else int(config["local_attention"]) // 2,
        )
        for layer, following, kind in zip(layers, after, kinds, strict=True)
    ]
    embedding = Embedding(tokens, None, weights.norm("model.embeddings.norm", width, eps, bias))
    return Encoder(embedding, None, tuple(blocks), config["num_attention_heads"], True)


def _rotary(config: Config, kind: str, device: torch.device) -> Rotary:
    """Tabulate the angles as Hugging Face computes them: in float32, from frequencies."""
    settings = config["rope_parameters"][kind]
    rule_out(
        settings.keys() != {"rope_type", "rope_theta"} or settings["rope_type"] != "default",
        "scaled positions",
    )
    size = config["hidden_size"] // config["num_attention_heads"]
    rule_out(config.get("head_dim") not in (None, size), "heads of another width")
    part = torch.arange(0, size, 2, dtype=torch.float) / size
    frequency = (1.0 / settings["rope_theta"] ** part).to(device)
    place = torch.arange(config["max_position_embeddings"], device=device)
    angle = place[:, None].float() * frequency
    return Rotary(angle.cos(), angle.sin())


def is_ordinary(network: Any) -> bool:
    """Whether a Hugging Face network is unmodified.

    It is not with modules of other classes (quantised, wrapped, with adapters), with hooks, or with
    weights of several dtypes or devices.
    """
    for module in network.modules():
        hooks = [*module._forward_hooks.values(), *module._forward_pre_hooks.values()]
        # Transformers' own hooks only record outputs.
        hooked = any(one.__module__ != "transformers.utils.output_capturing" for one in hooks)
        known = type(module).__module__.startswith(("torch.nn.modules.", "transformers."))
        if hooked or "forward" in vars(module) or not known:
            return False
    kinds = {(weight.dtype, weight.device) for weight in network.parameters()}
    return len(kinds) == 1 and next(iter(kinds))[0].is_floating_point
