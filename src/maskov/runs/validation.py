"""What a checkpoint must fit to be gone on from: these chains, and every number where it can be.

A hash tells damage from chance; one who means harm computes it, too. So nothing of a checkpoint is
believed because it is there: its tensors have the shapes that their types state, and no number in
them leads a step to where there is nothing. One that does not fit is passed over like one that is
cut short.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, fields
from functools import cached_property
from typing import Any

import torch

from maskov.execution.buffers import ACCEPTED, COUNTS, ENERGIES, FREE, TESTING, WAITING, Buffers
from maskov.execution.pilot import CHOICES
from maskov.kernels import Kernel, Metropolis
from maskov.models.base import MaskedModel
from maskov.runs.async_group import AHEAD, early_tests
from maskov.runs.checkpoint_header import Sizes
from maskov.runs.describe import kernel_at
from maskov.runs.group import UNDECIDED, Progress
from maskov.schedules import Schedule
from maskov.types import Bool, ChainState, Int, Sites, Tensor, inside

# Epochs of samples that a group may hold while others are behind it, with room to spare.
_MOST_HELD = 64
# Passes that nobody could have run; so many can be added up.
_MOST_PASSES = 2**40
_STEPS = COUNTS.index("steps")
_SHAPED = re.compile(r"(Int|Float|Bool)\[Tensor, ['\"]([\w ]*)['\"]\]")
_KINDS = {"Int": torch.int64, "Float": torch.float64, "Bool": torch.bool}


def _shapes(of: type[Any], prefix: str) -> dict[str, tuple[str, list[str]]]:
    """Return the kind and the shape that the type of each tensor of a dataclass states."""
    found = ((field.name, _SHAPED.match(str(field.type))) for field in fields(of))
    return {f"{prefix}{name}": (m[1], m[2].split()) for name, m in found if m is not None}


_STATE = _shapes(ChainState, "state.")
_SITES = _shapes(Sites, "state.")
_FLIGHT = _shapes(Buffers, "flight.")
_ALONE = {
    "counts": ("Int", ["chains", "counts"]),
    "rejected": ("Bool", ["chains", "length"]),
    "pilot": ("Float", ["table", "2"]),
}


@dataclass(frozen=True)
class Mould:
    """A group as its run lays it out, and how far it can get.

    `lanes` are the most that a chain may have; `vector` returns one that the model keeps of a
    masked position, of which only the width and the kind matter.
    """

    fresh: Progress
    kernel: Kernel
    schedule: Schedule
    model: MaskedModel
    asynchronous: bool
    lanes: int
    vector: Callable[[], Tensor]

    # Before anything is read.

    def takes(self, sizes: Sizes) -> bool:
        """Whether tensors of these kinds and shapes can be of this group."""
        wanted = dict(_ALONE | _STATE)
        wanted |= _SITES if "state.hidden" in sizes else {}
        wanted |= _FLIGHT if "flight.tokens" in sizes else {}
        if "state.energy" not in sizes:
            del wanted["state.energy"]
        held = {name for name in sizes if name.startswith("held.")}
        if sizes.keys() - held != wanted.keys() or not self._takes_held(sizes, held):
            return False
        kinds, lengths = dict(_KINDS), dict(self._lengths)
        if "state.hidden" in sizes or "flight.tokens" in sizes:
            vector = self.vector()
            kinds["Vector"], lengths["hidden"] = vector.dtype, vector.shape[-1]
        for name, (kind, names) in wanted.items():
            dtype, shape = sizes[name]
            kind = "Vector" if names[-1:] == ["hidden"] else kind
            if dtype != kinds[kind] or len(shape) != len(names):
                return False
            # What is not known is as long everywhere as where it is met first.
            if any(
                lengths.setdefault(dim, length) != length
                for dim, length in zip(names, shape, strict=True)
            ):
                return False
        return "flight.tokens" not in sizes or self._takes_lanes(lengths)

    @cached_property
    def _lengths(self) -> dict[str, int]:
        chains, length = self.fresh.state.tokens.shape
        return {
            "chains": chains, "length": length, "counts": len(COUNTS), "energies": len(ENERGIES),
            "ring": AHEAD, "rounds": WAITING, "table": len(CHOICES), "2": 2, "4": 4,
        }  # fmt: skip

    def _takes_held(self, sizes: Sizes, held: set[str]) -> bool:
        chains, length = self.fresh.state.tokens.shape
        kinds = {
            "tokens": (torch.int32, (chains, length)),
            "energies": (torch.float64, (chains, len(ENERGIES) - 1)),
        }
        epochs = {name.split(".")[1] for name in held}
        return (
            len(epochs) <= _MOST_HELD
            and held == {f"held.{epoch}.{part}" for epoch in epochs for part in kinds}
            and all(sizes[name] == kinds[name.split(".")[2]] for name in held)
            and all(epoch.isdecimal() and len(epoch) < 10 for epoch in epochs)
        )

    def _takes_lanes(self, lengths: dict[str, int]) -> bool:
        chains = lengths["chains"]
        lanes, rest = divmod(lengths["lanes"] - 1, chains)
        return (
            rest == 0
            and 1 <= lanes <= min(self.lanes, lengths["length"])
            and lengths["choices"] in (0, len(CHOICES))
            and 1 <= lengths["stages"] <= 3
        )

    # Once it is read.

    def fits(self, progress: Progress, held: dict[int, dict[str, Tensor]]) -> bool:
        """Whether every number is where it can be; shapes and kinds are known to be right."""
        epochs = self.schedule.epochs
        return (
            _within(progress.epoch, 0, epochs)
            and _within(progress.number, 0, self.fresh.state.tokens.shape[1])
            and _within(progress.end, 0, epochs)
            and _within(progress.other_passes, 0, _MOST_PASSES)
            and _within(progress.budget, 1, self.fresh.budget)
            and progress.nearest in (UNDECIDED, *CHOICES)
            and _are_counts(progress.counts)
            and (progress.number == 0 or _all(progress.counts[:, _STEPS] > 0))
            and _all((progress.pilot >= 0) & progress.pilot.isfinite())
            and self._fits_state(progress)
            and all(self._are_tokens(row["tokens"].long(), True) for row in held.values())
            and (not progress.flight or self._fits_flight(progress))
        )

    def _fits_state(self, progress: Progress) -> bool:
        state, sites = progress.state, progress.state.sites
        filled = progress.epoch > 0 and not progress.flight
        return (
            all(torch.equal(getattr(state, name), value) for name, value in self._fixed.items())
            and self._are_tokens(state.tokens, filled)
            and self._are_steps(state.step)
            and (state.energy is None or not state.energy.isnan().any())
            and (sites is None or self._are_numbers(sites.hidden, sites.logit))
        )

    @cached_property
    def _fixed(self) -> dict[str, Tensor]:
        """What no step changes."""
        state = self.fresh.state
        return {name: getattr(state, name) for name in ("chain", "source", "lengths", "free")}

    @cached_property
    def _inside(self) -> Bool[Tensor, "chains length"]:
        return inside(self.fresh.state.lengths, self.fresh.state.tokens.shape[1])

    def _are_tokens(self, tokens: Int[Tensor, "chains length"], filled: bool) -> bool:
        """Whether frozen places hold what they held, and others, once `filled`, what they may."""
        state, forbidden = self.fresh.state, self.model.forbidden.cpu()
        if not torch.equal(tokens[~state.free], state.tokens[~state.free]):
            return False
        found = tokens[state.free]
        if filled:
            return self._may_stand(found)
        return _all((found >= 0) & (found < len(forbidden)) | (found == self.model.mask_id))

    def _may_stand(self, tokens: Int[Tensor, " n"]) -> bool:
        """Whether samples may hold all these tokens."""
        forbidden = self.model.forbidden.cpu()
        known = (tokens >= 0) & (tokens < len(forbidden))
        return _all(known & ~forbidden[tokens.clamp(0, len(forbidden) - 1)])

    def _are_steps(self, steps: Int[Tensor, " chains"]) -> bool:
        # An epoch has no more steps than positions, and neither has the filling of blanks.
        most = (self.schedule.epochs + 1) * self.fresh.state.tokens.shape[1]
        return _all((steps >= 0) & (steps <= most))

    def _are_numbers(self, hidden: Tensor, logit: Tensor) -> bool:
        broken = hidden.isnan().any(2) | logit.isnan()
        return not bool((broken & self._inside).any())

    def _fits_flight(self, progress: Progress) -> bool:
        if not progress.epoch < progress.end:
            return False
        kernel = kernel_at(self.kernel, self.schedule, progress.epoch)
        if not (isinstance(kernel, Metropolis) and kernel.flows and self.asynchronous):
            return False
        b = Buffers.load(progress.flight)
        stages = early_tests(kernel.delayed, bool(len(b.pilot)), progress.nearest).stages
        last = min(progress.end, progress.epoch + AHEAD)
        begun = b.epoch + ~b.opening  # a chain within an epoch is at its end at the latest
        none = max(len(self.model.forbidden) - 1, self.model.mask_id)
        return (
            progress.begun
            and b.draw_accept.shape[2] == len(stages)
            and all(torch.equal(getattr(b, name), value) for name, value in self._fixed.items())
            and self._are_tokens(b.tokens, True)
            and self._are_steps(b.step)
            and self._are_numbers(b.hidden, b.logit)
            and _all((b.epoch >= progress.epoch) & (begun <= last))
            and _all((b.number >= 0) & (b.number <= b.free.sum(1)))
            and _all((b.drawn >= 0) & (b.drawn <= none))
            and self._may_stand(b.drawn[b.free])
            and all(_all((u >= 0) & (u <= 1)) for u in (b.draw_token, b.draw_accept))
            and all(map(_are_counts, (b.counts, b.ring_counts, b.waiting)))
            and torch.equal(b.counts[:, _STEPS], b.number)
            and self._are_rows(b, progress.epoch)
            and _all(b.waiting[:, -1] <= b.epoch.min())
            and _all((b.pilot >= 0) & b.pilot.isfinite())
            and self._are_ranks(b)
            and self._are_lanes(b, len(stages))
        )

    def _are_rows(self, b: Buffers, epoch: int) -> bool:
        """Whether what chains came to in epochs that others are still in can be written."""
        for ahead in range(epoch, epoch + AHEAD):
            slot, over = ahead % AHEAD, b.epoch > ahead
            tokens = torch.where(over[:, None], b.ring_tokens[slot], b.tokens)
            steps = b.ring_counts[slot, :, _STEPS]
            if not self._are_tokens(tokens, True) or not _all(~over | (steps == b.free.sum(1))):
                return False
        return True

    def _are_ranks(self, b: Buffers) -> bool:
        """Whether chains within an epoch visit every free position once."""
        under_way = ~b.opening
        ranks = b.rank[under_way].masked_fill(~b.free[under_way], b.rank.shape[1])
        steps = b.free[under_way].sum(1)
        place = torch.arange(b.rank.shape[1])
        wanted = torch.where(place < steps[:, None], place, b.rank.shape[1])
        frozen = b.rank[under_way] >= b.rank.shape[1]
        return torch.equal(ranks.sort(1).values, wanted) and _all(frozen | b.free[under_way])

    def _are_lanes(self, b: Buffers, stages: int) -> bool:
        """Whether each lane tests a step that is still to come of a chain within an epoch."""
        chains, length = b.tokens.shape
        lanes = (len(b.lane_place) - 1) // chains
        owner = torch.arange(chains * lanes) // lanes
        place = b.lane_place[:-1]
        busy = place != FREE
        at = (owner, place.clamp(0, length - 1))
        testable = (place < length) & b.free[at] & ~b.opening[owner]
        testable &= b.rank[at] >= b.number[owner]
        return (
            _all(b.lane_place >= FREE)
            and _all(~busy | testable)
            and _all((b.lane_stage >= 0) & (b.lane_stage < stages))
            and _all((b.lane_verdict >= TESTING) & (b.lane_verdict <= ACCEPTED))
            and _all(~b.lane_pending[:-1] | (busy[:, None] & self._inside[owner]))
            and len(set(zip(owner[busy].tolist(), place[busy].tolist(), strict=True)))
            == int(busy.sum())
        )


def _within(value: int, least: int, most: int) -> bool:
    return least <= value <= most


def _are_counts(found: Tensor) -> bool:
    return _all((found >= 0) & (found <= _MOST_PASSES))


def _all(found: Tensor) -> bool:
    return bool(found.all())
