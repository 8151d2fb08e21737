"""How the tokens of many sequences lie in one row, without padding."""

from __future__ import annotations

from dataclasses import dataclass

from maskov.types import Float, Int, Tensor


@dataclass(frozen=True)
class Uniform:
    """`count` sequences of the same `width`, one after the other."""

    count: int
    width: int


@dataclass(frozen=True)
class Packed:
    """Concatenated sequences of mixed lengths.

    Sequence `i` has the tokens `starts[i]` to `starts[i + 1]`, so there is one start (int32) more
    than there are sequences. Empty sequences fill up a batch of fixed size, and tokens after the
    last sequence are ignored. `longest` bounds all lengths; it is a host integer because it decides
    how kernels are launched.
    """

    starts: Int[Tensor, " bounds"]
    longest: int


TokenLayout = Uniform | Packed


@dataclass(frozen=True)
class Memory:
    """Keys and values of the sources that a decoder reads, concatenated, one tensor per layer."""

    layers: tuple[Float[Tensor, "tokens two_width"], ...]
    starts: Int[Tensor, " texts"]
    sizes: Int[Tensor, " texts"]


@dataclass(frozen=True)
class Reading:
    """Which text of a memory each pass reads; `longest` bounds the sizes of these texts."""

    memory: Memory
    text: Int[Tensor, " passes"]
    longest: int
