"""An encoder-decoder transformer whose decoder sees the whole target, or only what is before.

With a bidirectional decoder it is Mask-Predict's conditional masked LM (Ghazvininejad et al. 2019):
a special first source position predicts the target's length, and the decoder says what stands at
the masked positions. With a causal decoder it is the ordinary translation model. Weights, sizes
and training are the same for both, so that the two can be compared.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import nn

from maskov.types import Bool, Float, Int, Tensor

# Keys and values of one attention, heads apart.
Kept = tuple[Tensor, Tensor]


@dataclass(frozen=True)
class Shape:
    """The sizes of a network; `longest` counts positions of the source and of the target.

    `norm_first` puts normalisation in front of each part (it trains faster), otherwise behind it.
    With `target_end` the target ends with the end token as one more position of its own, which
    the scored lengths count; every source ends with it in any case.
    """

    vocabulary: int
    width: int = 384
    heads: int = 6
    inner: int = 1536
    encoder_layers: int = 5
    decoder_layers: int = 5
    longest: int = 256
    causal: bool = False
    norm_first: bool = True
    norm_epsilon: float = 1e-5
    target_end: bool = False


class Attention(nn.Module):
    """Multi-head attention, whose keys and values may be computed before and kept."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.query = nn.Linear(width, width)
        self.memory = nn.Linear(width, 2 * width)
        self.out = nn.Linear(width, width)

    def keep(self, states: Float[Tensor, "n s width"]) -> Kept:
        """Return the keys and values of some states."""
        key, value = self.memory(states).chunk(2, dim=-1)
        return self._apart(key), self._apart(value)

    def forward(
        self,
        asking: Float[Tensor, "n t width"],
        kept: Kept,
        mask: Float[Tensor, "n 1 #t s"] | None = None,
        causal: bool = False,
    ) -> Float[Tensor, "n t width"]:
        """Return what each asking position reads from what was kept."""
        query = self._apart(self.query(asking))
        read = F.scaled_dot_product_attention(query, *kept, attn_mask=mask, is_causal=causal)
        joined: Tensor = self.out(read.transpose(1, 2).flatten(2))
        return joined

    def _apart(self, states: Tensor) -> Tensor:
        count, length, _ = states.shape
        return states.view(count, length, self.heads, -1).transpose(1, 2)


class Layer(nn.Module):
    """Attention to the sequence itself, to a memory in the decoder, and a feed-forward part."""

    def __init__(self, shape: Shape, crosses: bool, dropout: float = 0.0) -> None:
        super().__init__()

        def norm() -> nn.LayerNorm:
            return nn.LayerNorm(shape.width, eps=shape.norm_epsilon)

        self.norm_first = shape.norm_first
        self.attention = Attention(shape.width, shape.heads)
        self.attention_norm = norm()
        self.cross = Attention(shape.width, shape.heads) if crosses else None
        self.cross_norm = norm() if crosses else None
        self.widen = nn.Linear(shape.width, shape.inner)
        self.narrow = nn.Linear(shape.inner, shape.width)
        self.inner_norm = norm()
        self.dropout = nn.Dropout(dropout)

    def forward(
        self,
        states: Float[Tensor, "n t width"],
        mask: Tensor | None,
        memory: Kept | None = None,
        memory_mask: Tensor | None = None,
        causal: bool = False,
        at: Int[Tensor, " n"] | None = None,
        past: Kept | None = None,
        place: int = 0,
    ) -> Float[Tensor, "n _ width"]:
        """Return the states after this layer.

        With `at` only one position of each sequence is asked for, which is all that the last layer
        of a masked pass needs. With `past` the state is the one at `place` of a sequence: its key
        and value are written there, and what stands before it is read.
        """
        inner = self._before(self.attention_norm, states)
        kept = self.attention.keep(inner)
        if past is not None:
            for whole, new in zip(past, kept, strict=True):
                whole[:, :, place : place + 1] = new
            kept = (past[0][:, :, : place + 1], past[1][:, :, : place + 1])
        if at is not None:
            rows = torch.arange(len(at), device=at.device)
            states, inner = states[rows, at][:, None], inner[rows, at][:, None]
        read = self.attention(inner, kept, mask, causal)
        states = self._after(self.attention_norm, states, read)
        if self.cross is not None:
            assert self.cross_norm is not None
            assert memory is not None
            read = self.cross(self._before(self.cross_norm, states), memory, memory_mask)
            states = self._after(self.cross_norm, states, read)
        inner = self.narrow(F.gelu(self.widen(self._before(self.inner_norm, states))))
        return self._after(self.inner_norm, states, inner)

    def _before(self, norm: nn.LayerNorm, states: Tensor) -> Tensor:
        found: Tensor = norm(states) if self.norm_first else states
        return found

    def _after(self, norm: nn.LayerNorm, states: Tensor, new: Tensor) -> Tensor:
        states = states + self.dropout(new)
        found: Tensor = states if self.norm_first else norm(states)
        return found


