"""Chains that are run for their measurements and then discarded."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace

import torch

from maskov.errors import InputError
from maskov.kernels import Exchange, Kernel, Metropolis
from maskov.kernels.base import with_leaves
from maskov.models.base import MaskedModel
from maskov.models.scorer import Scorer
from maskov.random import Rng
from maskov.starts import Layout, fill
from maskov.types import Chains, Int, Tensor

# Their random numbers are those of chains from here on, which no run has.
FIRST_CHAIN = 2**31


def pilot_chains(
    layout: Layout, count: int, kernel: Kernel, scorer: Scorer, rng: Rng, repeat: bool = False
) -> Chains:
    """Return chains laid out as some of a run's, whatever is free filled at random.

    There are never more than the run has, unless they `repeat`. Where lengths may change they are
    spread over the bounds: that of a text is a part of its state. Constraints are met by the way
    blanks are filled.
    """
    model = scorer.model
    count = count if repeat else min(count, len(layout.tokens))
    blank = _blanks(layout, count, kernel, model)
    chains = blank.chains(model, range(count), layout.width)
    chains = replace(chains, chain=chains.chain + FIRST_CHAIN).to(model.device)
    return fill(chains, "masked", kernel.conditional, scorer, rng).forget()


def _blanks(
    layout: Layout, count: int, kernel: Kernel, model: MaskedModel, sizes: int | None = None
) -> Layout:
    rows = [place * len(layout.tokens) // count for place in range(count)]
    return layout.blanked(model, rows, sizes).fitted(model, kernel.conditional.constraints)


def spans(layout: Layout, count: int, kernel: Kernel, model: MaskedModel) -> Int[Tensor, "n 2"]:
    """Return the fewest and the most positions with which such chains can meet constraints."""
    ends = (_blanks(layout, count, kernel, model, sizes) for sizes in (0, 1))
    return torch.tensor([[len(ids) for ids in end.tokens] for end in ends]).T


@contextmanager
def from_random_starts(what: str, instead: str) -> Iterator[None]:
    """Say what to do where discarded chains cannot begin."""
    try:
        yield
    except InputError as error:
        raise InputError(f"{what} cannot be found from random starts: {error} {instead}") from error


def alone(kernel: Kernel) -> Kernel:
    """Return a kernel without its replicas: what is measured is measured at their first."""
    return kernel.kernel if isinstance(kernel, Exchange) else kernel


def with_parts(kernel: Kernel, change: Callable[[Metropolis], Metropolis]) -> Kernel:
    """Return a kernel with each of its Metropolis kernels changed, called in their order."""
    return with_leaves(kernel, lambda leaf: change(leaf) if isinstance(leaf, Metropolis) else leaf)
