"""Kernels: how a chain moves, and whether that leaves its target invariant."""

from maskov.energies.stages import DelayedAcceptance
from maskov.kernels.base import Kernel, Mixture
from maskov.kernels.metropolis import Gibbs, Metropolis, mask_predict
from maskov.kernels.population import Draws, Population, Redraw

__all__ = [
    "DelayedAcceptance",
    "Draws",
    "Gibbs",
    "Kernel",
    "Metropolis",
    "Mixture",
    "Population",
    "Redraw",
    "mask_predict",
]
