"""EvoProtGrad 0.2 on the lattice: the same target, in an environment of its own.

    python -m venv evo && evo/bin/pip install evo-prot-grad==0.2 'transformers<5' numpy
    evo/bin/python experiments/antibody/peer.py results/antibody/lattice.json --out peer.json

The file holds the energies of all sequences of the lattice. EvoProtGrad wants a differentiable
expert: the function that is linear in the letters of each place and equals −E on the lattice. Any
other letter costs 100, so none is proposed. Three ways to run it:

- `as it is`: whole sequences; places that may not change are preserved regions.
- `varied places only`: sequences of the varied places alone, no preserved regions, since its way
  back does not know of those.
- `with the reject step mended`: the same, and a rejected proposal leaves the chain where it was. In
  version 0.2 `cur_chains_oh` holds the proposal when the line for rejected ones keeps it.
"""

from __future__ import annotations

import argparse
import inspect
import json
import textwrap
import time
from collections import Counter
from itertools import pairwise
from pathlib import Path

import torch
from evo_prot_grad.common import sampler
from evo_prot_grad.common.utils import CANONICAL_ALPHABET
from evo_prot_grad.experts.onehot_downstream_regression_expert import (
    OneHotDownstreamRegressionExpert,
)

OUTSIDE = 100.0
KEEPS = "cur_chains_oh = y * accepted + (1.0 - accepted) * cur_chains_oh"
MENDED = "cur_chains_oh = y * accepted + (1.0 - accepted) * self.chains_oh"


class Table(torch.nn.Module):
    """−E of the lattice, linear in the letters of each of its places."""

    def __init__(self, energies: torch.Tensor, places: list[int], letters: list[str]) -> None:
        super().__init__()
        self.places = places
        self.values = -energies.reshape((2,) * len(places))
        self.columns = [[CANONICAL_ALPHABET.index(letter) for letter in pair] for pair in letters]

    def forward(self, onehots: torch.Tensor) -> torch.Tensor:
        """Return a score for each sequence."""
        weights = [
            onehots[:, at][:, pair] for at, pair in zip(self.places, self.columns, strict=True)
        ]
        found = self.values.expand(len(onehots), *self.values.shape)
        for weight in weights:  # contract the first place that is left
            found = torch.einsum("nk,nk...->n...", weight, found)
        inside = torch.stack([weight.sum(-1) for weight in weights]).sum(0)
        return found - OUTSIDE * (len(weights) - inside)


def mended() -> type:
    """Return the sampler with one line changed."""
    source = textwrap.dedent(inspect.getsource(sampler.DirectedEvolution.__call__))
    assert source.count(KEEPS) == 1
    scope = dict(vars(sampler))
    exec(source.replace(KEEPS, MENDED), scope)
    return type("Mended", (sampler.DirectedEvolution,), {"__call__": scope["__call__"]})


def preserved(size: int, varied: list[int]) -> list[tuple[int, int]]:
    """Return the stretches between varied places, ends included."""
    ends = [-1, *varied, size]
    return [(a + 1, b - 1) for a, b in pairwise(ends) if b - a > 1]


def main() -> None:
    """Run all three and write their distances to the law."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("law", type=Path)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--chains", type=int, default=200)
    parser.add_argument("--steps", type=int, default=600)
    parser.add_argument("--burn-in", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    lattice = json.loads(options.law.read_text())
    varied = [int(at) for at in lattice["letters"]]
    letters = list(lattice["letters"].values())
    energies = torch.tensor(lattice["energies"])
    law = torch.softmax(-energies.double(), 0)
    short = "".join(lattice["parent"][at] for at in varied)
    whole = (lattice["parent"], varied, preserved(len(lattice["parent"]), varied))
    alone = (short, list(range(len(varied))), None)
    ways = {
        "as it is": (sampler.DirectedEvolution, whole),
        "varied places only": (sampler.DirectedEvolution, alone),
        "with the reject step mended": (mended(), alone),
    }
    found = {}
    for name, (kind, (parent, places, held)) in ways.items():
        began = time.monotonic()
        table = Table(energies, places, letters)
        expert = OneHotDownstreamRegressionExpert(1.0, "attribute_value", table, "cpu")
        run = kind(
            [expert], options.chains, options.steps, -1, "all", held, parent,
            random_seed=options.seed,
        )  # fmt: skip
        variants, _ = run()
        drawn: Counter[str] = Counter()
        for row in variants[options.burn_in :]:
            sequences = [one.replace(" ", "") for one in row]
            drawn.update("".join(one[at] for at in places) for one in sequences)
        index = {"": 0}
        for pair in letters:
            index = {
                made + letter: 2 * at + bit
                for made, at in index.items()
                for bit, letter in enumerate(pair)
            }
        share = torch.zeros(len(law), dtype=torch.float64)
        for one, count in drawn.items():
            if one in index:
                share[index[one]] = count / drawn.total()
        found[name] = {
            "draws": drawn.total(),
            "outside": 1 - float(share.sum()),
            "total_variation": 0.5 * float((share - law).abs().sum() + 1 - share.sum()),
            "seconds": round(time.monotonic() - began, 1),
        }
        print(name, found[name], flush=True)
    settings = {key: value for key, value in vars(options).items() if not isinstance(value, Path)}
    options.out.write_text(json.dumps({"settings": settings, **found}, indent=1) + "\n")


if __name__ == "__main__":
    main()
