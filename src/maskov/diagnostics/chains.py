"""Which epochs of a run count, and which of its chains have the same target.

Chains can be compared only where they sample from one distribution: sequences of the same length
and, where words are frozen or a source is read, of the same line of the user's input. Texts are
merely starting points: chains that set out from different ones share a target.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from maskov.config import Manifest
from maskov.types import Traces

# The length of each chain as its samples have it; asked for only where nothing cheaper knows.
Sampled = Callable[[], dict[int, int]]


@dataclass(frozen=True)
class Group:
    """Chains with one target: their numbers, the line they belong to, their length if known."""

    template: int
    length: int | None
    chains: npt.NDArray[np.int64]


def kept_epochs(manifest: Manifest, traces: Traces) -> slice:
    """Return the epochs after burn-in that are done."""
    done = int((traces["steps"] > 0).all(1).sum())
    return slice(min(manifest.schedule.burn_in, done), done)


def chain_groups(manifest: Manifest, traces: Traces, sampled: Sampled) -> list[Group]:
    """Return the chains in groups of one target each.

    Where lengths differ and cannot be known yet, no two chains are taken to be alike.
    """
    chains = np.arange(manifest.chains)
    lines = chain_templates(manifest)
    lengths = chain_lengths(manifest, traces, sampled)
    # Chains of one template have its length, whatever it is.
    apart = lengths if lengths is not None else lines if _has_templates(manifest) else -1 - chains
    groups = []
    for line, length in np.unique(np.stack([lines, apart], axis=1), axis=0).tolist():
        members = chains[(lines == line) & (apart == length)]
        groups.append(Group(line, length if lengths is not None else None, members))
    return groups


def chain_templates(manifest: Manifest) -> npt.NDArray[np.int64]:
    """Return the line of the user's input that decides each chain's target, 0 where none does."""
    chains = np.arange(manifest.chains)
    if _has_templates(manifest) or manifest.inputs.sources is not None:
        return chains // manifest.config.chains
    return np.zeros_like(chains)


def chain_lengths(
    manifest: Manifest, traces: Traces, sampled: Sampled
) -> npt.NDArray[np.int64] | None:
    """Return the length of each chain, or nothing where it cannot be known."""
    chains, inputs = manifest.chains, manifest.inputs
    shortest, longest = inputs.length or (0, 1)
    if shortest == longest:
        return np.full(chains, shortest)
    if inputs.chosen is not None:
        return np.array([length for row in inputs.chosen for length in row])
    # Every position is free, so that a sweep of single sites has as many steps as positions.
    if visits_once(manifest, 0) and not _has_templates(manifest) and traces["steps"][0].all():
        return np.array(traces["steps"][0])
    found = sampled()
    if len(found) < chains:
        return None
    return np.array([found[chain] for chain in range(chains)])


def visits_once(manifest: Manifest, epoch: int) -> bool:
    """Whether that epoch and all later ones visit each free position once, by itself."""
    if manifest.order in (None, "replacement"):
        return False
    if manifest.schedule.block is None:
        return manifest.block == 1
    # Blocks only shrink.
    return manifest.schedule.block_at(epoch) == 1


def _has_templates(manifest: Manifest) -> bool:
    return manifest.inputs.templates is not None
