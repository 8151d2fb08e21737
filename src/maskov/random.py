"""Random numbers that depend on (seed, chain, step, purpose) and on nothing else.

A counter-based generator (Philox-4x32 with ten rounds; Salmon et al. 2011) is a fixed mixing
function of a counter and a key: the same question has the same answer in any batch, in any
order, on any device and in any number of processes, and there is no state to save or share. The
arithmetic is on integers, so that a CPU and a GPU agree to the bit.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from enum import IntEnum
from functools import lru_cache
from importlib import import_module
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from maskov.errors import refuse
from maskov.types import Bool, Float, Int, Tensor

Words = npt.NDArray[np.uint64]

_LOW = 0xFFFFFFFF
_MULTIPLIERS = (0xD2511F53, 0xCD9E8D57)
_WEYL, _ROUNDS = (0x9E3779B9, 0xBB67AE85), 10


class Purpose(IntEnum):
    """What a number is drawn for; numbers of different purposes are independent."""

    LENGTH = 1
    ORDER = 2
    POSITION = 3
    TOKEN = 4
    ACCEPT = 5
    KERNEL = 6
    RESAMPLE = 8


class Rng(ABC):
    """A source of random numbers, one for each (chain, step, purpose, index).

    A move draws whatever its probabilities account for with `categorical`, and a kernel decides
    with `accept`, so that `maskov.testing` can enumerate every outcome. What is drawn with
    `uniform` alone must not depend on the tokens.
    """

    @abstractmethod
    def uniform(
        self,
        chain: Int[Tensor, " n"],
        step: Int[Tensor, " n"],
        purpose: Purpose,
        index: Int[Tensor, " n"] | None = None,
    ) -> Float[Tensor, " n"]:
        """Return one number in [0, 1) for each row."""

    def categorical(
        self,
        probabilities: Float[Tensor, "n outcomes"],
        chain: Int[Tensor, " n"],
        step: Int[Tensor, " n"],
        purpose: Purpose,
        index: Int[Tensor, " n"] | None = None,
    ) -> Int[Tensor, " n"]:
        """Draw one outcome a row."""
        return categorical(probabilities, self.uniform(chain, step, purpose, index))

    def accept(
        self,
        log_ratio: Float[Tensor, " n"],
        chain: Int[Tensor, " n"],
        step: Int[Tensor, " n"],
        stage: int | Int[Tensor, " n"] = 0,
    ) -> tuple[Bool[Tensor, " n"], Float[Tensor, " n"]]:
        """Decide each row's test number `stage`; return the decisions and the numbers used."""
        index = stage if isinstance(stage, Tensor) else torch.full_like(chain, stage)
        uniform = self.uniform(chain, step, Purpose.ACCEPT, index)
        return accept(log_ratio, uniform), uniform

    def nested(self) -> Rng:
        """Return the numbers of a part of a mixture, which may be a mixture itself.

        Both draw a part in the same step, so the inner one needs its own number. All else is
        drawn by one of them alone.
        """
        return self


@dataclass(frozen=True)
class CounterRng(Rng):
    """The generator every run uses: Philox keyed by the seed."""

    seed: int
    depth: int = 0  # of mixtures around what draws

    def __post_init__(self) -> None:
        refuse(
            (
                not 0 <= self.seed < 2**64,
                f"the seed must lie between 0 and 2**64 - 1, not {self.seed}.",
            ),
        )

    def uniform(
        self,
        chain: Int[Tensor, " n"],
        step: Int[Tensor, " n"],
        purpose: Purpose,
        index: Int[Tensor, " n"] | None = None,
    ) -> Float[Tensor, " n"]:
        """Return one float64 with 53 random bits for each row."""
        where = torch.zeros_like(chain) if index is None else index
        if purpose is Purpose.KERNEL:
            where = where + self.depth
        kernel = triton_function("maskov.triton_draws", "uniform") if chain.is_cuda else None
        found: Tensor = (kernel or _uniform)(chain, step, where, self.seed, int(purpose))
        return found

    def nested(self) -> CounterRng:
        """Return the same numbers, but for those that draw a part of a mixture."""
        return replace(self, depth=self.depth + 1)


@lru_cache
def triton_function(module: str, name: str) -> Any:
    """Return what launches one kernel on a GPU, where many launches cost; None without Triton."""
    try:
        return getattr(import_module(module), name)
    except ImportError:
        return None


_PAIR = np.array(_MULTIPLIERS[::-1], dtype=np.uint64)[:, None]
_WORD, _LOW_WORD = np.uint64(32), np.uint64(_LOW)


def philox(mixed: Words, other: Words, key: tuple[int, int]) -> tuple[Words, Words]:
    """Mix the words (c2, c0) and (c1, c3) of a counter under a 64-bit key into four others.

    One operation serves two words, since the cost of a small operation is its call.
    """
    for round_key in _round_keys(*key):
        products = mixed * _PAIR
        halves = products >> _WORD
        halves ^= other
        halves ^= round_key
        products &= _LOW_WORD
        mixed, other = halves[::-1], products
    return mixed, other


@lru_cache(maxsize=16)
def _round_keys(k0: int, k1: int) -> list[Words]:
    pairs = [[k0 + turn * _WEYL[0], k1 + turn * _WEYL[1]] for turn in range(_ROUNDS)]
    return [np.array(pair, dtype=np.uint64)[:, None] & _LOW_WORD for pair in pairs]


def _uniform(
    chain: Int[Tensor, " n"],
    step: Int[Tensor, " n"],
    index: Int[Tensor, " n"],
    seed: int,
    last: int,
) -> Float[Tensor, " n"]:
    """Return what `CounterRng.uniform` does: for a few hundred rows faster than PyTorch."""
    words = np.empty((2, 2, len(chain)), dtype=np.int64)
    words[0, 0], words[0, 1], words[1, 0] = (one.cpu().numpy() for one in (index, chain, step))
    # Steps beyond 2**32 spill into the word that holds the purpose.
    np.bitwise_or(words[1, 0] >> 32 << 8, last, out=words[1, 1])
    words[0] &= _LOW
    words[1, 0] &= _LOW
    mixed, other = words.view(np.uint64)
    (_, high), (low, _) = philox(mixed, other, (seed & _LOW, seed >> 32))
    bits = (high >> np.uint64(5) << np.uint64(26)) | (low >> np.uint64(6))
    return torch.from_numpy(bits * 2.0**-53).to(chain.device)


def categorical(
    probabilities: Float[Tensor, "n vocabulary"], uniform: Float[Tensor, " n"]
) -> Int[Tensor, " n"]:
    """Draw one index a row by inverting the cumulative sum at `uniform`.

    An outcome of probability zero is never drawn, not even at the ends of the interval.
    """
    cumulative = probabilities.double().cumsum(-1)
    total = cumulative[:, -1:].contiguous()
    # `right=True` finds the first entry strictly above the target: one that adds probability.
    drawn = torch.searchsorted(cumulative, uniform[:, None] * total, right=True)
    # Rounding can lift the target to the total; the last entry that adds probability is meant.
    last = torch.searchsorted(cumulative, total)
    # Rows that are not numbers have no order to search; any token will do until they are noticed.
    return torch.minimum(drawn, last).squeeze(1).clamp(max=probabilities.shape[1] - 1)


def accept(log_ratio: Float[Tensor, " n"], uniform: Float[Tensor, " n"]) -> Bool[Tensor, " n"]:
    """Accept with probability min(1, exp(log_ratio)); not-a-number is never accepted.

    This is the one accept/reject decision in the package.
    """
    return uniform.log() < log_ratio
