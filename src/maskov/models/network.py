"""An encoder-decoder transformer with a bidirectional or a causal decoder, and its folder.

With a bidirectional decoder it is Mask-Predict's conditional masked LM (Ghazvininejad et al. 2019):
a special first source position predicts the target's length, and the decoder scores the masked
positions. With a causal decoder it is an ordinary autoregressive translation model. Both have the
same weights and sizes, so that they can be compared. A folder holds config.json, model.safetensors
and a tokenizer; with `bpe_merges.txt` its words are split by these merges first.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import torch
import torch.nn.functional as F
from pydantic import Field, TypeAdapter
from safetensors.torch import load_file
from torch import nn

from maskov.encoders import Encoder
from maskov.encoders.blocks import Block, CrossAttention, Embedding, FeedForward
from maskov.encoders.families import Weights
from maskov.errors import ModelError, refuse, refusing
from maskov.models.checkpoint import ARCHITECTURE, check_files, load_tokenizer
from maskov.models.tokens import MERGES_FILE, BytePairTokenizer, Merges, read_json
from maskov.types import Bool, Float, Int, Tensor


@dataclass(frozen=True)
class SpecialTokens:
    """Ids of the tokens that pad, begin, end and mask a text."""

    pad: int
    begin: int
    end: int
    mask: int

    @classmethod
    def of(cls, tokenizer: Any) -> SpecialTokens:
        """Read the ids from a tokenizer."""
        return cls(
            tokenizer.pad_token_id,
            tokenizer.bos_token_id,
            tokenizer.eos_token_id,
            tokenizer.mask_token_id,
        )


# Keys and values of one attention, split into heads.
KeyValues = tuple[Tensor, Tensor]


# Far more than any network has is refused before anything is allocated.
_Size = Annotated[int, Field(gt=0, le=2**20)]
_Layers = Annotated[int, Field(gt=0, le=2**10)]


@dataclass(frozen=True)
class TranslationShape:
    """The sizes of a network; `longest` is the maximum length of the source and of the target.

    `norm_first` normalises before each sublayer (pre-norm), otherwise after it. With `target_end`
    the target ends with the end token, which the scored lengths count; sources always do.
    """

    vocabulary: _Size
    width: _Size = 384
    heads: _Size = 6
    inner: _Size = 1536
    encoder_layers: _Layers = 5
    decoder_layers: _Layers = 5
    longest: _Size = 256
    causal: bool = False
    norm_first: bool = True
    norm_epsilon: Annotated[float, Field(gt=0, lt=1)] = 1e-5
    target_end: bool = False


class Attention(nn.Module):
    """Multi-head attention whose keys and values can be cached."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.query = nn.Linear(width, width)
        self.memory = nn.Linear(width, 2 * width)
        self.out = nn.Linear(width, width)

    def key_values(self, states: Float[Tensor, "n s width"]) -> KeyValues:
        """Return the keys and values of some states."""
        key, value = self.memory(states).chunk(2, dim=-1)
        return self._split_heads(key), self._split_heads(value)

    def forward(
        self,
        states: Float[Tensor, "n t width"],
        memory: KeyValues,
        mask: Float[Tensor, "n 1 #t s"] | None = None,
        causal: bool = False,
    ) -> Float[Tensor, "n t width"]:
        """Attend from each state to the keys and values."""
        query = self._split_heads(self.query(states))
        read = F.scaled_dot_product_attention(query, *memory, attn_mask=mask, is_causal=causal)
        joined: Tensor = self.out(read.transpose(1, 2).flatten(2))
        return joined

    def _split_heads(self, states: Tensor) -> Tensor:
        return states.view(*states.shape[:2], self.heads, -1).transpose(1, 2)


class Layer(nn.Module):
    """Self-attention, cross-attention in the decoder, and a feed-forward sublayer."""

    def __init__(self, shape: TranslationShape, crosses: bool, dropout: float = 0.0) -> None:
        super().__init__()

        def norm() -> nn.LayerNorm:
            return nn.LayerNorm(shape.width, eps=shape.norm_epsilon)

        self.norm_first = shape.norm_first
        self.attention = Attention(shape.width, shape.heads)
        self.attention_norm = norm()
        self.cross = Attention(shape.width, shape.heads) if crosses else None
        self.cross_norm = norm() if crosses else nn.Identity()
        self.widen = nn.Linear(shape.width, shape.inner)
        self.narrow = nn.Linear(shape.inner, shape.width)
        self.inner_norm = norm()
        self.dropout = nn.Dropout(dropout)

    def forward(
        self,
        states: Float[Tensor, "n t width"],
        mask: Tensor | None,
        memory: KeyValues | None = None,
        memory_mask: Tensor | None = None,
        causal: bool = False,
        past: KeyValues | None = None,
        place: int = 0,
    ) -> Float[Tensor, "n t width"]:
        """Return the states after this layer.

        With `past` the state is the one at `place`: its key and value are written into the cache,
        and only earlier positions are read.
        """
        inner = self._before(self.attention_norm, states)
        own = self.attention.key_values(inner)
        if past is not None:
            for cache, new in zip(past, own, strict=True):
                cache[:, :, place : place + 1] = new
            own = (past[0][:, :, : place + 1], past[1][:, :, : place + 1])
        read = self.attention(inner, own, mask, causal)
        states = self._after(self.attention_norm, states, read)
        if self.cross is not None and memory is not None:
            read = self.cross(self._before(self.cross_norm, states), memory, memory_mask)
            states = self._after(self.cross_norm, states, read)
        inner = self.narrow(F.gelu(self.widen(self._before(self.inner_norm, states))))
        return self._after(self.inner_norm, states, inner)

    def _before(self, norm: nn.Module, states: Tensor) -> Tensor:
        normed: Tensor = norm(states) if self.norm_first else states
        return normed

    def _after(self, norm: nn.Module, states: Tensor, new: Tensor) -> Tensor:
        states = states + self.dropout(new)
        normed: Tensor = states if self.norm_first else norm(states)
        return normed


