"""A kernel whose first epochs have another energy as their target."""

from __future__ import annotations

from dataclasses import dataclass

from maskov.energies.base import Energy
from maskov.kernels.base import Kernel, Wrapper, leaves


@dataclass(frozen=True)
class BurnIn(Wrapper):
    """A kernel that runs take through the `epochs` of burn-in with `first` as its target.

    A schedule names that energy (`Schedule.burn_in_energy`). After burn-in, and in all that it says
    of itself, it is `kernel`.
    """

    first: Energy
    epochs: int

    def at(self, epoch: int, temperature: float | None, block: int | None) -> Kernel:
        """Return the kernel of one epoch, with the energy that it has there."""
        kernel = self.kernel.with_energy(self.first) if epoch < self.epochs else self.kernel
        return kernel.at(epoch, temperature, block)

    def __str__(self) -> str:
        return str(self.kernel)


def energies_of(kernel: Kernel) -> list[Energy]:
    """Return the energies of a kernel's parts in order, then that of its burn-in."""
    found = [leaf.energy for leaf in leaves(kernel) if leaf.energy is not None]
    return [*found, kernel.first] if isinstance(kernel, BurnIn) else found
