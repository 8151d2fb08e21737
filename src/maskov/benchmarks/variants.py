"""Variants of running maskov: one row of the benchmark each.

To add a row, add a `Variant`. `kernel` contains keyword arguments of `Metropolis`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from maskov.energies import Energy
from maskov.energies.stages import DelayedAcceptance
from maskov.errors import InputError
from maskov.kernels import Metropolis


@dataclass(frozen=True)
class Variant:
    """A named way to run maskov.

    `same_law` means that it samples the same Markov chain as Algorithm 1. The first such variant
    provides the rates of the plain rows. A name contains no comma: --rows is comma-separated.
    """

    name: str
    what: str
    same_law: bool
    kernel: Mapping[str, Any] = field(default_factory=dict)

    def build_kernel(self, energy: Energy) -> Metropolis:
        """Return the kernel that samples from this energy."""
        return Metropolis(energy, **self.kernel)


VARIANTS: tuple[Variant, ...] = (
    Variant("maskov", "maskov.sample with its default settings", same_law=False),
    Variant(
        "one-test",
        "without delayed acceptance",
        same_law=True,
        kernel={"delayed": DelayedAcceptance(0)},
    ),
)


def find_variant(name: str) -> Variant:
    """Return a variant by name."""
    for variant in VARIANTS:
        if variant.name == name:
            return variant
    raise InputError(f"unknown row '{name}'; use one of {', '.join(v.name for v in VARIANTS)}.")


def reference_variant() -> Variant:
    """Return the variant that samples Algorithm 1's chain."""
    return next(variant for variant in VARIANTS if variant.same_law)
