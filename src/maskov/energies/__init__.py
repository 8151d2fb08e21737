"""Energies: low is probable, p(x) ∝ exp(−E(x)/T)."""

from maskov.energies.base import Combined, Energy
from maskov.energies.causal import Autoregressive
from maskov.energies.masked import Norm, Raw, SiteEnergy
from maskov.energies.registry import parse_energy

__all__ = ["Autoregressive", "Combined", "Energy", "Norm", "Raw", "SiteEnergy", "parse_energy"]
