"""Kernels: how a chain moves, and whether that leaves its target invariant."""

from maskov.energies.stages import Delayed
from maskov.kernels.base import Evaluated, Kernel
from maskov.kernels.gibbs import Gibbs, mask_predict
from maskov.kernels.metropolis import Metropolis
from maskov.kernels.ratio import accept
from maskov.moves.positions import ORDERS, LowestConfidence, Positions, Sweep

__all__ = [
    "ORDERS",
    "Delayed",
    "Evaluated",
    "Gibbs",
    "Kernel",
    "LowestConfidence",
    "Metropolis",
    "Positions",
    "Sweep",
    "accept",
    "mask_predict",
]