class TranslationNetwork(nn.Module):
    """The whole model; source, target and output share one embedding table."""

    def __init__(self, shape: TranslationShape, dropout: float = 0.0) -> None:
        super().__init__()
        self.shape = shape
        self.words = nn.Embedding(shape.vocabulary, shape.width)
        self.source_positions = nn.Embedding(shape.longest, shape.width)
        self.target_positions = nn.Embedding(shape.longest, shape.width)
        # Row 0 is the extra first source position; the others are the lengths it predicts.
        self.lengths = nn.Embedding(shape.longest + 1, shape.width)
        self.encoder = nn.ModuleList(
            Layer(shape, crosses=False, dropout=dropout) for _ in range(shape.encoder_layers)
        )
        self.decoder = nn.ModuleList(
            Layer(shape, crosses=True, dropout=dropout) for _ in range(shape.decoder_layers)
        )
        # With post-norm the last layers end with their own.
        self.encoder_norm, self.decoder_norm = (
            nn.LayerNorm(shape.width, eps=shape.norm_epsilon) if shape.norm_first else nn.Identity()
            for _ in range(2)
        )
        self.dropout = nn.Dropout(dropout)

    def read(
        self, source: Int[Tensor, "n s"], inside: Bool[Tensor, "n s"]
    ) -> tuple[Float[Tensor, "n s1 width"], Float[Tensor, "n 1 1 s1"], Float[Tensor, "n lengths"]]:
        """Return the states of each source, a mask for them, and scores of target lengths 0, 1, ...

        The states have the extra first position, which the mask hides: without a copy they keep a
        width that is a multiple of 8, which is fast on GPUs.
        """
        count, width = source.shape
        place = torch.arange(width, device=source.device)
        states = self.words(source) + self.source_positions(place)
        first = self.lengths.weight[0].expand(count, 1, -1)
        states = self.dropout(torch.cat([first, states], dim=1))
        mask = additive(F.pad(inside, (1, 0), value=True)[:, None, None], states.dtype)
        for layer in self.encoder:
            states = layer(states, mask)
        states = self.encoder_norm(states)
        scores = F.linear(states[:, 0], self.lengths.weight)
        # No target is empty, and row 0 is not a length.
        scores = scores.index_fill(1, scores.new_zeros(1, dtype=torch.long), -1e9)
        hiding = additive(F.pad(inside, (1, 0), value=False)[:, None, None], states.dtype)
        return states, hiding, scores

    def decode(
        self,
        target: Int[Tensor, "n t"],
        memory: list[KeyValues],
        memory_mask: Tensor | None,
        inside: Bool[Tensor, "n t"] | None = None,
        past: list[KeyValues] | None = None,
        begin: int = 0,
    ) -> Float[Tensor, "n t width"]:
        """Return the states of the target's positions.

        Masked passes run in our own encoder instead (`decoder_of`), for which this is the
        reference. A causal decoder needs no padding mask: no position attends to its right. With
        `past` the target is the one token at `begin`, whose keys and values are added to it.
        """
        causal = self.shape.causal
        place = torch.arange(begin, begin + target.shape[1], device=target.device)
        states = self.dropout(self.words(target) + self.target_positions(place))
        mask = None if inside is None or causal else additive(inside[:, None, None], states.dtype)
        before: list[Any] = past or [None] * len(memory)
        for layer, source, own in zip(self.decoder, memory, before, strict=True):
            states = layer(states, mask, source, memory_mask, causal and past is None, own, begin)
        normed: Tensor = self.decoder_norm(states)
        return normed

    def cross_key_values(self, memory: Float[Tensor, "n s width"]) -> list[KeyValues]:
        """Return the keys and values of encoder states for each layer of the decoder."""
        layers = (layer for layer in self.decoder if isinstance(layer, Layer))
        return [layer.cross.key_values(memory) for layer in layers if layer.cross is not None]

    def scores(self, states: Float[Tensor, "*n width"]) -> Float[Tensor, "*n vocabulary"]:
        """Return the score of every token, in the dtype of the states."""
        return F.linear(states, self.words.weight.to(states.dtype))


