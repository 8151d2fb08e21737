"""Delayed acceptance: test a proposal cheaply first, and pay for the rest only if it passes.

With log R the Metropolis-Hastings ratio of a move and log R_1, log R_2, ... approximations of it
that change sign when the move is reversed, the tests

    u_1 < R_1,   u_2 < R_2 / R_1,   ...,   u_n < R / R_{n−1}

with independent uniform numbers accept with a probability that is in detailed balance with the
same target as one test of R (Christen & Fox 2005, applied again and again). A rejection anywhere is
final, so that what the later tests need is never computed. Here an approximation is the sum over
the positions nearest to the change, or over passes in low precision, or both.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from maskov.errors import InputError
from maskov.types import Bool, Int, Tensor

LOW_PRECISIONS = ("bfloat16", "float16", "float32")


@dataclass(frozen=True)
class Delayed:
    """Which cheap tests come first.

    `nearest` positions are tested before the others (0: all at once; None: a run chooses by its
    first epochs). With `precision` the early tests use passes of that precision, and the last one
    repeats all of them in the model's own.
    """

    nearest: int | None = None
    precision: str | None = None

    def __post_init__(self) -> None:
        if self.nearest is not None and self.nearest < 0:
            raise InputError(f"the nearest positions are 0 or more, not {self.nearest}.")
        if self.precision is not None and self.precision not in LOW_PRECISIONS:
            raise InputError(
                f"unknown precision '{self.precision}' of the first stage; use one of "
                f"{', '.join(LOW_PRECISIONS)}."
            )

    @property
    def stages(self) -> tuple[Stage, ...]:
        """The tests, in order; the last one decides by the exact ratio."""
        low = self.precision is not None
        near = (Stage(self.nearest, low),) if self.nearest else ()
        return (
            (*near, Stage(None, True), Stage(None, False)) if low else (*near, Stage(None, False))
        )

    @property
    def asked_for(self) -> bool:
        """Whether early tests are wanted whatever they gain."""
        return bool(self.nearest) or self.precision is not None

    def __str__(self) -> str:
        near = "auto" if self.nearest is None else str(self.nearest)
        return near if self.precision is None else f"{near},{self.precision}"


@dataclass(frozen=True)
class Stage:
    """One test: the terms of the `nearest` positions (None: of all), in low precision or not."""

    nearest: int | None
    low: bool


def near(
    place: Int[Tensor, " n"], lengths: Int[Tensor, " n"], width: int, count: int | None
) -> Bool[Tensor, "n length"]:
    """Mark the `count` positions nearest to each place (None: all others), the left one in a tie.

    The set depends on the place and the length alone, so that a move and its reverse agree on it.
    """
    position = torch.arange(width, device=place.device)
    offset = position - place[:, None]
    other = (offset != 0) & (position < lengths[:, None])
    if count is None:
        return other
    distance = offset.abs()
    left, right = place[:, None], (lengths - 1 - place)[:, None]
    # How many positions are nearer: those at a smaller distance on both sides, and the left twin.
    nearer = torch.minimum(distance - 1, left) + torch.minimum(distance - 1, right)
    nearer = nearer + ((offset > 0) & (distance <= left))
    return other & (nearer < min(count, width))
