"""Asynchronous chains of any move: their results, and how they are exchanged for others."""

from __future__ import annotations

from dataclasses import replace

import torch

from maskov.energies.stages import AcceptanceStages
from maskov.execution.buffers import COUNTS, ENERGIES, ChainBuffers
from maskov.kernels import Metropolis
from maskov.models.scorer import Scorer
from maskov.random import Rng
from maskov.types import Bool, Chains, Float, Int, PartValues, PassCache, Tensor, inside


class AsyncChains:
    """A group of asynchronous chains between two rounds."""

    def __init__(
        self,
        kernel: Metropolis,
        plan: AcceptanceStages,
        scorer: Scorer,
        rng: Rng,
        buffers: ChainBuffers,
        temperatures: Float[Tensor, " epochs"],
        shortest: int = 1,
        mean: int = 1,
    ) -> None:
        self.kernel = kernel
        self.plan = plan
        self.stages = plan.stages
        self.masked = kernel.energy
        assert self.masked.sums_over_passes, "asynchronous chains are tested by masked passes only"
        self.scorer = scorer
        self.rng = rng
        self.buffers = buffers
        # Of all chains of the run; rounds of fixed size are laid out for these lengths.
        self.shortest, self.mean = shortest, mean
        count, self._width = buffers.tokens.shape
        device = buffers.tokens.device
        self._temperatures = temperatures.to(device)
        # No chain may begin an epoch at or beyond this one.
        self.limit = torch.zeros((), dtype=torch.long, device=device)
        self._rows = torch.arange(count, device=device)
        self._places = torch.arange(self._width, device=device)
        self._inside = inside(buffers.lengths, self._width)

    def advance(self) -> None:
        """Do one round."""
        raise NotImplementedError

    def _prepare(self) -> None:
        """Begin a round: find out what is to be run."""
        raise NotImplementedError

    def _test(self) -> None:
        """End a round: run passes and decide by them."""
        raise NotImplementedError

    def _epoch_steps(self) -> Int[Tensor, " chains"]:
        """Return the steps of an epoch of every chain."""
        raise NotImplementedError

    def slowest(self) -> int:
        """Return the epoch of the slowest chain."""
        return int(self.buffers.epoch.min())

    def energies(self) -> Float[Tensor, "chains 3"]:
        """Return E_raw, E_norm and the target's energy of every chain."""
        b = self.buffers
        terms = (
            -b.logit,
            b.log_normaliser - b.logit,
            self.masked.of_scores(b.logit, b.log_normaliser),
        )
        return torch.stack([torch.where(self._inside, part, 0.0).sum(1) for part in terms], dim=1)

    def _beta(self) -> Float[Tensor, " chains"]:
        """Return the inverse temperature of every chain in its epoch."""
        b = self.buffers
        return b.beta / self._temperatures[b.epoch.clamp(max=len(self._temperatures) - 1)]

    def _end_epoch(self, ended: Bool[Tensor, " chains"], steps: Int[Tensor, " chains"]) -> None:
        """Keep the epoch's results for the chains that have ended it, and open the next."""
        b = self.buffers
        ring_row = b.epoch % len(b.ring_tokens)
        for ring, value in (
            (b.ring_energy, self.energies()),
            (b.ring_counts, b.counts),
            (b.ring_tokens, b.tokens),
            (b.ring_rejected, b.rejected),
        ):
            kept = torch.where(ended[:, None], value, ring[ring_row, self._rows])
            ring.index_put_((ring_row, self._rows), kept)
        b.step += torch.where(ended, steps, 0)
        b.epoch_step.masked_fill_(ended, 0)
        b.counts.masked_fill_(ended[:, None], 0)
        b.rejected &= ~ended[:, None]
        b.epoch += ended
        b.opening |= ended

    def _count(self, **happened: Tensor) -> None:
        for name, value in happened.items():
            self.buffers.counts[:, COUNTS.index(name)] += value

    def _count_passes(self, chain: Tensor, passes: Tensor) -> None:
        self.buffers.counts[:, COUNTS.index("passes")].index_add_(0, chain, passes)

    # Where rows are gathered; a GPU does these without asking which rows there are.

    def _rows_of(self, chosen: Bool[Tensor, " chains"]) -> Tensor | None:
        rows = chosen.nonzero().flatten()
        return rows if len(rows) else None

    def _put_rows(self, chosen: Tensor, rows: Tensor, buffer: Tensor, value: Tensor) -> None:
        buffer[rows] = value

    def _put_vectors(
        self,
        chosen: Bool[Tensor, "chains length"],
        row: Int[Tensor, " chains"],
        source: Float[Tensor, "rows columns hidden"],
    ) -> None:
        """Cache the vectors of the chosen places, which are in one row of `source` a chain."""
        chain, place = chosen.nonzero(as_tuple=True)
        self.buffers.hidden[chain, place] = source[row[chain], place]

    # Between groups and windows.

    def reload(self, buffers: ChainBuffers) -> bool:
        """Load other chains, if there are as many of them and as long."""
        mine, others = self.buffers.tensors(), buffers.tensors()
        if mine.keys() != others.keys() or any(
            mine[name].shape != others[name].shape for name in mine
        ):
            return False
        for name, value in others.items():
            mine[name].copy_(value)
        self._inside.copy_(inside(buffers.lengths, self._width))
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
            pass_cache=PassCache(b.hidden.clone(), b.logit.clone(), b.log_normaliser.clone()),
        )

    def snapshot(self, like: Chains) -> Chains:
        """Return the chains as they stand in the middle of a round, to be looked at."""
        energy = self.energies()[:, ENERGIES.index("energy_target")]
        tokens = self.buffers.tokens.clone()
        known = PartValues(None, energy.new_zeros((len(energy), 0)), energy)
        return replace(like, tokens=tokens, part_values=known)

    def row(self, epoch: int) -> dict[str, Tensor]:
        """Return the results of an epoch that all chains have finished."""
        b = self.buffers
        ring_row = epoch % len(b.ring_tokens)
        rings = {
            "energy": b.ring_energy,
            "counts": b.ring_counts,
            "tokens": b.ring_tokens,
            "rejected": b.ring_rejected,
        }
        row = {name: ring[ring_row].to("cpu", copy=True) for name, ring in rings.items()}
        return row | {"lengths": b.lengths.to("cpu", copy=True)}
