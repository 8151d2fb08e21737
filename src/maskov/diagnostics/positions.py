"""What happened at each position: how often it accepted, how often it changed.

A sweep of single sites visits every free position once an epoch, so that its rejection and a
change of its token say all there is to say. Of blocks, of positions drawn with replacement and of
mask-predict the traces do not say which were visited or why they changed: there are no rates then.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from maskov.config import Manifest
from maskov.diagnostics.chains import Group, chain_templates, kept_epochs, visits_once
from maskov.diagnostics.tokens import Memory
from maskov.types import Traces

Flags = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class PositionFigures:
    """The free positions of one template, or of all chains of a run without templates.

    Lists go along `positions`, counted from 0; where it is not known which are free, those that
    varied. `visits` counts steps after burn-in, `acceptance` and `novel` are shares of them.
    `time` is in epochs and `autocorrelation` by lag, the first of them; none where a token never
    varied. `at_least` as elsewhere.
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
    manifest: Manifest, traces: Traces, groups: list[Group], known: dict[int, Memory]
) -> list[PositionFigures]:
    """Return the figures of each template's positions; chains of all lengths count together."""
    # The tokens before the first epoch are not traced: it says nothing of changes.
    kept = kept_epochs(manifest, traces)
    first = max(kept.start, 1)
    rates = visits_once(manifest, first)
    lines = chain_templates(manifest)
    figures = []
    for template in sorted({group.template for group in groups}):
        mine = lines == template
        tokens, rejected = (traces[name][: kept.stop, mine] for name in ("tokens", "rejected"))
        own = [group for group in groups if group.template == template]
        free = _free(manifest, own, tokens, rejected, traces["steps"][:1, mine])
        shown = _varied(tokens, rejected) if free is None else free.any(0)
        visits = accepted = novel = None
        if rates and free is not None and kept.stop > first:
            epochs = kept.stop - first
            visits = epochs * free.sum(0)[shown]
            turned = (rejected[first:] & free).sum((0, 1))[shown]
            changed = ((tokens[first:] != tokens[first - 1 : -1]) & free).sum((0, 1))[shown]
            accepted, novel = 1 - turned / visits, changed / visits
        places = np.flatnonzero(shown).tolist()
        every = known[template].by_position() if template in known else None
        figures.append(
            PositionFigures(
                template,
                places,
                None if visits is None else visits.tolist(),
                None if accepted is None else accepted.tolist(),
                None if novel is None else novel.tolist(),
                *_columns(None if every is None else [every[place] for place in places]),
            )
        )
    return figures


def _columns(
    memories: Sequence[tuple[list[float], float, bool] | None] | None,
) -> tuple[list[float | None] | None, list[bool] | None, list[list[float] | None] | None]:
    """Return times, whether they go on, and autocorrelations."""
    if memories is None:
        return None, None, None
    return (
        [None if one is None else one[1] for one in memories],
        [one is not None and one[2] for one in memories],
        [None if one is None else one[0] for one in memories],
    )


def _free(
    manifest: Manifest,
    groups: list[Group],
    tokens: npt.NDArray[np.int32],
    rejected: Flags,
    steps: npt.NDArray[np.int64],
) -> Flags | None:
    """Return which positions of each chain may change, or nothing where that cannot be known."""
    width = tokens.shape[2]
    if manifest.inputs.templates is not None:
        # A run does not say which words were frozen. Those that vary were not; if they are as
        # many as a sweep has steps, all others were.
        varied = _varied(tokens, rejected)
        found = visits_once(manifest, 0) and steps.size and int(steps[0, 0]) == int(varied.sum())
        return np.broadcast_to(varied, tokens.shape[1:]) if found else None
    lengths: dict[int, int | None] = {
        int(chain): group.length for group in groups for chain in group.chains
    }
    ordered = [lengths[chain] for chain in sorted(lengths)]
    if None in ordered:
        return None
    free: Flags = np.arange(width) < np.array(ordered)[:, None]
    return free


def _varied(tokens: npt.NDArray[np.int32], rejected: Flags) -> Flags:
    """Return the positions that ever turned anything down, or hold more than one token."""
    if not tokens.size:
        return np.zeros(tokens.shape[2], dtype=np.bool_)
    found: Flags = rejected.any((0, 1)) | (tokens != tokens[:1, :1]).any((0, 1))
    return found
