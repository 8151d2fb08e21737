"""Rounds: chains that advance at their own pace, in full and unpadded batches.

A round runs whatever passes the proposals of all chains wait for together, and decides what they
decide; no chain waits for another. Random numbers are keyed by (seed, chain, step), so the
decisions are those of `Metropolis.step`. Single sites that cache the passes of single positions are
in `site_rounds.py`, all other moves in `window_rounds.py`; here is what any move needs.

Every operation works on whole tensors and by masks, so that a round has no shape that depends on
its contents; the few places where rows are gathered are methods that `recorded.py` replaces.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch

from maskov.energies.base import Energy, Norm, Raw
from maskov.execution.buffers import COUNTS, ENERGIES, Buffers
from maskov.kernels import Kernel, Metropolis
from maskov.kernels.base import leaves
from maskov.models.base import Queries
from maskov.models.scorer import Scorer
from maskov.moves import Site, Sweep
from maskov.random import Rng, triton_function
from maskov.types import Bool, Chains, Float, Int, PartValues, PassCache, Tensor


def put(buffer: Tensor, chosen: Bool[Tensor, ...], value: Tensor) -> None:
    """Set the chosen entries of a buffer to a value; `chosen` has its first dimensions, or all."""
    here = chosen.view(*chosen.shape, *(1,) * (buffer.dim() - chosen.dim()))
    torch.where(here, value, buffer, out=buffer)


@dataclass(frozen=True)
class Asked:
    """Some passes: the tokens that they read, masked already, and the positions that are `wanted`.

    The vectors of passes that go `back`, of the old tokens, have a column of their own. Of the
    others, the score of the `current` token is wanted where one is `scored`.
    """

    tokens: Int[Tensor, "passes length"]
    lengths: Int[Tensor, " passes"]
    wanted: Bool[Tensor, "passes length"]
    current: Int[Tensor, "passes length"]
    scored: Bool[Tensor, "passes length"]
    back: Bool[Tensor, " passes"]


class Rounds(ABC):
    """A group of chains, advanced round by round; `kernels` are those of all epochs of the run."""

    # The most vectors that are asked of a pass.
    most_wanted = 1
    # The fields of chains that steps change.
    _moved: tuple[str, ...] = ("tokens",)

    def __init__(
        self,
        kernel: Kernel,
        scorer: Scorer,
        rng: Rng,
        buffers: Buffers,
        kernels: Sequence[Kernel],
        shortest: int = 1,
        mean: int = 1,
    ) -> None:
        parts = [one for one in leaves(kernel) if isinstance(one, Metropolis)]
        first = parts[0]
        assert first.energy.masked is not None, "rounds test by masked passes"
        self.kernel, self.kernels = kernel, kernels
        self._moves = [part.move for part in parts]
        # The orders of single sites and blocks.
        sites = [move.positions for move in self._moves if isinstance(move, Site)]
        self._sweeps = [sweep for sweep in sites if isinstance(sweep, Sweep)]
        self.plan = first.plan
        self.stages = self.plan.stages
        self.energy, self.masked = first.energy, first.energy.masked
        self.scorer = scorer
        self.rng = rng
        self.buffers = buffers
        # Of all chains of the run; rounds of fixed size are laid out for these lengths.
        self.shortest, self.mean = shortest, mean
        count, self._width = buffers.tokens.shape
        device = buffers.tokens.device
        heat = [getattr(leaves(one)[0], "target_temperature", 1.0) for one in kernels]
        self._temperatures = torch.tensor(heat, dtype=torch.float64, device=device)
        # No chain may begin an epoch at or beyond this one.
        self.limit = torch.zeros((), dtype=torch.long, device=device)
        self._rows = torch.arange(count, device=device)
        self._places = torch.arange(self._width, device=device)
        self._slots = (len(buffers.slot_pending) - 1) // count
        # Epochs whose results the buffers keep. One more row is for chains that end no epoch now.
        self.kept = len(buffers.ring_tokens) - 1
        self._owner = self._rows.repeat_interleave(self._slots)

    def advance(self) -> None:
        """Do one round, or finish one that was stopped while its passes ran.

        To prepare twice would let some chains run ahead: the same chains, but other batches, and
        batches round.
        """
        offered = self.buffers.offered
        if not bool(offered):
            self._prepare()
            offered.fill_(True)
        self._test()
        offered.fill_(False)

    @abstractmethod
    def _prepare(self) -> None:
        """Begin a round: end and begin epochs, and draw what needs no pass."""

    @abstractmethod
    def _test(self) -> None:
        """End a round: run passes and decide by them."""

    @abstractmethod
    def _queries(self, slot: Int[Tensor, " passes"], column: Int[Tensor, " passes"]) -> Asked:
        """Return what passes ask that slots wait for."""

    @abstractmethod
    def _stale(self) -> Bool[Tensor, "chains length"]:
        """Return the positions that wait for the head."""

    @property
    def _inside(self) -> Bool[Tensor, "chains length"]:
        return self._within(self.buffers.lengths)

    def _within(self, lengths: Int[Tensor, " n"]) -> Bool[Tensor, "n length"]:
        """Return true at the positions of sequences, as `inside`, without making a new range."""
        return self._places < lengths[:, None]

    def slowest(self) -> int:
        """Return the epoch of the slowest chain."""
        return int(self.buffers.epoch.min())

    def energies(self) -> Float[Tensor, "chains 3"]:
        """Return E_raw, E_norm and the target's energy of every chain.

        Passes of groups know the last alone.
        """
        both = [torch.full_like(self.buffers.logit[:, 0], torch.nan)] * 2
        if self.energy.groups is None:
            both = [self._sum_of(energy) for energy in (Raw(), Norm())]
        return torch.stack([*both, self._target_energy()], dim=1)

    def _target_energy(self) -> Float[Tensor, " chains"]:
        return self._sum_of(self.masked)

    def _sum_of(self, energy: Energy) -> Float[Tensor, " chains"]:
        """Return the value of a sum over the masked passes of each chain."""
        terms = energy.of_scores(self.buffers.logit, self.buffers.log_normaliser)
        return torch.where(self._inside, terms, 0.0).sum(1)

    def _epoch(self) -> Int[Tensor, " chains"]:
        """Return the epoch of every chain, or the last one where it has done all."""
        return self.buffers.epoch.clamp(max=len(self._temperatures) - 1)

    def _end_epoch(self, ended: Bool[Tensor, " chains"]) -> None:
        """Keep the epoch's results for the chains that have ended it, and open the next."""
        b = self.buffers
        rings, row = b.tensors(), torch.where(ended, b.epoch % self.kept, self.kept)
        for name, value in self._results().items():
            rings[f"ring_{name}"].index_put_((row, self._rows), value)
        b.step += torch.where(ended, b.steps, 0)
        b.epoch_step.masked_fill_(ended, 0)
        b.counts.masked_fill_(ended[:, None], 0)
        b.rejected &= ~ended[:, None]
        b.epoch += ended
        b.opening |= ended

    def _open(self) -> Bool[Tensor, " chains"]:
        """Begin epochs, with the order of their sites; return which chains begin one."""
        b = self.buffers
        begun = b.opening & (b.epoch < self.limit)
        if self._sweeps:
            put(b.rank, begun, self._sweeps[-1].rank(b.chain, b.step, b.free, self.rng))
        b.opening &= ~begun
        return begun

    def _results(self) -> dict[str, Tensor]:
        """Return the results of an epoch that ends now."""
        b = self.buffers
        return {
            "energy": self.energies(),
            "counts": b.counts,
            "tokens": b.tokens,
            "rejected": b.rejected,
        }

    def _keep_terms(
        self,
        slot: Int[Tensor, " queries"],
        column: Int[Tensor, " queries"],
        place: Int[Tensor, " queries"],
        hidden: Float[Tensor, "queries hidden"],
        token: Int[Tensor, " queries"],
        valid: Bool[Tensor, " queries"],
    ) -> Bool[Tensor, " queries"]:
        """Keep the terms of ordered energies; return which `valid` queries ask for something else.

        Without such energies that is all of them.
        """
        return valid

    def _pass(self) -> None:
        """Run all passes that slots wait for."""
        b = self.buffers
        slot, column = b.slot_pending[:-1].nonzero(as_tuple=True)
        if not len(slot):
            return
        asked, owner = self._queries(slot, column), self._owner[slot]
        hidden = self.scorer.hidden(
            Queries(asked.tokens, asked.lengths, asked.wanted, b.source[owner])
        )
        query, place = asked.wanted.nonzero(as_tuple=True)
        token, every = asked.current[query, place], torch.ones_like(query, dtype=torch.bool)
        others = self._keep_terms(slot[query], column[query], place, hidden, token, every)
        query, place, hidden = query[others], place[others], hidden[others]
        b.slot_hidden[slot[query], torch.where(asked.back[query], self._width, place)] = hidden
        scored = asked.scored[query, place].nonzero().flatten()
        if len(scored):
            query, place = query[scored], place[scored]
            tokens, normaliser = asked.current[query, place], self.masked.needs_normaliser
            found = self.scorer.scores(hidden[scored], tokens, normaliser)
            b.slot_logit[slot[query], place], b.slot_normaliser[slot[query], place] = found
        b.slot_pending[slot, column] = torch.zeros_like(slot, dtype=torch.bool)
        self._count_passes(owner, torch.ones_like(slot))

    def _count(self, **happened: Tensor) -> None:
        none = torch.zeros_like(next(iter(happened.values())))
        columns = [happened.get(name, none) for name in COUNTS]
        self.buffers.counts[:, : len(COUNTS)] += torch.stack(columns, dim=1)

    def _count_passes(self, chain: Tensor, passes: Tensor) -> None:
        self.buffers.counts[:, COUNTS.index("passes")].index_add_(0, chain, passes)

    def _put_vectors(
        self, chosen: Bool[Tensor, "chains length"], slot: Int[Tensor, " chains"]
    ) -> None:
        """Cache the vectors of the chosen places, which are in one slot of each chain."""
        hidden, source = self.buffers.hidden, self.buffers.slot_hidden
        copy = triton_function("maskov.encoders.fused", "copy_vectors") if source.is_cuda else None
        if copy is None:
            put(hidden, chosen, source[slot, : self._width])
        else:
            copy(hidden, source, chosen, slot)

    # Where rows are gathered; a GPU does these without asking which rows there are.

    def _stale_places(self) -> tuple[Tensor, Tensor] | None:
        row, place = self._stale().nonzero(as_tuple=True)
        return (row, place) if len(row) else None

    def _put_places(self, where: tuple[Tensor, Tensor], buffer: Tensor, value: Tensor) -> None:
        buffer[where] = value

    # Between groups and tasks.

    def reload(self, buffers: Buffers) -> bool:
        """Load other chains, if there are as many of them and as long."""
        mine, others = self.buffers.tensors(), buffers.tensors()
        if mine.keys() != others.keys() or any(
            mine[name].shape != others[name].shape for name in mine
        ):
            return False
        for name, value in others.items():
            mine[name].copy_(value)
        return True

    def state(self, like: Chains) -> Chains:
        """Return the chains as they stand, none of them within an epoch."""
        b = self.buffers
        # Copies, since other chains may be loaded into these buffers.
        return replace(
            self.snapshot(like),
            step=b.step.clone(),
            epoch_step=torch.zeros_like(b.epoch_step),
            rank=b.rank.clone(),
            pass_cache=PassCache(
                b.hidden.clone(), b.logit.clone(), b.log_normaliser.clone(), self.energy.groups
            ),
        )

    def snapshot(self, like: Chains) -> Chains:
        """Return the chains as they stand in the middle of a round, to be looked at."""
        energy = self.energies()[:, ENERGIES.index("energy_target")]
        known = PartValues(None, energy.new_zeros((len(energy), 0)), energy)
        changed = {name: getattr(self.buffers, name).clone() for name in self._moved}
        return replace(like, **changed, part_values=known)

    def row(self, epoch: int) -> dict[str, Tensor]:
        """Return the results of an epoch that all chains have finished."""
        rings = {n: v for n, v in self.buffers.tensors().items() if n.startswith("ring_")}
        row = {
            name.removeprefix("ring_"): ring[epoch % self.kept].to("cpu", copy=True)
            for name, ring in rings.items()
        }
        return {"lengths": self.buffers.lengths.to("cpu", copy=True)} | row
