"""Energies: low is probable, p(x) ∝ exp(−E(x)/T)."""

from maskov.energies.base import Energy, MaskedEnergy, Norm, Raw, Sum, TextEnergy, grouped
from maskov.energies.networks import Autoregressive
from maskov.energies.other_models import AutoregressiveTranslation
from maskov.energies.registry import as_energy, parse_energy

__all__ = [
    "Autoregressive",
    "AutoregressiveTranslation",
    "Energy",
    "MaskedEnergy",
    "Norm",
    "Raw",
    "Sum",
    "TextEnergy",
    "as_energy",
    "grouped",
    "parse_energy",
]
