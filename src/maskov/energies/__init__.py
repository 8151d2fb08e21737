"""Energies: low is probable, p(x) ∝ exp(−E(x)/T)."""

from maskov.energies.autoregressive import Autoregressive
from maskov.energies.base import Combined, Energy
from maskov.energies.parse import parse_energy
from maskov.energies.site import Norm, Raw, SiteEnergy

__all__ = ["Autoregressive", "Combined", "Energy", "Norm", "Raw", "SiteEnergy", "parse_energy"]
