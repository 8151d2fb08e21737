"""The tests of asynchronous proposals, and the record of each step for an observer.

Every number that an observer gets is the one that decided.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from maskov.execution.async_state import AsyncState
from maskov.execution.buffers import ENERGIES
from maskov.kernels.base import log_ratio
from maskov.types import Bool, Float, Int, Tensor

# The stage of a proposal that needed no test.
UNTESTED = -1


@dataclass(frozen=True)
class StepRecord:
    """Steps that are done, one row each, for whoever watches.

    `stage` is the last test that was taken, `UNTESTED` where the proposal was the token that stood
    there; `log_acceptance` is that of all tests up to it. Each test has its `log_ratio` and its
    `uniform`, not-a-number where it was not taken. The energies are those of the kernel's target;
    that of the proposal is known where the last test was taken.
    """

    chain: Int[Tensor, " n"]
    step: Int[Tensor, " n"]
    place: Int[Tensor, " n"]
    old: Int[Tensor, " n"]
    new: Int[Tensor, " n"]
    log_q_forward: Float[Tensor, " n"]
    log_q_reverse: Float[Tensor, " n"]
    log_acceptance: Float[Tensor, " n"]
    stage: Int[Tensor, " n"]
    accepted: Bool[Tensor, " n"]
    energy_old: Float[Tensor, " n"]
    energy_new: Float[Tensor, " n"]
    log_ratio: Float[Tensor, "n stages"]
    uniform: Float[Tensor, "n stages"]


@dataclass(frozen=True)
class Ratios:
    """The ratios of every slot's proposal, one for each stage, and the parts they are made of.

    `exact` holds old minus new terms at the other positions, and `site` that of the changed one.
    """

    log_ratio: Float[Tensor, "slots stages"]
    exact: Float[Tensor, "slots length"]
    site: Float[Tensor, " slots"]


class AsyncTests(AsyncState):
    """A group of asynchronous chains whose tests can be computed and observed."""

    def __init__(
        self, *arguments: Any, observer: Callable[[StepRecord], None] | None = None, **settings: Any
    ) -> None:
        super().__init__(*arguments, **settings)
        self.observer = observer

    def _ratios(self, nearness: Int[Tensor, "slots length"]) -> Ratios:
        """Return what every slot's tests compare with; meaningless where passes are missing."""
        b, owner = self.buffers, self._owner
        at = (owner, b.slot_place[:-1].clamp(min=0))
        beta = self._beta()[owner]
        exact, site = self._differences(at)
        forward, reverse = b.log_forward[at], b.log_reverse[at]
        ratios = []
        for stage in self.stages:
            kept = self._is_near(nearness, stage.nearest)
            fall = site + torch.where(kept, exact, 0.0).sum(1)
            ratios.append(log_ratio(fall, forward, reverse, beta))
        return Ratios(torch.stack(ratios, dim=1), exact, site)

    def _differences(self, at: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
        """Return old minus new terms of each slot: at the other positions, and at its own place.

        The pass that masks the changed position is the same before and after the move.
        """
        b, energy, owner = self.buffers, self.masked, self._owner
        new = energy.of_scores(b.slot_logit[:-1], b.slot_normaliser[:-1])
        exact = energy.of_scores(b.logit, b.log_normaliser)[owner] - new
        normaliser = b.log_normaliser[at]
        site = energy.of_scores(b.logit[at], normaliser)
        site = site - energy.of_scores(b.drawn_logit[at], normaliser)
        return exact, site

    def _tell_settled(
        self,
        settled: Bool[Tensor, "chains slots"],
        taken: Bool[Tensor, "chains slots"],
        rank: Int[Tensor, "chains slots"],
        slot: Int[Tensor, "chains slots"],
        place: Int[Tensor, "chains slots"],
    ) -> None:
        """Tell of the settled proposals, and of the steps before each that needed no test.

        The slots of each chain are in the order of their steps. Called before the chains move.
        """
        if self.observer is None:
            return
        since = self.buffers.epoch_step
        for turn in range(settled.shape[1]):
            now, at = settled[:, turn], rank[:, turn]
            self._tell_repeated(now, since, at)
            self._tell_tested(now, taken[:, turn], slot[:, turn], place[:, turn])
            since = torch.where(now, at + 1, since)

    def _tell_tested(self, settled: Tensor, taken: Tensor, slot: Tensor, place: Tensor) -> None:
        """Tell of the proposals that were tested, one of each settled chain."""
        assert self.observer is not None
        b, rows = self.buffers, settled.nonzero().flatten()
        slot, at = slot[rows], (rows, place[rows])
        every = self._nearness(b.slot_place[:-1].clamp(min=0), b.lengths[self._owner])
        stage, ratios = b.slot_stage[slot], self._ratios(every)
        untaken = torch.arange(len(self.stages), device=rows.device) > stage[:, None]
        old = self._target()[rows]
        rest = self._is_near(every[slot], None)
        fall = ratios.site[slot] + torch.where(rest, ratios.exact[slot], 0.0).sum(1)
        # A move whose reverse is impossible was rejected without a pass.
        passed = (stage == len(self.stages) - 1) & (b.log_reverse[at] > -torch.inf)
        told = StepRecord(
            b.chain[rows], b.step[rows] + b.rank[at], place[rows], b.tokens[at], b.drawn[at],
            b.log_forward[at], b.log_reverse[at], b.slot_acceptance[slot], stage, taken[rows],
            old, torch.where(passed, old - fall, torch.nan),
            ratios.log_ratio[slot].masked_fill(untaken, torch.nan),
            b.draw_accept[at].masked_fill(untaken, torch.nan),
        )  # fmt: skip
        self.observer(told)

    def _tell_repeated(self, chosen: Tensor, since: Tensor, before: Tensor) -> None:
        """Tell of the chosen chains' steps between two ranks, which drew what stood there.

        They are accepted as they stand.
        """
        if self.observer is None:
            return
        b = self.buffers
        passed = b.free & (b.rank >= since[:, None]) & (b.rank < before[:, None])
        rows, place = at = (passed & chosen[:, None]).nonzero(as_tuple=True)
        nothing = torch.full((len(rows), len(self.stages)), torch.nan, device=rows.device).double()
        energy = self._target()[rows]
        told = StepRecord(
            b.chain[rows], b.step[rows] + b.rank[at], place, b.tokens[at], b.drawn[at],
            b.log_forward[at], b.log_reverse[at], torch.zeros_like(energy),
            torch.full_like(rows, UNTESTED), torch.ones_like(rows, dtype=torch.bool),
            energy, energy, nothing, nothing,
        )  # fmt: skip
        self.observer(told)

    def _target(self) -> Float[Tensor, " chains"]:
        return self.energies()[:, ENERGIES.index("energy_target")]
