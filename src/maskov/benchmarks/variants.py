"""The ways in which maskov itself is run: one row of the benchmark each.

To add a row, add a `Variant`. `kernel` holds keyword arguments of `Metropolis` beside the energy,
`sample` those of `maskov.sample` beside what every row shares; both may hold any Python value.
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

    `same_law` says that its chain is Algorithm 1's: the same proposals, accepted with the same
    probability. The first such variant is what the plain rows' rates are taken from. A name
    holds no comma, since --rows separates by them.
    """

    name: str
    what: str
    same_law: bool
    kernel: Mapping[str, Any] = field(default_factory=dict)
    sample: Mapping[str, Any] = field(default_factory=dict)

    def build_kernel(self, energy: Energy) -> Metropolis:
        """Return the kernel that samples from this energy."""
        return Metropolis(energy, **self.kernel)


_ONE_TEST = {"delayed": DelayedAcceptance(nearest=0)}

VARIANTS: tuple[Variant, ...] = (
    Variant("maskov", "maskov.sample with its default settings", same_law=False),
    Variant(
        "low-first",
        "early tests in bfloat16, the last one in full",
        same_law=False,
        kernel={"delayed": DelayedAcceptance(precision="bfloat16")},
    ),
    Variant("one-test", "without delayed acceptance", same_law=True, kernel=_ONE_TEST),
    Variant(
        "lock-step",
        "without delayed acceptance, all chains in step",
        same_law=True,
        kernel=_ONE_TEST,
        sample={"asynchronous": False},
    ),
)


def named(name: str) -> Variant:
    """Return the variant of this name."""
    for variant in VARIANTS:
        if variant.name == name:
            return variant
    raise InputError(f"unknown row '{name}'; use one of {', '.join(v.name for v in VARIANTS)}.")


def reference() -> Variant:
    """Return the variant that makes Algorithm 1's chain."""
    return next(variant for variant in VARIANTS if variant.same_law)
