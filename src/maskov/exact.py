"""Evidence: whole distributions and transition matrices of models small enough to enumerate.

The matrices are built by running the real kernel code on every state with every possible draw, so
what they prove holds for the code that samples, not for a second copy of it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, replace
from functools import reduce
from typing import Any, TypeVar

import torch

from maskov.energies import Norm, Raw
from maskov.energies.base import Energy
from maskov.errors import InputError
from maskov.kernels import Gibbs, Kernel, Metropolis
from maskov.models import counterexample
from maskov.models.base import MaskedModel
from maskov.models.scorer import Scorer
from maskov.moves import Site, Sweep
from maskov.random import CounterRng, Purpose, Rng
from maskov.types import Bool, Chains, Float, Int, Sequences, StepInfo, Tensor

_MOST_STATES = 200_000
# Copies of each source that a first run begins with, and the most rows of a later one.
_FIRST_COPIES, _MOST_ROWS = 16, 20_000
_Result = TypeVar("_Result")


def all_states(model: MaskedModel, length: int) -> Int[Tensor, "states length"]:
    """Return every sequence of `length` allowed tokens."""
    allowed = (~model.forbidden).nonzero().flatten()
    if allowed.numel() ** length > _MOST_STATES:
        raise InputError(
            f"{allowed.numel()}^{length} sequences are too many to enumerate; this is for tiny "
            "models."
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
    bounds = torch.tensor([[shortest - held, longest - held]])
    return replace(
        chains,
        region=torch.where(chains.free, 0, -1),
        bounds=bounds.expand(len(chains.chain), 1, 2).clone(),
    )


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
    chains = fresh_state(tokens, free.expand(tokens.shape).clone())
    return replace(chains, lengths=torch.full_like(chains.lengths, length))


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
    if lengths is None:
        lengths = torch.full((len(states),), states.shape[1], device=states.device)
    source = torch.zeros_like(lengths)
    given = Sequences(states, lengths, source=source, reference=reference, free=free)
    values = energy(model, with_passes(energy, Scorer(model), given))
    return (-values / temperature).softmax(0)


def with_passes(energy: Energy, scorer: Scorer, given: Sequences) -> Sequences:
    """Return sequences with the masked passes that an energy needs."""
    if not energy.needs_passes:
        return given
    cache = scorer.cache(given, energy.needs_normaliser, groups=energy.groups)
    return replace(given, pass_cache=cache)


def fresh_state(
    tokens: Int[Tensor, "n length"], free: Bool[Tensor, "n length"] | None = None
) -> Chains:
    """Return a state whose chains stand at the given sequences, all of one length."""
    return Chains.at(tokens, free=free)


class Outcomes(Rng):
    """Splits copies of a row among the outcomes of each of its choices.

    Copies are neighbours and choose alike until they are split; `leader` is the first of them and
    `copies` their number. Where they are fewer than the outcomes, the rest is left for another run,
    whose rows are `told` how they choose to get there (−1: by themselves). Rows are told apart by
    their chain. Whatever is drawn with `uniform` is the same for all, as it must not depend on the
    tokens.
    """

    def __init__(
        self,
        told: Int[Tensor, "rows choices"],
        copies: Int[Tensor, " rows"],
        seed: int,
    ) -> None:
        row = torch.arange(len(told)).repeat_interleave(copies)
        self.leader, self._copies = (copies.cumsum(0) - copies)[row], copies[row]
        self.chance = torch.ones(len(row), dtype=torch.float64)
        self._chosen, self._asked = told[row], torch.zeros_like(row)
        self._options = torch.ones_like(self._chosen)
        # Rows, which of their choices it is, and an outcome that no copy was left for.
        self._missed = [(row[:0], row[:0], row[:0])]
        self._numbers = CounterRng(seed)

    def uniform(
        self,
        chain: Int[Tensor, " n"],
        step: Int[Tensor, " n"],
        purpose: Purpose,
        index: Int[Tensor, " n"] | None = None,
    ) -> Float[Tensor, " n"]:
        """Return numbers that are the same for all rows."""
        if purpose is Purpose.ACCEPT:
            raise AssertionError("decide with `rng.accept`, not with a custom number.")
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
        number, leader, copies = self._asked[row], self.leader[row], self._copies[row]
        if int(number.max()) == self._chosen.shape[1]:
            self._chosen = torch.nn.functional.pad(self._chosen, (0, 1), value=-1)
            self._options = torch.nn.functional.pad(self._options, (0, 1), value=1)
        # Copies see the same chances, but for rounding.
        entry = torch.zeros_like(self.leader).index_copy(0, row, torch.arange(len(row)))
        chances = chances[entry[leader]]
        count = (chances > 0).cumsum(1)
        options, told = count[:, -1].clamp(min=1), self._chosen[row, number]
        split = torch.where(told < 0, torch.minimum(options, copies), 1)
        part = (row - leader) * split // copies
        begin, end = -(-part * copies // split), -(-(part + 1) * copies // split)
        first = (count == part[:, None] + 1).int().argmax(1)
        outcome = torch.where(told < 0, first, told)
        left = (count > copies[:, None]) & (chances > 0) & ((told < 0) & (row == leader))[:, None]
        at, missed = left.nonzero(as_tuple=True)
        self._missed.append((row[at], number[at], missed))
        self._options[row, number], self._chosen[row, number] = options, outcome
        self.leader[row], self._copies[row] = leader + begin, end - begin
        self.chance[row] *= chances.gather(1, outcome[:, None])[:, 0]
        self._asked[row] += 1
        return outcome

    def accept(
        self,
        log_ratio: Float[Tensor, " n"],
        chain: Int[Tensor, " n"],
        step: Int[Tensor, " n"],
        stage: int | Int[Tensor, " n"] = 0,
        purpose: Purpose = Purpose.ACCEPT,
    ) -> tuple[Bool[Tensor, " n"], Float[Tensor, " n"]]:
        """Decide both ways."""
        accepted = log_ratio.double().clamp(max=0.0).exp().nan_to_num(0.0)
        chances = torch.stack([accepted, 1 - accepted], dim=1)
        decided = self.categorical(chances, chain, step, purpose)
        return decided == 0, torch.full_like(accepted, torch.nan)

    def left(self) -> tuple[Int[Tensor, " n"], Int[Tensor, "n choices"], Int[Tensor, " n"]]:
        """Return the rows with outcomes that are left, how to get there, and copies to try with."""
        row, number, outcome = (torch.cat(part) for part in zip(*self._missed, strict=True))
        told, choice = self._chosen[row], torch.arange(self._chosen.shape[1])
        told[torch.arange(len(row)), number] = outcome
        # The choices that follow are about as many as those that followed on another way.
        later = choice > number[:, None]
        copies = self._options[row].masked_fill(~later, 1).prod(1)
        most = max(1, _MOST_ROWS // max(1, len(row)))
        return row, told.masked_fill(later, -1), copies.clamp(max=most)


def every_outcome(
    count: int, run: Callable[[Tensor, Outcomes], _Result], seed: int = 0
) -> Iterator[tuple[Tensor, Tensor, Tensor, _Result]]:
    """Run code from each of `count` sources with every outcome of its random choices.

    `run` starts a row at each of some sources, and takes its numbers from an Rng that knows the
    rows by their numbers. Yields what it returned, with one row for each way of choosing: their
    sources, their probabilities and their numbers.
    """
    source, told = torch.arange(count), torch.zeros((count, 0), dtype=torch.long)
    copies = torch.full_like(source, _FIRST_COPIES)
    while len(source):
        rng = Outcomes(told, copies, seed)
        source = source.repeat_interleave(copies)
        result = run(source, rng)
        done = (rng.leader == torch.arange(len(source))).nonzero().flatten()
        yield source[done], rng.chance[done], done, result
        row, told, copies = rng.left()
        source = source[row]


def outcome_matrix(
    count: int,
    run: Callable[[Tensor, Outcomes], _Result],
    places_of: Callable[[_Result], Int[Tensor, " rows"]],
    seed: int = 0,
) -> Float[Tensor, "states states"]:
    """Return the probability of going from each source to each place, of what `run` returned."""
    matrix = torch.zeros((count, count), dtype=torch.float64)
    for source, chance, rows, result in every_outcome(count, run, seed):
        target = places_of(result)[rows]
        if bool((target < 0).any()):
            raise AssertionError("a step moved to a sequence that is not allowed.")
        matrix.index_put_((source, target), chance, accumulate=True)
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
    start = states if isinstance(states, Chains) else fresh_state(states)
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
    if not (reported and bool((info.proposal.rows == rows).all())):
        raise AssertionError("a step reports other chains than it moved.")
    one = torch.zeros_like(chains.chain).index_fill(0, rows, 1)
    right = (after.epoch_step == chains.epoch_step + one) & (after.step == chains.step + one)
    if not bool(right.all()):
        raise AssertionError("a step must count itself: see `maskov.kernels.base`.")


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
    start = fresh_state(states)
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

    def to_json(self) -> str:
        """Return the finding as one line of JSON."""
        return json.dumps(asdict(self), ensure_ascii=False)


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
            error = invariance_error(matrix, target)
            findings.append(Finding(name, str(energy), kernel.leaves_invariant, error, law))
    return findings