class Network(nn.Module):
    """The whole model; one table of embeddings serves source, target and the scores."""

    def __init__(self, shape: Shape, dropout: float = 0.0) -> None:
        super().__init__()
        self.shape = shape
        self.words = nn.Embedding(shape.vocabulary, shape.width)
        self.source_positions = nn.Embedding(shape.longest, shape.width)
        self.target_positions = nn.Embedding(shape.longest, shape.width)
        # Row 0 stands in front of the source and asks for the length; the others answer.
        self.lengths = nn.Embedding(shape.longest + 1, shape.width)
        self.encoder = nn.ModuleList(
            Layer(shape, crosses=False, dropout=dropout) for _ in range(shape.encoder_layers)
        )
        self.decoder = nn.ModuleList(
            Layer(shape, crosses=True, dropout=dropout) for _ in range(shape.decoder_layers)
        )
        ends = shape.norm_first
        self.encoder_norm = nn.LayerNorm(shape.width, eps=shape.norm_epsilon) if ends else None
        self.decoder_norm = nn.LayerNorm(shape.width, eps=shape.norm_epsilon) if ends else None
        self.dropout = nn.Dropout(dropout)

    def start(self) -> None:
        """Set the weights as at the beginning of training."""
        depth = 2 * self.shape.encoder_layers + 3 * self.shape.decoder_layers
        for name, module in self.named_modules():
            if isinstance(module, nn.Linear):
                last = name.endswith((".out", ".narrow"))
                # What is added to the stream is smaller in a deeper network.
                scale = (depth / 2) ** -0.5 if last and self.shape.norm_first else 1.0
                nn.init.normal_(module.weight, std=scale * self.shape.width**-0.5 * 0.8)
                nn.init.zeros_(module.bias)
            elif isinstance(module, nn.Embedding):
                nn.init.normal_(module.weight, std=self.shape.width**-0.5)

    def encode(
        self, source: Int[Tensor, "n s"], inside: Bool[Tensor, "n s"]
    ) -> tuple[Float[Tensor, "n s width"], Float[Tensor, "n lengths"]]:
        """Return the memory of each source, and scores of the target's length from 0 up."""
        states, _, scores = self.read(source, inside)
        return states[:, 1:], scores

    def read(
        self, source: Int[Tensor, "n s"], inside: Bool[Tensor, "n s"]
    ) -> tuple[Float[Tensor, "n s1 width"], Float[Tensor, "n 1 1 s1"], Float[Tensor, "n lengths"]]:
        """Return the memory with the position in front, a mask that hides it, and the scores.

        So nothing is cut off and copied, and if that position makes the width a multiple of 8, all
        that is done with the memory is as well, which a GPU likes.
        """
        count, width = source.shape
        place = torch.arange(width, device=source.device)
        states = self.words(source) + self.source_positions(place)
        first = self.lengths.weight[0].expand(count, 1, -1)
        states = self.dropout(torch.cat([first, states], dim=1))
        mask = added(F.pad(inside, (1, 0), value=True)[:, None, None], states.dtype)
        for layer in self.encoder:
            states = layer(states, mask)
        if self.encoder_norm is not None:
            states = self.encoder_norm(states)
        scores = F.linear(states[:, 0], self.lengths.weight)
        # No target is empty, and row 0 is the question itself.
        scores = scores.index_fill(1, scores.new_zeros(1, dtype=torch.long), -1e9)
        hiding = added(F.pad(inside, (1, 0), value=False)[:, None, None], states.dtype)
        return states, hiding, scores

    def decode(
        self,
        target: Int[Tensor, "n t"],
        memory: list[Kept],
        memory_mask: Tensor | None,
        inside: Bool[Tensor, "n t"] | None = None,
        at: Int[Tensor, " n"] | None = None,
    ) -> Float[Tensor, "n _ width"]:
        """Return the states of the target's positions, or of one position each.

        A causal decoder needs no mask for padding on the right: nothing before it looks there.
        """
        causal = self.shape.causal
        place = torch.arange(target.shape[1], device=target.device)
        states = self.dropout(self.words(target) + self.target_positions(place))
        mask = None if inside is None or causal else added(inside[:, None, None], states.dtype)
        if memory_mask is not None:
            memory_mask = added(memory_mask, states.dtype)
        for number, (layer, kept) in enumerate(zip(self.decoder, memory, strict=True)):
            last = number == len(self.decoder) - 1
            states = layer(states, mask, kept, memory_mask, causal, at if last else None)
        return self._ended(states)

    def decode_next(
        self,
        token: Int[Tensor, " n"],
        place: int,
        memory: list[Kept],
        memory_mask: Tensor | None,
        past: list[Kept],
    ) -> Float[Tensor, "n width"]:
        """Return the state of a causal decoder at `place`; its keys are added to the past ones."""
        states = (self.words(token) + self.target_positions.weight[place])[:, None]
        if memory_mask is not None:
            memory_mask = added(memory_mask, states.dtype)
        for layer, source, before in zip(self.decoder, memory, past, strict=True):
            states = layer(states, None, source, memory_mask, past=before, place=place)
        return self._ended(states)[:, 0]

    def room(self, count: int, length: int) -> list[Kept]:
        """Return space for the keys and values of that many sequences in a causal decoder."""
        size = (count, self.shape.heads, length, self.shape.width // self.shape.heads)
        like = self.words.weight
        return [(like.new_empty(size), like.new_empty(size)) for _ in self.decoder]

    def remember(self, memory: Float[Tensor, "n s width"]) -> list[Kept]:
        """Return the keys and values that each layer of the decoder reads from a memory."""
        found = []
        for layer in self.decoder:
            assert isinstance(layer, Layer)
            assert layer.cross is not None
            found.append(layer.cross.keep(memory))
        return found

    def scores(self, states: Float[Tensor, "*n width"]) -> Float[Tensor, "*n vocabulary"]:
        """Return the score of every token, as exact as the states that are given."""
        return F.linear(states, self.words.weight.to(states.dtype))

    def _ended(self, states: Tensor) -> Tensor:
        return states if self.decoder_norm is None else self.decoder_norm(states)


def added(mask: Tensor, dtype: torch.dtype) -> Tensor:
    """Return a mask as what is added to scores, once rather than in every layer."""
    if mask.dtype != torch.bool:
        return mask
    return torch.zeros_like(mask, dtype=dtype).masked_fill_(~mask, -torch.inf)
