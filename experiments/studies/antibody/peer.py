"""EvoProtGrad 0.2 on the lattice: the same target, in a separate environment.

    python -m venv evo && evo/bin/pip install evo-prot-grad==0.2 'transformers<5' numpy
    evo/bin/python experiments/studies/antibody/peer.py LATTICE.json --out peer.json

The file holds the energies of all sequences of the lattice. EvoProtGrad wants a differentiable
expert: the function that is linear in the letters of each place and equals −E on the lattice. Any
other letter costs 100, so hardly any is proposed. Four ways to run it:

- `as it is`: whole sequences; places that may not change are preserved regions.
- `varied places only`: sequences of the varied places alone, no preserved regions, since its way
  back does not know of those.
- `with the reject step fixed`: the same, and a rejected proposal leaves the chain where it was. In
  version 0.2 `cur_chains_oh` holds the proposal when the line for rejected ones keeps it.
- `and the way back`: the probability of the way back is that of the old letters. In version 0.2 it
  is that of the new ones, at the places where they already stand.

Beside the distance of all draws is that of the later half: where both agree, longer runs would not
help.
"""

from __future__ import annotations

import argparse
import inspect
import json
import textwrap
import time
from collections import Counter
from itertools import pairwise, product
from pathlib import Path

import torch
from evo_prot_grad.common import sampler
from evo_prot_grad.common.utils import CANONICAL_ALPHABET
from evo_prot_grad.experts.onehot_downstream_regression_expert import (
    OneHotDownstreamRegressionExpert,
)

OUTSIDE = 100.0
KEEPS = "cur_chains_oh = y * accepted + (1.0 - accepted) * cur_chains_oh"
FIXED = "cur_chains_oh = y * accepted + (1.0 - accepted) * self.chains_oh"
BACK = "cd_reverse.log_prob(onehot_Idx[id])"
FIXED_BACK = "cd_reverse.log_prob(old_letters(onehot_Idx[id], traj_list[id]))"


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


def old_letters(chosen: torch.Tensor, before: torch.Tensor) -> torch.Tensor:
    """Return the letters before a step at the places that it chose, one-hot and flat."""
    places = chosen.view_as(before).sum(-1, keepdim=True)
    return (before * places).reshape(len(before), -1)


def fixed(*changes: tuple[str, str]) -> type:
    """Return the sampler with some lines changed."""
    source = textwrap.dedent(inspect.getsource(sampler.DirectedEvolution.__call__))
    for old, new in changes:
        assert source.count(old) == 1
        source = source.replace(old, new)
    scope = {**vars(sampler), "old_letters": old_letters}
    exec(source, scope)
    return type("Mended", (sampler.DirectedEvolution,), {"__call__": scope["__call__"]})


def preserved(size: int, varied: list[int]) -> list[tuple[int, int]]:
    """Return the stretches between varied places, ends included."""
    ends = [-1, *varied, size]
    return [(a + 1, b - 1) for a, b in pairwise(ends) if b - a > 1]


def shares(drawn: Counter[str], letters: list[str]) -> torch.Tensor:
    """Return the share of each sequence of the lattice, in the order of its energies."""
    counts = [drawn["".join(chosen)] for chosen in product(*letters)]
    return torch.tensor(counts, dtype=torch.float64) / drawn.total()


def total_variation(share: torch.Tensor, law: torch.Tensor) -> float:
    """Return the distance of draws, of which some may lie outside, to the law."""
    return 0.5 * float((share - law).abs().sum() + 1 - share.sum())


def main() -> None:
    """Run all four and write their distances to the law."""
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
        "with the reject step fixed": (fixed((KEEPS, FIXED)), alone),
        "and the way back": (fixed((KEEPS, FIXED), (BACK, FIXED_BACK)), alone),
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
        halves = [Counter[str](), Counter[str]()]
        for number, row in enumerate(variants[options.burn_in :]):
            sequences = [one.replace(" ", "") for one in row]
            later = 2 * number >= len(variants) - options.burn_in
            halves[later].update("".join(one[at] for at in places) for one in sequences)
        share, later_share = shares(halves[0] + halves[1], letters), shares(halves[1], letters)
        found[name] = {
            "draws": sum(halves, Counter[str]()).total(),
            "outside": 1 - float(share.sum()),
            "total_variation": total_variation(share, law),
            "of_the_later_half": total_variation(later_share, law),
            "seconds": round(time.monotonic() - began, 1),
        }
        print(name, found[name], flush=True)
    settings = {key: value for key, value in vars(options).items() if not isinstance(value, Path)}
    options.out.write_text(json.dumps({"settings": settings, **found}, indent=1) + "\n")


if __name__ == "__main__":
    main()
