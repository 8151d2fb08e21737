"""Kernels: how a chain moves, and whether that leaves its target invariant."""

from maskov.energies.stages import DelayedAcceptance
from maskov.kernels.base import Kernel
from maskov.kernels.compose import Exchange, Mixture
from maskov.kernels.gibbs import Gibbs, mask_predict
from maskov.kernels.metropolis import Metropolis
from maskov.kernels.population import Draws, Population

__all__ = [
    "DelayedAcceptance",
    "Draws",
    "Exchange",
    "Gibbs",
    "Kernel",
    "Metropolis",
    "Mixture",
    "Population",
    "mask_predict",
]
