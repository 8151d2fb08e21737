"""The epochs of a run that count, and its groups of chains with the same target.

Chains are compared only if they sample from the same distribution: sequences of the same length
and, if there are templates or sources, of the same line of the input. Texts are only starting
points: chains that start from different texts share a target, unless it compares with these texts
or some of their tokens are frozen. Chains that change their lengths share a target, too.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from maskov.config import Manifest
from maskov.types import Traces


@dataclass(frozen=True)
class Group:
    """Indices of chains with the same target, their line of the input, their length if fixed."""

    template: int
    length: int | None
    chains: npt.NDArray[np.int64]


def kept_epochs(manifest: Manifest, traces: Traces) -> slice:
    """Return the completed epochs after burn-in."""
    done = int((traces["steps"] > 0).all(1).sum())
    return slice(min(manifest.burn_in(done), done), done)


def chain_groups(manifest: Manifest, traces: Traces) -> list[Group]:
    """Return the groups of chains with the same target."""
    lines, lengths = chain_templates(manifest), chain_lengths(manifest, traces)
    keys = np.zeros_like(lines) if lengths is None else lengths
    return [
        Group(
            line,
            None if lengths is None else length,
            np.flatnonzero((lines == line) & (keys == length)),
        )
        for line, length in np.unique(np.stack([lines, keys], axis=1), axis=0).tolist()
    ]


def chain_templates(manifest: Manifest) -> npt.NDArray[np.int64]:
    """Return the line of the input that each chain's target depends on, 0 if there is none."""
    chains = np.arange(manifest.chains)
    if manifest.inputs.holds_tokens or manifest.inputs.sources is not None or manifest.compares:
        return chains // manifest.config.chains
    return np.zeros_like(chains)


def chain_lengths(manifest: Manifest, traces: Traces) -> npt.NDArray[np.int64] | None:
    """Return the length of each chain, or None if lengths change; 0 before the first epoch."""
    return None if manifest.inputs.sampled else np.array(traces["lengths"][0], dtype=np.int64)


def visits_once(manifest: Manifest, epoch: int) -> bool:
    """Whether each epoch from `epoch` on visits every free position once, one at a time."""
    if manifest.order is None or manifest.particles:
        return False
    if manifest.schedule.block is None:
        return manifest.block == 1
    # Blocks only shrink.
    return manifest.schedule.block_at(epoch) == 1
