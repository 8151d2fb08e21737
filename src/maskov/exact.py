"""Evidence: whole distributions and transition matrices of models small enough to enumerate.

The matrices are built by running the real kernel code on every state with every possible draw, so
what they prove holds for the code that samples, not for a second copy of it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import reduce
from typing import Any, TypeVar

import torch

from maskov.energies import Energy, Norm, Raw
from maskov.errors import refuse
from maskov.kernels import Gibbs, Kernel, Metropolis
from maskov.models import MaskedModel, counterexample
from maskov.models.scorer import Scorer
from maskov.moves import Site, Sweep
from maskov.random import CounterRng, Purpose, Rng
from maskov.types import Bool, Chains, Float, Int, Sequences, StepInfo, Tensor

_MOST_STATES = 200_000
# The most rows of a run, but for the first one.
_MOST_ROWS = 20_000
_Result = TypeVar("_Result")


def expect(holds: object, message: str) -> None:
    """Say what is wrong with a custom part, if something is."""
    if not bool(holds):
        raise AssertionError(message)


def all_states(model: MaskedModel, length: int) -> Int[Tensor, "states length"]:
    """Return every sequence of `length` allowed tokens."""
    allowed = (~model.forbidden).nonzero().flatten()
    refuse(
        (
            allowed.numel() ** length > _MOST_STATES,
            f"{allowed.numel()}^{length} sequences are too many to enumerate; this is for tiny "
            "models.",
        )
    )
    return torch.cartesian_prod(*[allowed] * length).reshape(-1, length)


def all_sequences(
    model: MaskedModel, shortest: int, longest: int, first: int | None = None
) -> Chains:
    """Return chains at every sequence of some lengths, each of which may become every other.

    With `first` these are the sequences that begin with this token, which is frozen.
    """
    parts = [
        all_chains(model, length, longest, None if first is None else (0, first))
        for length in range(shortest, longest + 1)
    ]
    chains, held = joined(parts), int(first is not None)
    bounds = torch.tensor([[[shortest - held, longest - held]]]).repeat(len(chains.chain), 1, 1)
    return replace(chains, region=torch.where(chains.free, 0, -1), bounds=bounds)


def all_chains(
    model: MaskedModel, length: int, width: int, frozen: tuple[int, int] | None = None
) -> Chains:
    """Return chains at every sequence of one length, padded to a width.

    With `frozen`, a place and its token, these are the sequences with this token there.
    """
    states = all_states(model, length)
    free = torch.arange(width) < length
    if frozen is not None:
        place, token = frozen
        states = states[states[:, place] == token]
        free = free & (torch.arange(width) != place)
    tokens = torch.nn.functional.pad(states, (0, width - length), value=model.mask_id)
    lengths = torch.full((len(tokens),), length)
    return Chains.at(tokens, lengths=lengths, free=free.expand(tokens.shape).clone())


def joined(parts: list[Chains]) -> Chains:
    """Return the chains of several batches of one width, with nothing known of their tokens."""
    columns = [part.tensors() for part in parts]
    every: dict[str, Any] = {name: torch.cat([one[name] for one in columns]) for name in columns[0]}
    return Chains(**every)


def distribution(
    model: MaskedModel,
    energy: Energy,
    states: Int[Tensor, "states length"],
    temperature: float = 1.0,
    lengths: Int[Tensor, " states"] | None = None,
    reference: Int[Tensor, "states reference"] | None = None,
    free: Bool[Tensor, "states length"] | None = None,
) -> Float[Tensor, " states"]:
    """Return p(x) ∝ exp(−E(x)/T) over the given states, all of one length or of those given.

    `reference` are the texts with which the energy compares them, if it does, and `free` the
    positions that differ between them, if not all do.
    """
    chains = Chains.at(states, lengths=lengths, free=free, reference=reference)
    values = energy(model, with_passes(energy, Scorer(model), chains.sequences))
    return (-values / temperature).softmax(0)


def with_passes(energy: Energy, scorer: Scorer, given: Sequences) -> Sequences:
    """Return sequences with the masked passes that an energy needs."""
    if not energy.needs_passes:
        return given
    return replace(
        given, pass_cache=scorer.cache(given, energy.needs_normaliser, groups=energy.groups)
    )


class Outcomes(Rng):
    """Makes every row choose as it is `told`, and from there on the first outcome each time.

    The outcomes that it passes over are `left` for further rows. Rows are told apart by their
    chain; −1 tells nothing. Whatever is drawn with `uniform` is the same for all, as it must not
    depend on the tokens.
    """

    def __init__(self, told: Int[Tensor, "rows choices"], seed: int) -> None:
        self._told, self._asked = told, torch.zeros(len(told), dtype=torch.long)
        self.chance = torch.ones(len(told), dtype=torch.float64)
        # Rows, which of their choices it is, and an outcome that was passed over.
        self._missed = [(self._asked[:0],) * 3]
        self._numbers = CounterRng(seed)

    def uniform(
        self,
        chain: Int[Tensor, " n"],
        step: Int[Tensor, " n"],
        purpose: Purpose,
        index: Int[Tensor, " n"] | None = None,
    ) -> Float[Tensor, " n"]:
        """Return numbers that are the same for all rows."""
        expect(purpose is not Purpose.ACCEPT, "decide with `rng.accept`, not with a custom number.")
        return self._numbers.uniform(torch.zeros_like(chain), step, purpose, index)

    def categorical(
        self,
        probabilities: Float[Tensor, "n outcomes"],
        chain: Int[Tensor, " n"],
        step: Int[Tensor, " n"],
        purpose: Purpose,
        index: Int[Tensor, " n"] | None = None,
    ) -> Int[Tensor, " n"]:
        """Return an outcome for each row."""
        # A row may ask several times at once, in the order of its entries.
        order = chain.argsort(stable=True)
        place = torch.arange(len(chain)) - torch.searchsorted(chain[order], chain[order])
        turn, outcome = torch.zeros_like(chain).index_copy(0, order, place), torch.zeros_like(chain)
        for one in sorted(set(turn.tolist())):
            at = (turn == one).nonzero().flatten()
            outcome[at] = self._choose(chain[at], probabilities[at].double())
        return outcome

    def _choose(
        self, row: Int[Tensor, " n"], chances: Float[Tensor, "n outcomes"]
    ) -> Int[Tensor, " n"]:
        """Return the next outcome of different rows."""
        number = self._asked[row]
        if int(number.max()) == self._told.shape[1]:
            self._told = torch.nn.functional.pad(self._told, (0, 1), value=-1)
        told, possible = self._told[row, number], chances > 0
        outcome = torch.where(told < 0, possible.int().argmax(1), told)
        others = (possible & (told < 0)[:, None]).scatter(1, outcome[:, None], False)
        at, other = others.nonzero(as_tuple=True)
        self._missed.append((row[at], number[at], other))
        self._told[row, number] = outcome
        self.chance[row] *= chances.gather(1, outcome[:, None])[:, 0]
        self._asked[row] += 1
        return outcome

    def accept(
        self,
        log_ratio: Float[Tensor, " n"],
        chain: Int[Tensor, " n"],
        step: Int[Tensor, " n"],
        stage: int | Int[Tensor, " n"] = 0,
    ) -> tuple[Bool[Tensor, " n"], Float[Tensor, " n"]]:
        """Decide both ways."""
        accepted = log_ratio.double().clamp(max=0.0).exp().nan_to_num(0.0)
        chances = torch.stack([accepted, 1 - accepted], dim=1)
        decided = self.categorical(chances, chain, step, Purpose.ACCEPT)
        return decided == 0, torch.full_like(accepted, torch.nan)

    def left(self) -> tuple[Int[Tensor, " n"], Int[Tensor, "n choices"]]:
        """Return the rows that passed over outcomes, and how to get to each of these."""
        row, number, outcome = (torch.cat(part) for part in zip(*self._missed, strict=True))
        told = self._told[row].scatter(1, number[:, None], outcome[:, None])
        return row, told.masked_fill(torch.arange(told.shape[1]) > number[:, None], -1)


def outcome_matrix(
    count: int,
    run: Callable[[Tensor, Outcomes], _Result],
    places_of: Callable[[_Result], Int[Tensor, " rows"]],
    seed: int = 0,
) -> Float[Tensor, "states states"]:
    """Return the probability of going from each of `count` sources to each place.

    `run` starts a row at each of some sources, and takes its numbers from an Rng that knows the
    rows by their numbers; it is run until every outcome of its random choices has occurred.
    `places_of` tells where the rows of what it returned are.
    """
    matrix = torch.zeros((count, count), dtype=torch.float64)
    waiting = [(torch.arange(count), torch.zeros((count, 0), dtype=torch.long))]
    while waiting:
        source, told = waiting.pop()
        rng = Outcomes(told, seed)
        target = places_of(run(source, rng))
        expect((target >= 0).all(), "a step moved to a sequence that is not allowed.")
        matrix.index_put_((source, target), rng.chance, accumulate=True)
        row, told = rng.left()
        if len(row):
            parts = (torch.split(column, _MOST_ROWS) for column in (source[row], told))
            waiting += zip(*parts, strict=True)
    return matrix


def step_matrix(
    kernel: Kernel,
    scorer: Scorer,
    states: Int[Tensor, "states length"] | Chains,
    number: int = 0,
    seed: int = 0,
    epoch: int = 0,
) -> Float[Tensor, "states states"]:
    """Return P(x → x') of step `number` of an epoch, by enumerating every random choice.

    `states` are tokens, all free and of one length, or chains as they are; those whose epoch has
    fewer steps stay. `seed` is that of what is drawn without looking at the tokens.
    """
    start = states if isinstance(states, Chains) else Chains.at(states)
    kernel = kernel.at(epoch, None, None)
    known = kernel.init(start, scorer)

    def run(source: Tensor, rng: Rng) -> Chains:
        chains = replace(known.rows(source, known=True), chain=torch.arange(len(source)))
        chains = replace(chains, step=epoch * kernel.steps(chains))
        chains = kernel.begin(chains, rng)
        rows = (kernel.steps(chains) > number).nonzero().flatten()
        chains = replace(chains, step=chains.step + number, epoch_step=chains.epoch_step + number)
        after, info = kernel.step(chains, rows, scorer, rng)
        _check_step(chains, rows, after, info)
        return after

    return outcome_matrix(len(start.chain), run, lambda after: places(start, after), seed)


def _check_step(chains: Chains, rows: Tensor, after: Chains, info: StepInfo) -> None:
    """Refuse a step that did not count itself, or counted other chains."""
    reported = len(info.proposal.rows) == len(info.accepted) == len(rows)
    same = reported and (info.proposal.rows == rows).all()
    expect(same, "a step reports other chains than it moved.")
    one = torch.zeros_like(chains.chain).index_fill(0, rows, 1)
    right = (after.epoch_step == chains.epoch_step + one) & (after.step == chains.step + one)
    expect(right.all(), "a step must count itself: see `maskov.kernels.base`.")


def places(states: Chains, chains: Chains) -> Int[Tensor, " n"]:
    """Return which of some states each chain stands at, −1 for none."""
    count = len(states.chain)
    tokens = [one.tokens.masked_fill(~one.inside, -1) for one in (states, chains)]
    keys = torch.cat([torch.cat(tokens), torch.cat([states.free, chains.free])], dim=1)
    number = torch.unique(keys, dim=0, return_inverse=True)[1]
    place = torch.full((len(keys),), -1).index_copy(0, number[:count], torch.arange(count))
    return place[number[count:]]


def sweep_matrix(
    kernel: Kernel, scorer: Scorer, states: Int[Tensor, "states length"], seed: int = 0
) -> Float[Tensor, "states states"]:
    """Return P of a whole epoch, in the order that it has for `seed`."""
    start = Chains.at(states)
    steps = range(int(kernel.steps(start)[0]))
    return reduce(
        torch.matmul, (step_matrix(kernel, scorer, start, number, seed) for number in steps)
    )


def stationary(matrix: Float[Tensor, "states states"]) -> Float[Tensor, " states"]:
    """Return the distribution that a transition matrix leaves unchanged."""
    one = torch.eye(len(matrix), dtype=matrix.dtype)
    # (Pᵀ − 1)π = 0 with the last equation replaced by Σπ = 1.
    system = torch.cat([(matrix.T - one)[:-1], torch.ones_like(one[:1])])
    return torch.as_tensor(torch.linalg.solve(system, one[-1]))


def invariance_error(matrix: Tensor, target: Float[Tensor, " states"]) -> float:
    """Return the largest |(πP − π)(x)|."""
    return float((target @ matrix - target).abs().max())


def balance_error(matrix: Tensor, target: Float[Tensor, " states"]) -> float:
    """Return the largest |π(x)P(x→x') − π(x')P(x'→x)|: zero is detailed balance."""
    flow = target[:, None] * matrix
    return float((flow - flow.T).abs().max())


@dataclass(frozen=True)
class Finding:
    """What one kernel does to one target on the counter-example."""

    kernel: str
    target: str
    claims_invariance: bool
    invariance_error: float
    stationary: dict[str, float]


def verify() -> list[Finding]:
    """Work out the paper's counter-example: who leaves its target invariant, and who does not."""
    model = counterexample()
    scorer, states = Scorer(model), all_states(model, model.max_length)
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
            matrix = sweep_matrix(kernel, scorer, states)
            law = dict(zip(names, stationary(matrix).tolist(), strict=True))
            findings.append(Finding(
                name, str(energy), kernel.leaves_invariant, invariance_error(matrix, target), law
            ))  # fmt: skip
    return findings
