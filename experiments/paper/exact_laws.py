"""The paper's counter-example, enumerated: the stationary distribution of each kernel."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import torch

from experiments.lib.cell import Cell, CellResult
from experiments.lib.context import Context
from experiments.lib.quantities import ORDERS
from maskov import Gibbs, Metropolis, Norm, Raw, Sweep, counterexample
from maskov.exact import (
    all_states,
    distribution,
    invariance_error,
    stationary,
    step_matrix,
    sweep_matrix,
)
from maskov.kernels import Kernel
from maskov.models.scorer import Scorer
from maskov.moves import Site
from maskov.types import Chains


@dataclass(frozen=True)
class ExactLaws(Cell):
    """Odds ratios, targets of both energies, and stationary distributions of the kernels' code."""

    kind: ClassVar[str] = "laws"

    def roles(self) -> tuple[str, ...]:
        """Return the roles of the models."""
        return ()

    def run(self, context: Context, folder: Path) -> CellResult:
        """Enumerate."""
        model = counterexample()
        engine, states = Scorer(model), all_states(model, model.max_length)
        names = [model.decode(state).replace(" ", "") for state in states.tolist()]
        # p(x_1 | x_2) and p(x_2 | x_1) as tables [x_1, x_2], from the model's own scores.
        first, second = model.scores.exp()
        targets = {str(energy): distribution(model, energy, states) for energy in (Raw(), Norm())}

        def matrix_of(kernel: Kernel, order: str) -> torch.Tensor:
            if order == "left to right":
                return sweep_matrix(kernel, engine, states)
            masks = torch.eye(model.max_length, dtype=torch.bool)
            places = (Chains.at(states, free=mask.expand(states.shape)) for mask in masks)
            first_step, second_step = (step_matrix(kernel, engine, place) for place in places)
            if order == "right to left":
                return second_step @ first_step
            return (first_step + second_step) / 2

        laws, errors = {}, {}
        for order in ORDERS:
            kernels = {"deg": Gibbs(Site(positions=Sweep("left-to-right")))} | {
                str(energy): Metropolis(energy, Site(positions=Sweep("left-to-right")))
                for energy in (Raw(), Norm())
            }
            for name, kernel in kernels.items():
                matrix = matrix_of(kernel, order)
                laws[f"{name}, {order}"] = stationary(matrix)
                for target, law in targets.items():
                    if name in ("deg", target):
                        errors[f"{name}, {order}, of {target}"] = invariance_error(matrix, law)
        values = {
            "odds_first": _odds(first),
            "odds_second": _odds(second),
            "ratio_first": float(first[0, 0] / first[0, 1]),
            "ratio_second": float(second[0, 0] / second[0, 1]),
        }
        for order in ORDERS:
            for target, law in targets.items():
                distance = (laws[f"deg, {order}"] - law).abs().sum() / 2
                values[f"variation_{target}, {order}"] = float(distance)
        mh = [error for name, error in errors.items() if not name.startswith("deg")]
        deg = [error for name, error in errors.items() if name.startswith("deg")]
        values |= {"mh_invariance_error": max(mh), "deg_invariance_error": max(deg)}

        def table(law: torch.Tensor) -> dict[str, float]:
            return dict(zip(names, law.tolist(), strict=True))

        return {
            "signature": "model:counterexample|enumerated:4 states|kernels:their own code",
            "seed": None,
            "leaves_invariant": True,
            "notes": ["exact to rounding: nothing is sampled"],
            "values": {
                name: {"value": value, "standard_error": 0.0, "n": len(states)}
                for name, value in values.items()
            },
            "targets": {name: table(law) for name, law in targets.items()},
            "laws": {name: table(law) for name, law in laws.items()},
            "invariance_errors": errors,
        }


def _odds(conditional: torch.Tensor) -> float:
    """Return p(aa)p(bb) / (p(ab)p(ba)); both conditionals of a joint give the same value."""
    return float(conditional[0, 0] * conditional[1, 1] / (conditional[0, 1] * conditional[1, 0]))
