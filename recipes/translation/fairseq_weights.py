"""Translate the weights of a fairseq Mask-Predict checkpoint into those of our network.

The models are those of Ghazvininejad et al. 2019 (facebookresearch/Mask-Predict, architecture
`bert_transformer_seq2seq`).
"""

from __future__ import annotations

import argparse
import pickle
from pathlib import Path
from typing import Any

import torch

from maskov.errors import ModelError
from maskov.models.network import TranslationNetwork, TranslationShape
from maskov.types import Tensor

ARCHITECTURE = "bert_transformer_seq2seq"
PADDING_ID = 1

# BERT's layer norm, with epsilon inside the square root as in torch.
_EPSILON = 1e-12
# fairseq counts positions from the padding id, so these rows come before the first position.
_UNUSED_ROWS = PADDING_ID + 1

# A checkpoint is a pickle, which could run any code: only these classes are allowed. The meters are
# training statistics; empty classes stand in for them.
_ALLOWED: list[Any] = [
    argparse.Namespace,
    *(
        type(f"{kind}Meter", (), {"__module__": "fairseq.meters"})
        for kind in ("Average", "Time", "Stopwatch")
    ),
]


def read_network(file: Path) -> TranslationNetwork:
    """Read a checkpoint file into our network, in float32.

    The position and length tables are cut to the longest sentence that all of them cover, so
    longer targets get no probability.
    """
    args, weights = _unpickle(file)
    shape, state = _convert(args, _Weights(file, weights))
    # The meta device allocates and draws nothing; every weight is assigned below.
    with torch.device("meta"):
        network = TranslationNetwork(shape)
    copies = {name: value.float().clone() for name, value in state.items()}
    network.load_state_dict(copies, assign=True)
    return network.eval().requires_grad_(False)


