"""How the tokens of many sequences lie in one row, without padding."""

from __future__ import annotations

from dataclasses import dataclass

from maskov.types import Int, Tensor


@dataclass(frozen=True)
class Uniform:
    """`count` sequences of the same `width`, one after the other."""

    count: int
    width: int


@dataclass(frozen=True)
class Packed:
    """Sequences of mixed lengths, end to end.

    Sequence `i` holds the tokens `starts[i]` to `starts[i + 1]`, so there is one start (int32) more
    than there are sequences; an empty one is a dummy that fills up a batch of fixed size. What lies
    behind the last sequence is junk. `longest` is an upper bound of all lengths: it is a number of
    the host, as it decides how kernels are launched.
    """

    starts: Int[Tensor, " bounds"]
    longest: int


TokenLayout = Uniform | Packed
