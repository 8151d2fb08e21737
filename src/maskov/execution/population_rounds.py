"""Populations on a GPU: particles move at each point of their path in recorded rounds."""

from __future__ import annotations

from dataclasses import replace

from maskov.execution.recorded import Recording, new_buffers, sampler_for
from maskov.execution.rounds import Rounds
from maskov.execution.window_rounds import WindowRounds
from maskov.kernels import Kernel, Population
from maskov.kernels.base import whole_epoch
from maskov.models.base import MaskedModel
from maskov.models.scorer import Scorer, refuse_out_of_memory
from maskov.random import Rng
from maskov.types import Chains, Tensor


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
        self._rounds: Rounds | None = None

    def after(self, kernel: Population, chains: Chains) -> Chains:
        """Return populations after a point of their path, in rounds or in lock-step."""
        if population_sampler(self._scorer.model, kernel) is not None:
            return self.point(kernel, chains)[0]
        return whole_epoch(kernel, kernel.init(chains, self._scorer), self._scorer, self._rng)

    def point(
        self, kernel: Population, chains: Chains, experts: int = 0
    ) -> tuple[Chains, dict[str, Tensor]]:
        """Weigh the particles, draw them again and move them; return also what was counted."""
        scorer, moving = self._scorer, kernel.kernels[0]
        chains = kernel.begin(kernel.init(chains, scorer), self._rng)
        kind, energy = population_sampler(scorer.model, kernel), moving.energy
        assert kind is not None
        assert energy is not None
        buffers = new_buffers(
            kind, moving, scorer.model, chains, experts=experts, steps=kernel.steps(chains)
        )
        path, rounds = replace(kernel, epoch=0), self._rounds
        if rounds is None or path != self._kernel or not rounds.reload(buffers):
            self._rounds = None  # what it has recorded makes room
            rounds = kind(moving, scorer, self._rng, buffers, [moving], *self._lengths)
        self._kernel, self._rounds = path, rounds
        assert isinstance(rounds, WindowRounds)
        rounds.weigh(energy)
        rounds.limit.fill_(1)
        advance = rounds.advance_promptly if isinstance(rounds, Recording) else rounds.advance
        with refuse_out_of_memory():
            while rounds.slowest() < 1:
                scorer.batcher.raise_if_stopped()
                advance()
        return rounds.state(chains), rounds.row(0)