def _unpickle(file: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the settings and weights of a checkpoint without running any code in it."""
    try:
        with torch.serialization.safe_globals(_ALLOWED):
            content = torch.load(file, map_location="cpu", weights_only=True)
    except pickle.UnpicklingError as error:
        # Torch's own message says how to run the code anyway.
        raise ModelError(
            f"'{file}' is damaged, or has more than tensors and settings, which may be code: "
            "nothing in it was run; give a checkpoint as Mask-Predict wrote it."
        ) from error
    except Exception as error:  # damaged files raise many kinds of errors
        raise ModelError(f"the checkpoint '{file}' is damaged and cannot be read.") from error
    args = content.get("args") if isinstance(content, dict) else None
    weights = content.get("model") if isinstance(content, dict) else None
    if not isinstance(args, argparse.Namespace) or not isinstance(weights, dict):
        raise ModelError(f"'{file}' is not a fairseq checkpoint: it lacks 'args' or 'model'.")
    return vars(args), weights


class _Weights:
    """The weights of a checkpoint; each is taken once, and its size checked."""

    def __init__(self, file: Path, weights: dict[str, Any]) -> None:
        # Version numbers are not weights.
        self._left = {name: x for name, x in weights.items() if not str(name).endswith(".version")}
        self.file = file

    def __contains__(self, name: str) -> bool:
        return name in self._left

    def take(self, name: str, *size: int | None) -> Tensor:
        """Return a weight; None allows any size."""
        weight = self._left.pop(name, None)
        if not isinstance(weight, torch.Tensor) or not weight.is_floating_point():
            raise ModelError(
                f"'{self.file}' is not a Mask-Predict model: it lacks the weight {name}."
            )
        fits = zip(weight.shape, size, strict=False)
        if weight.dim() != len(size) or any(b not in (a, None) for a, b in fits):
            expected = " x ".join("any" if number is None else str(number) for number in size)
            actual = " x ".join(map(str, weight.shape))
            raise ModelError(f"the weight {name} of '{self.file}' is {actual}, not {expected}.")
        return weight

    def finish(self) -> None:
        """Refuse unused weights: the network would not be the one that was trained."""
        if self._left:
            raise ModelError(
                f"'{self.file}' has weights that Mask-Predict's network lacks, "
                f"such as {min(map(str, self._left))}."
            )


def _convert(args: dict[str, Any], weights: _Weights) -> tuple[TranslationShape, dict[str, Tensor]]:
    """Return the sizes and weights of our network."""
    _check_kind(args, weights.file)
    words = weights.take("encoder.embed_tokens.weight", None, None)
    vocabulary, width = words.shape
    heads, encoders, decoders, norm_first = _settings(args, width, weights.file)
    _check_shared(weights, "decoder.embed_tokens.weight", words)
    if "decoder.embed_out" in weights:
        _check_shared(weights, "decoder.embed_out", words)
    tables = {
        "source_positions": weights.take("encoder.embed_positions.weight", None, width)[
            _UNUSED_ROWS:
        ],
        "target_positions": weights.take("decoder.embed_positions.weight", None, width)[
            _UNUSED_ROWS:
        ],
        "lengths": weights.take("encoder.embed_lengths.weight", None, width),
    }
    # A length needs a row in `lengths`, whose row 0 is not a length, and in both other tables.
    longest = min(len(table) - (name == "lengths") for name, table in tables.items())
    if longest < 1:
        raise ModelError(f"'{weights.file}' has no room for a sentence in its tables of positions.")
    state = {"words.weight": words}
    for name, table in tables.items():
        state[f"{name}.weight"] = table[: longest + (name == "lengths")]
    inner = 0
    for number in range(encoders):
        theirs, ours = f"encoder.layers.{number}", f"encoder.{number}"
        norms = {"attention_norm": "layer_norms.0", "inner_norm": "layer_norms.1"}
        inner = _layer(state, weights, ours, theirs, norms, width, inner or None)
    for number in range(decoders):
        theirs, ours = f"decoder.layers.{number}", f"decoder.{number}"
        norms = {
            "attention_norm": "self_attn_layer_norm",
            "cross_norm": "encoder_attn_layer_norm",
            "inner_norm": "final_layer_norm",
        }
        inner = _layer(state, weights, ours, theirs, norms, width, inner)
    if norm_first:
        _norm(state, weights, "encoder_norm", "encoder.layer_norm", width)
        _norm(state, weights, "decoder_norm", "decoder.layer_norm", width)
    weights.finish()
    shape = TranslationShape(
        vocabulary,
        width,
        heads,
        inner,
        encoders,
        decoders,
        longest,
        causal=False,
        norm_first=norm_first,
        norm_epsilon=_EPSILON,
        target_end=True,
    )
    return shape, state


def _check_kind(args: dict[str, Any], file: Path) -> None:
    if not str(args.get("arch", ARCHITECTURE)).startswith(ARCHITECTURE):
        raise ModelError(f"'{file}' is a model of kind '{args['arch']}', not {ARCHITECTURE}.")
    if args.get("dynamic_length"):
        # Its targets were padded with end tokens, which our lengths do not count.
        raise ModelError(f"'{file}' was trained with --dynamic-length, which is not supported.")


def _check_shared(weights: _Weights, name: str, words: Tensor) -> None:
    if not torch.equal(weights.take(name, None, None), words):
        raise ModelError(
            f"'{weights.file}' has separate embeddings in {name}; only models trained with "
            "--share-all-embeddings are supported."
        )


def _settings(args: dict[str, Any], width: int, file: Path) -> tuple[int, int, int, bool]:
    """Return what weight sizes do not tell: heads, layers of each side, and pre- or post-norm."""
    heads = args.get("encoder_attention_heads", width // 64)
    encoders, decoders = args.get("encoder_layers", 6), args.get("decoder_layers", 6)
    norm_first = args.get("encoder_normalize_before", False)
    if not all(type(number) is int and number > 0 for number in (heads, encoders, decoders)):
        raise ModelError(f"invalid numbers of heads or layers in the settings of '{file}'.")
    if width % heads:
        raise ModelError(f"the {heads} heads in the settings of '{file}' do not divide {width}.")
    sides = (
        args.get("decoder_attention_heads", heads),
        args.get("decoder_normalize_before", False),
    )
    if sides != (heads, norm_first):
        raise ModelError(f"encoder and decoder of '{file}' differ in heads or normalisation.")
    return heads, encoders, decoders, bool(norm_first)


def _layer(
    state: dict[str, Tensor],
    weights: _Weights,
    ours: str,
    theirs: str,
    norms: dict[str, str],
    width: int,
    inner: int | None,
) -> int:
    """Convert one layer; return the width of its feed-forward part."""
    _attention(state, weights, f"{ours}.attention", f"{theirs}.self_attn", width)
    if "cross_norm" in norms:
        _attention(state, weights, f"{ours}.cross", f"{theirs}.encoder_attn", width)
    widen = weights.take(f"{theirs}.fc1.weight", inner, width)
    inner = len(widen)
    state[f"{ours}.widen.weight"] = widen
    state[f"{ours}.widen.bias"] = weights.take(f"{theirs}.fc1.bias", inner)
    state[f"{ours}.narrow.weight"] = weights.take(f"{theirs}.fc2.weight", width, inner)
    state[f"{ours}.narrow.bias"] = weights.take(f"{theirs}.fc2.bias", width)
    for name, other in norms.items():
        _norm(state, weights, f"{ours}.{name}", f"{theirs}.{other}", width)
    return inner


def _attention(
    state: dict[str, Tensor], weights: _Weights, ours: str, theirs: str, width: int
) -> None:
    """Convert one attention, whose projections are stacked, or separate in later versions."""
    for kind, size in (("weight", (width,)), ("bias", ())):
        if f"{theirs}.q_proj.{kind}" in weights:
            apart = (weights.take(f"{theirs}.{x}_proj.{kind}", width, *size) for x in "qkv")
            stacked = torch.cat(list(apart))
        else:
            stacked = weights.take(f"{theirs}.in_proj_{kind}", 3 * width, *size)
        state[f"{ours}.query.{kind}"] = stacked[:width]
        state[f"{ours}.memory.{kind}"] = stacked[width:]
        state[f"{ours}.out.{kind}"] = weights.take(f"{theirs}.out_proj.{kind}", width, *size)


def _norm(state: dict[str, Tensor], weights: _Weights, ours: str, theirs: str, width: int) -> None:
    state[f"{ours}.weight"] = weights.take(f"{theirs}.gamma", width)
    state[f"{ours}.bias"] = weights.take(f"{theirs}.beta", width)
