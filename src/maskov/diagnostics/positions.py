"""Acceptance, novelty and autocorrelation at each position.

A sweep of single sites visits every free position once per epoch, so the traced rejections and
tokens give its rates. For blocks and mask-predict the traces do not contain the visited positions,
and there are no rates.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from maskov.config import Manifest
from maskov.diagnostics.autocorrelation import Memory
from maskov.diagnostics.chains import Group, chain_templates, kept_epochs, visits_once
from maskov.types import Traces

Flags = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class PositionFigures:
    """The free positions of one template, or of all chains of a run without templates.

    All lists follow `positions`, which count from 0; if it is not known which are free, they are
    those that varied. `visits` counts steps after burn-in; `acceptance` and `novel` are fractions
    of them. `time` is in epochs, a lower bound if `at_least`; `autocorrelation` is by lag, the
    first few; both are None for tokens that never varied.
    """

    template: int
    positions: list[int]
    visits: list[int] | None
    acceptance: list[float] | None
    novel: list[float] | None
    time: list[float | None] | None
    at_least: list[bool] | None
    autocorrelation: list[list[float] | None] | None


def position_figures(
    manifest: Manifest, traces: Traces, groups: list[Group], memories: dict[int, Memory]
) -> list[PositionFigures]:
    """Return the figures of each template; chains of all lengths count together."""
    # The tokens before the first epoch are not traced, so its changes are unknown.
    kept = kept_epochs(manifest, traces)
    first = max(kept.start, 1)
    # With replicas a swap may change every token at once.
    rates = visits_once(manifest, first) and manifest.replicas == 1
    lines = chain_templates(manifest)
    figures = []
    for template in sorted({group.template for group in groups}):
        chains = lines == template
        tokens, rejected = (traces[name][: kept.stop, chains] for name in ("tokens", "rejected"))
        own = [group for group in groups if group.template == template]
        free = _free(manifest, own, tokens, rejected, traces["steps"][:1, chains])
        shown = _varied(tokens, rejected) if free is None else free.any(0)
        visits = acceptance = novel = None
        if rates and free is not None and kept.stop > first:
            counts = (kept.stop - first) * free.sum(0)[shown]
            rejections = (rejected[first:] & free).sum((0, 1))[shown]
            changes = ((tokens[first:] != tokens[first - 1 : -1]) & free).sum((0, 1))[shown]
            visits = counts.tolist()
            acceptance, novel = (1 - rejections / counts).tolist(), (changes / counts).tolist()
        positions = np.flatnonzero(shown).tolist()
        correlations, times, at_least = _columns(memories.get(template), positions)
        figures.append(
            PositionFigures(
                template, positions, visits, acceptance, novel, times, at_least, correlations
            )
        )
    return figures


def _columns(
    memory: Memory | None, positions: list[int]
) -> tuple[list[list[float] | None] | None, list[float | None] | None, list[bool] | None]:
    """Return the autocorrelations, their times, and whether these are lower bounds."""
    if memory is None:
        return None, None, None
    by_position = memory.by_position()
    rows = [by_position[position] or (None, None, False) for position in positions]
    return [row[0] for row in rows], [row[1] for row in rows], [row[2] for row in rows]


def _free(
    manifest: Manifest,
    groups: list[Group],
    tokens: npt.NDArray[np.int32],
    rejected: Flags,
    steps: npt.NDArray[np.int64],
) -> Flags | None:
    """Return which positions of each chain may change, or None if that is not known."""
    if manifest.inputs.templates is not None:
        # The traces do not contain which words were frozen. Those that varied were not; if there
        # are as many of them as steps in a sweep, all others were.
        varied = _varied(tokens, rejected)
        known = visits_once(manifest, 0) and steps.size and int(steps[0, 0]) == int(varied.sum())
        return np.broadcast_to(varied, tokens.shape[1:]) if known else None
    if any(group.length is None for group in groups):
        return None
    lengths = {int(chain): group.length for group in groups for chain in group.chains}
    ordered = np.array([lengths[chain] for chain in sorted(lengths)])
    free: Flags = np.arange(tokens.shape[2]) < ordered[:, None]
    if manifest.inputs.frozen is not None:
        # Then the chains are those of one text.
        free[:, list(manifest.inputs.frozen[groups[0].template])] = False
    return free


def _varied(tokens: npt.NDArray[np.int32], rejected: Flags) -> Flags:
    """Return the positions that ever rejected a proposal or held more than one token."""
    if not tokens.size:
        return np.zeros(tokens.shape[2], dtype=np.bool_)
    varied: Flags = rejected.any((0, 1)) | (tokens != tokens[:1, :1]).any((0, 1))
    return varied