def additive(mask: Tensor, dtype: torch.dtype) -> Tensor:
    """Turn a boolean mask into one that is added to scores, once rather than in every layer."""
    return torch.zeros_like(mask, dtype=dtype).masked_fill_(~mask, -torch.inf)


def decoder_of(network: TranslationNetwork) -> Encoder:
    """Return the decoder of a masked network; it shares the weights but those of self-attention."""
    shape, weights = network.shape, Weights(network.state_dict())
    width, eps = shape.width, shape.norm_epsilon
    layers = [f"decoder.{number}" for number in range(shape.decoder_layers)]
    after = [
        weights.norm(f"{layer}.{norm}", width, eps)
        for layer in layers
        for norm in ("attention_norm", "cross_norm", "inner_norm")
    ]
    first = None
    if shape.norm_first:
        # The norm before a sublayer is the one that follows the sublayer before it.
        first, *after = [*after, weights.norm("decoder_norm", width, eps)]
    blocks = tuple(
        Block(
            weights.affine(
                {f"{layer}.attention.query": width, f"{layer}.attention.memory": 2 * width}, width
            ),
            weights.affine({f"{layer}.attention.out": width}, width),
            after[3 * number],
            FeedForward(
                weights.affine({f"{layer}.widen": shape.inner}, width),
                weights.affine({f"{layer}.narrow": width}, shape.inner),
            ),
            after[3 * number + 2],
            cross=CrossAttention(
                weights.affine({f"{layer}.cross.query": width}, width),
                weights.affine({f"{layer}.cross.memory": 2 * width}, width),
                weights.affine({f"{layer}.cross.out": width}, width),
                after[3 * number + 1],
            ),
        )
        for number, layer in enumerate(layers)
    )
    embedding = Embedding(
        weights.take("words.weight", shape.vocabulary, width),
        weights.take("target_positions.weight", shape.longest, width),
        None,
    )
    return Encoder(embedding, first, blocks, shape.heads, shape.norm_first)


def load_translation(
    folder: Path, device: torch.device, dtype: torch.dtype
) -> tuple[TranslationNetwork, Any]:
    """Read a network and its tokenizer."""
    config = read_json(folder / "config.json")
    refuse(
        (
            config.pop("architecture", None) != ARCHITECTURE,
            f"'{folder}' is not a translation model, by its config.json.",
        ),
        kind=ModelError,
    )
    check_files(folder)
    damaged = f"the translation model '{folder}' is damaged"
    with refusing(f"{damaged}: invalid sizes in its config.json.", ValueError, kind=ModelError):
        shape = TypeAdapter(TranslationShape).validate_json(json.dumps(config), strict=True)
        refuse((shape.width % shape.heads, "heads of unequal width"), kind=ValueError)
    with refusing(
        f"{damaged}: its model.safetensors is missing or cannot be read.",
        Exception,  # safetensors has its own exception class
        kind=ModelError,
    ):
        weights = load_file(folder / "model.safetensors")
    # The meta device allocates and draws nothing; every weight is assigned below.
    with torch.device("meta"):
        network = TranslationNetwork(shape)
    expected, actual = (
        {(name, value.shape) for name, value in named.items()}
        for named in (network.state_dict(), weights)
    )
    if expected != actual:
        different, _ = min(expected ^ actual)
        raise ModelError(f"{damaged}: its weights do not fit its config.json ({different}).")
    network.load_state_dict(
        {name: value.to(device, dtype, copy=True) for name, value in weights.items()}, assign=True
    )
    tokenizer = read_tokenizer(folder)
    refuse(
        (
            max(tokenizer.get_vocab().values(), default=0) >= network.shape.vocabulary,
            f"the tokenizer of '{folder}' has more tokens than its network.",
        ),
        kind=ModelError,
    )
    return network.eval().requires_grad_(False), tokenizer


def read_tokenizer(folder: Path) -> Any:
    """Read the tokenizer of a translation model."""
    # Damaged files raise many kinds of errors.
    with refusing(f"'{folder}' has no readable tokenizer.", Exception, kind=ModelError):
        tokenizer = load_tokenizer(str(folder))
    refuse(
        *(
            (
                getattr(tokenizer, f"{name}_token_id") is None,
                f"the tokenizer of '{folder}' lacks its {name} token.",
            )
            for name in ("pad", "bos", "eos", "unk", "mask")
        ),
        kind=ModelError,
    )
    merges = Path(folder) / MERGES_FILE
    return BytePairTokenizer(tokenizer, Merges.read(merges)) if merges.exists() else tokenizer
