"""Find the path of a population by another one that is discarded.

The pilot goes along the path as a population does, and takes at each point the longest step that
leaves a given share of its particles effective. A path that a population chose by its own particles
would bias its estimate of Z, so the pilot's path is frozen, and its particles are not kept.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
import torch

from maskov.errors import InputError
from maskov.kernels.base import whole_epoch
from maskov.kernels.population import Population, effective_share
from maskov.models.scorer import Scorer
from maskov.random import Rng
from maskov.starts import Layout
from maskov.tuning.tune import FIRST_CHAIN
from maskov.types import Chains

# A step leaves at least this share of the particles effective.
AIM = 0.95
# Particles of a pilot; how exactly a step is found, and the most of them.
PILOTS, _HALVINGS, _MOST = 32, 30, 10_000
_DIGITS = 9
# Temperatures that a start may have, unless it was given.
_TEMPERATURES = (1.0, 0.9, 0.8, 0.7, 0.6, 0.5)
# Draws by which they are compared.
_DRAWS = 16


@dataclass(frozen=True)
class Pilot:
    """A path, and the passes of a particle: before the first point, and at each on average."""

    path: tuple[float, ...]
    before: float
    each: float


def planned_path(
    kernel: Population, layout: Layout, scorer: Scorer, rng: Rng, passes: int | None = None
) -> Population:
    """Return the population with its start and its path, found by pilots of the run's own layout.

    Where lines of input differ, the pilot is of the first: another line's path is as valid, if
    less even.
    """
    count = min(PILOTS, len(layout.tokens))
    chains = layout.chains(scorer.model, range(count), layout.width).to(scorer.model.device)
    blank = replace(chains, chain=chains.chain + FIRST_CHAIN)
    few = torch.arange(min(_DRAWS, count), device=scorer.model.device)
    return with_path(choose_start(kernel, blank.rows(few), scorer, rng), blank, scorer, rng, passes)


def with_path(
    kernel: Population, blank: Chains, scorer: Scorer, rng: Rng, passes: int | None = None
) -> Population:
    """Return the population with the path of a pilot that fills these blanks.

    With `passes` it has as many points as they pay for, otherwise at least as many as give each
    position a move: with fewer no verdict is positive.
    """
    pilot = find_path(replace(kernel, particles=len(blank.chain), longer=1), blank, scorer, rng)
    if passes is None:
        positions = int(blank.free.sum(1).max())
        points = max(len(pilot.path), -(-positions // kernel.moves))
    else:
        each = pilot.each * kernel.even.moves / kernel.moves
        points = max(1, round((passes - pilot.before) / max(each, 1e-9)))
    return replace(kernel, path=stretched(pilot.path, points))


def choose_start(kernel: Population, blank: Chains, scorer: Scorer, rng: Rng) -> Population:
    """Return the population with the temperature of its start that is nearest to the target.

    Nearest is where the log-weights of a few draws, from the start to the target at once, have the
    smallest variance; the search goes down until it rises. A start at temperature 1 may be a part
    of the target and cost nothing extra; parts with one order share their passes.
    """
    best, least = kernel, math.inf
    for temperature in _TEMPERATURES:
        now = replace(
            kernel, start=replace(kernel.start, temperature=temperature), path=(), epoch=0
        )
        chains = now.init(now.first(blank, scorer, rng), scorer)
        variance = float(now.log_weights(chains, 0.0, 1.0).var())
        scorer.check()
        if variance > least:
            break
        best, least = replace(kernel, start=now.start), variance
    return best


def find_path(
    kernel: Population, blank: Chains, scorer: Scorer, rng: Rng, aim: float = AIM
) -> Pilot:
    """Return a path on which neighbouring points differ evenly, from particles to be drawn."""
    begun, count = scorer.passes, len(blank.chain)
    whole, path = replace(kernel, path=(), epoch=0), list[float]()
    chains = whole.init(kernel.first(blank, scorer, rng), scorer)
    started = scorer.passes
    while not path or path[-1] < 1:
        if len(path) == _MOST:
            raise InputError("no path to the target was found: the start is too far from it.")
        path.append(_next(whole, chains, path[-1] if path else 0.0, aim))
        now = replace(kernel, path=(*path[:-1], *sorted({path[-1], 1.0})), epoch=len(path) - 1)
        chains = whole_epoch(now, now.init(chains, scorer), scorer, rng)
        scorer.check()
    each = (scorer.passes - started) / (count * len(path))
    return Pilot(tuple(path), (started - begun) / count, each)


def _next(kernel: Population, chains: Chains, here: float, aim: float) -> float:
    """Return the farthest point at which so many particles are effective, by halving."""

    def effective(share: float) -> float:
        return effective_share(kernel.log_weights(chains, here, share))

    if effective(1.0) >= aim:
        return 1.0
    low, high = here, 1.0
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        low, high = (middle, high) if effective(middle) >= aim else (low, middle)
    # A little further than the start, whatever the particles say.
    return round(max(low, here + (1 - here) * 10.0 ** (2 - _DIGITS)), _DIGITS)


def stretched(path: tuple[float, ...], points: int) -> tuple[float, ...]:
    """Return a path of another number of points with the same relative steps."""
    places = [number * len(path) / points for number in range(1, points)]
    found = np.interp(places, range(len(path) + 1), (0.0, *path)).tolist()
    return (*(round(share, _DIGITS) for share in found), 1.0)
