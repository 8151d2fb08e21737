"""The paper's counter-example, worked out: who leaves its target invariant, and who does not."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass

from maskov.energies import Norm, Raw
from maskov.exact import all_states, distribution, invariance_error, stationary, sweep_matrix
from maskov.kernels import Gibbs, Metropolis
from maskov.models import counterexample
from maskov.models.scorer import Scorer
from maskov.moves import Site, Sweep


@dataclass(frozen=True)
class Finding:
    """What one kernel does to one target on the counter-example."""

    kernel: str
    target: str
    claims_invariance: bool
    invariance_error: float
    stationary: dict[str, float]

    def to_json(self) -> str:
        """Return the finding as one line of JSON."""
        return json.dumps(asdict(self), ensure_ascii=False)


def verify() -> list[Finding]:
    """Build the transition matrix of a left-to-right sweep of each kernel, from its real code."""
    model = counterexample()
    engine = Scorer(model)
    states = all_states(model, model.max_length)
    names = [model.decode(state).replace(" ", "") for state in states.tolist()]
    findings = []
    for energy in (Raw(), Norm()):
        target = distribution(model, energy, states)
        kernels: dict[str, Metropolis | Gibbs] = {
            "mh": Metropolis(energy, Site(positions=Sweep("left-to-right"))),
            "mh, block of 2": Metropolis(energy, Site(positions=Sweep("left-to-right", 2))),
            "degenerate gibbs": Gibbs(Site(positions=Sweep("left-to-right"))),
            "degenerate gibbs, block of 2": Gibbs(Site(positions=Sweep("left-to-right", 2))),
        }
        for name, kernel in kernels.items():
            matrix = sweep_matrix(kernel, engine, states)
            law = dict(zip(names, stationary(matrix).tolist(), strict=True))
            error = invariance_error(matrix, target)
            findings.append(Finding(name, str(energy), kernel.leaves_invariant, error, law))
    return findings
