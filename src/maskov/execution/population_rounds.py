"""Populations on a GPU: particles move at each point of their path in recorded rounds."""

from __future__ import annotations

from dataclasses import replace

import torch

from maskov.execution.recorded import new_buffers, sampler_for
from maskov.execution.rounds import Rounds
from maskov.execution.window_rounds import WindowRounds
from maskov.kernels import Kernel, Population
from maskov.kernels.base import whole_epoch
from maskov.models.base import MaskedModel
from maskov.models.scorer import Scorer, refuse_out_of_memory
from maskov.random import Rng
from maskov.types import Chains, Tensor, joined


def population_sampler(model: MaskedModel, kernel: Kernel) -> type[Rounds] | None:
    """Return the rounds in which populations move on this device, if the kernel has some."""
    return sampler_for(model, kernel.kernels[0]) if isinstance(kernel, Population) else None


class PopulationRounds:
    """Takes populations from point to point; what was recorded for one serves the next.

    Rounds are laid out for particles of the `shortest` and `mean` length of the run.
    """

    def __init__(self, scorer: Scorer, rng: Rng, shortest: int, mean: int) -> None:
        self._scorer, self._rng = scorer, rng
        self._lengths = shortest, mean
        self._kernel: Population | None = None
        self._rounds: list[Rounds] = []

    def after(self, kernel: Population, chains: Chains) -> Chains:
        """Return populations after a point of their path, in rounds or in lock-step."""
        if population_sampler(self._scorer.model, kernel) is not None:
            return self.point(kernel, chains)[0]
        return whole_epoch(kernel, kernel.init(chains, self._scorer), self._scorer, self._rng)

    def point(
        self, kernel: Population, chains: Chains, experts: int = 0
    ) -> tuple[Chains, dict[str, Tensor]]:
        """Weigh the particles, draw them again and move them; return also what was counted.

        Of many particles one half goes on while the host reads what the other waits for.
        """
        scorer, path = self._scorer, replace(kernel, epoch=0)
        chains = kernel.begin(kernel.init(chains, scorer), self._rng)
        if path != self._kernel:
            self._kernel, self._rounds = path, []
        many = 2 * int(chains.lengths.sum()) >= scorer.batcher.budget
        halves = torch.arange(len(chains.chain), device=chains.chain.device).chunk(1 + many)
        steps = kernel.steps(chains)
        parts = [chains.rows(half, known=True) for half in halves]
        for number, (half, part) in enumerate(zip(halves, parts, strict=True)):
            self._load(number, kernel, part, steps[half], experts)
        going = self._rounds
        with refuse_out_of_memory():
            while going:
                for rounds in going:
                    scorer.batcher.raise_if_stopped()
                    rounds.advance_promptly()
                going = [rounds for rounds in going if rounds.slowest() < 1]
        found = [one.state(part) for one, part in zip(self._rounds, parts, strict=True)]
        rows = [rounds.row(0) for rounds in self._rounds]
        after = found[0] if len(found) == 1 else found[0].followed_by(found[1])
        return after, {name: joined([row[name] for row in rows]) for name in rows[0]}

    def _load(
        self, number: int, kernel: Population, chains: Chains, steps: Tensor, experts: int
    ) -> None:
        """Load some particles into the rounds of their number, which may have to be new."""
        scorer, moving = self._scorer, kernel.kernels[0]
        kind, energy = population_sampler(scorer.model, kernel), moving.energy
        assert kind is not None
        assert energy is not None
        buffers = new_buffers(kind, moving, scorer.model, chains, experts=experts, steps=steps)
        if number >= len(self._rounds) or not self._rounds[number].reload(buffers):
            del self._rounds[number:]  # what they have recorded makes room
            rounds = kind(moving, scorer, self._rng, buffers, [moving], *self._lengths)
            self._rounds.append(rounds)
        rounds = self._rounds[number]
        assert isinstance(rounds, WindowRounds)
        rounds.weigh(energy)
        rounds.limit.fill_(1)
