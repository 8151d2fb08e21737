"""The epochs of a run that count, and its groups of chains with the same target.

Chains are compared only if they sample from the same distribution: sequences of the same length
and, if there are templates or sources, of the same line of the input. Texts are only starting
points: chains that start from different texts share a target, unless it compares with these texts
or some of their tokens are frozen.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from maskov.config import Manifest
from maskov.types import Traces

# Returns the lengths of the chains that have samples; called only if nothing cheaper knows them.
Sampled = Callable[[], dict[int, int]]


@dataclass(frozen=True)
class Group:
    """Indices of chains with the same target, their line of the input, their length if known."""

    template: int
    length: int | None
    chains: npt.NDArray[np.int64]


def kept_epochs(manifest: Manifest, traces: Traces) -> slice:
    """Return the completed epochs after burn-in."""
    done = int((traces["steps"] > 0).all(1).sum())
    return slice(min(manifest.burn_in(done), done), done)


def chain_groups(manifest: Manifest, traces: Traces, sampled: Sampled) -> list[Group]:
    """Return the groups of chains with the same target.

    If lengths differ and are not known yet, each chain is a group.
    """
    chains = np.arange(manifest.chains)
    lines = chain_templates(manifest)
    moving = manifest.inputs.sampled
    lengths = None if moving else chain_lengths(manifest, traces, sampled)
    # All chains of a template have the same length. Chains that change theirs share a target.
    same = moving or manifest.inputs.holds_tokens or manifest.compares
    keys = lengths if lengths is not None else lines if same else -1 - chains
    groups = []
    for line, length in np.unique(np.stack([lines, keys], axis=1), axis=0).tolist():
        members = chains[(lines == line) & (keys == length)]
        groups.append(Group(line, length if lengths is not None else None, members))
    return groups


def chain_templates(manifest: Manifest) -> npt.NDArray[np.int64]:
    """Return the line of the input that each chain's target depends on, 0 if there is none."""
    chains = np.arange(manifest.chains)
    if manifest.inputs.holds_tokens or manifest.inputs.sources is not None or manifest.compares:
        return chains // manifest.config.chains
    return np.zeros_like(chains)


def chain_lengths(
    manifest: Manifest, traces: Traces, sampled: Sampled
) -> npt.NDArray[np.int64] | None:
    """Return the length of each chain, or None if it is not known or not one."""
    chains, inputs = manifest.chains, manifest.inputs
    if manifest.inputs.sampled:
        return None
    if "lengths" in traces and traces["steps"][0].all():
        return np.array(traces["lengths"][0], dtype=np.int64)
    shortest, longest = inputs.length or (0, 1)
    if shortest == longest:
        return np.full(chains, shortest)
    if inputs.chosen is not None:
        return np.array([length for row in inputs.chosen for length in row])
    # Every position is free, so a sweep of single sites has as many steps as positions.
    if visits_once(manifest, 0) and not manifest.inputs.holds_tokens and traces["steps"][0].all():
        return np.array(traces["steps"][0])
    lengths = sampled()
    return np.array([lengths[chain] for chain in range(chains)]) if len(lengths) == chains else None


def traced_lengths(
    manifest: Manifest, traces: Traces, kept: slice, sampled: Sampled
) -> npt.NDArray[np.int64] | None:
    """Return the lengths as epochs × chains, or None if they are not known."""
    if manifest.inputs.sampled:
        return np.asarray(traces["lengths"][kept], dtype=np.int64)
    lengths = chain_lengths(manifest, traces, sampled)
    shape = (kept.stop - kept.start, manifest.chains)
    return None if lengths is None else np.broadcast_to(lengths, shape)


def visits_once(manifest: Manifest, epoch: int) -> bool:
    """Whether each epoch from `epoch` on visits every free position once, one at a time."""
    if manifest.order is None:
        return False
    if manifest.schedule.block is None:
        return manifest.block == 1
    # Blocks only shrink.
    return manifest.schedule.block_at(epoch) == 1
