"""A kernel whose first epochs have another energy as their target."""

from __future__ import annotations

from dataclasses import dataclass

from maskov.energies.base import Energy
from maskov.kernels.base import Kernel
from maskov.models.scorer import Scorer
from maskov.moves import MaskedConditional
from maskov.random import Rng
from maskov.types import Chains, Int, StepInfo, Tensor


@dataclass(frozen=True)
class BurnIn(Kernel):
    """A kernel that runs take through the `epochs` of burn-in with `first` as its target.

    A schedule names that energy (`Schedule.burn_in_energy`). After burn-in, and in all that it says
    of itself, it is `kernel`.
    """

    kernel: Kernel
    first: Energy
    epochs: int

    @property
    def energy(self) -> Energy | None:  # type: ignore[override]
        """The target after burn-in."""
        return self.kernel.energy

    @property
    def leaves_invariant(self) -> bool:
        """Whether the kernel does, after burn-in."""
        return self.kernel.leaves_invariant

    @property
    def fills_blanks(self) -> bool:  # type: ignore[override]
        """Whether the kernel does."""
        return self.kernel.fills_blanks

    @property
    def conditional(self) -> MaskedConditional:  # type: ignore[override]
        """The kernel's."""
        return self.kernel.conditional

    @property
    def reaches_everything(self) -> bool:
        """Whether the kernel does."""
        return self.kernel.reaches_everything

    def at(self, epoch: int, temperature: float | None, block: int | None) -> Kernel:
        """Return the kernel of one epoch, with the energy that it has there."""
        kernel = self.kernel.with_energy(self.first) if epoch < self.epochs else self.kernel
        return kernel.at(epoch, temperature, block)

    def init(self, chains: Chains, scorer: Scorer) -> Chains:
        """Prepare the kernel."""
        return self.kernel.init(chains, scorer)

    def begin(self, chains: Chains, rng: Rng) -> Chains:
        """Prepare the kernel's epoch."""
        return self.kernel.begin(chains, rng)

    def steps(self, chains: Chains) -> Int[Tensor, " chains"]:
        """Return the kernel's steps."""
        return self.kernel.steps(chains)

    def step(
        self, chains: Chains, rows: Int[Tensor, " n"], scorer: Scorer, rng: Rng
    ) -> tuple[Chains, StepInfo]:
        """Step by the kernel."""
        return self.kernel.step(chains, rows, scorer, rng)

    def __str__(self) -> str:
        return str(self.kernel)
