"""The kernel and the schedule of a run that names neither."""

from __future__ import annotations

from collections.abc import Sequence

from maskov.config import DEFAULT_EPOCHS
from maskov.constraints import Constraint
from maskov.energies import Energy, as_energy, grouped
from maskov.kernels import Metropolis
from maskov.kernels.registry import DEFAULT_SIZES
from maskov.moves import MaskedConditional, Span
from maskov.schedules import Schedule

# Epochs of burn-in, and the groups of positions in which it scores them, unless given: the fewest
# passes to the energy of long runs (results/mixing).
BURN_IN, GROUPS = 8, 4


def default_kernel(
    energy: Energy | str = "raw", constraints: Sequence[Constraint] = ()
) -> Metropolis:
    """Return the kernel that needed the fewest passes in results/mixing, for an energy."""
    move = Span(MaskedConditional(constraints=tuple(constraints)), DEFAULT_SIZES)
    return Metropolis(as_energy(energy), move)


def default_schedule(energy: Energy | str = "raw") -> Schedule:
    """Return the schedule of `default_kernel`: a burn-in with the energy's positions in groups."""
    first = grouped(as_energy(energy), GROUPS)
    return Schedule(
        epochs=DEFAULT_EPOCHS, burn_in=BURN_IN, burn_in_energy=None if first is None else str(first)
    )
