"""Energies: low is probable, p(x) ∝ exp(−E(x)/T)."""

from maskov.energies.autoregressive import Autoregressive, AutoregressiveTranslation
from maskov.energies.base import Energy, MaskedEnergy, Sum, TextEnergy
from maskov.energies.masked import Norm, Raw, grouped
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
