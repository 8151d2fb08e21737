"""Prove parts of your own on models small enough to enumerate.

    from maskov.testing import check_energy, check_exchange, check_kernel, check_move

    check_energy(MyEnergy())
    check_move(MyMove())
    check_kernel(Metropolis(Raw() + MyEnergy(), MyMove()))
    check_exchange(Exchange(Metropolis(Raw(), MyMove()), (1, 0.7)))

Each runs the real code on every sequence with every outcome of every random choice, and raises
`AssertionError` with what is wrong. maskov's own parts are tested by the same functions.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import torch

from maskov.energies.base import Energy
from maskov.energies.registry import as_energy
from maskov.energies.stages import DelayedAcceptance, TestPlan
from maskov.errors import InputError
from maskov.exact import (
    all_sequences,
    all_states,
    balance_error,
    distribution,
    fresh_state,
    invariance_error,
    transition_matrix,
)
from maskov.execution.loop import whole_epoch
from maskov.kernels import Exchange, Kernel, Metropolis
from maskov.kernels.metropolis import Comparison
from maskov.models.base import MaskedModel
from maskov.models.scorer import Scorer
from maskov.models.tabular import TabularModel
from maskov.moves import Move, Site
from maskov.random import CounterRng, Purpose, Rng
from maskov.types import Bool, Chains, Float, Int, Proposal, Sequences, StepInfo, Tensor

TOLERANCE = 1e-10
# Where a row starts, the outcomes it is told, and the probability of these.
_Pending = tuple[int, tuple[int, ...], float]
_DELAYS = (DelayedAcceptance(0), DelayedAcceptance(1), DelayedAcceptance(2))


def random_table(
    length: int = 3,
    size: int = 3,
    seed: int = 0,
    forbidden: Sequence[str] = (),
    scale: float = 1.5,
) -> TabularModel:
    """Return a model with random conditionals, which fit no joint distribution."""
    generator = torch.Generator().manual_seed(seed)
    shape = (length, *(size,) * length)
    scores = scale * torch.randn(shape, generator=generator, dtype=torch.float64)
    return TabularModel(scores, "abcdefgh"[:size], forbidden=forbidden)


def check_energy(
    energy: object,
    model: MaskedModel | None = None,
    length: int = 3,
    reference: Sequence[int] = (),
) -> None:
    """Prove an energy: an Energy, its name, or a function of texts.

    Its value depends on the sequence alone; its terms, if it has some, add up to it; what chains
    cache after any move equals what is computed afresh; every stage of delayed acceptance changes
    its sign when the move is reversed, and the last one is the whole difference. `reference` are
    the tokens of the start text with which it compares, if it does.
    """
    target, model = as_energy(energy), model or random_table(length)
    scorer = Scorer(model)
    states = _compared(fresh_state(all_states(model, length)), reference)
    values = _values(target, scorer, states)
    _expect(bool(values.isfinite().any()), f"'{target}' is finite for no sequence.")
    order = torch.randperm(len(values), generator=torch.Generator().manual_seed(0))
    again = _values(target, scorer, states.rows(order))
    alone = torch.cat([_values(target, scorer, states.rows(row[None])) for row in order])
    for other, what in ((again, "in another order"), (alone, "alone")):
        _expect(_same(values[order], other), f"'{target}' has other values {what}.")
    _check_terms(target, scorer, states, values)
    _check_cache(target, scorer, states)
    for delayed in _DELAYS if target.needs_sites else _DELAYS[:1]:
        _check_stages(target, delayed, scorer, states, values)


def check_move(
    move: Move, model: MaskedModel | None = None, length: int = 3, seeds: int = 2
) -> None:
    """Prove a move: with it, Metropolis-Hastings leaves any target invariant.

    The targets are random numbers for every sequence, so that a wrong probability in either
    direction cannot cancel. What the move draws without looking at the tokens, such as its
    positions, is drawn for several `seeds`.
    """
    model = model or random_table(length)
    if move.irreversible:
        raise AssertionError(
            f"'{move}' says that it is irreversible: no kernel can use it exactly."
        )
    target = _RandomTarget(model, length)
    check_kernel(Metropolis(target, move), model, length, seeds=seeds)


def check_kernel(
    kernel: Kernel,
    model: MaskedModel | None = None,
    length: int = 3,
    reversible: bool = True,
    temperature: float | None = None,
    seeds: int = 1,
    lengths: tuple[int, int] | None = None,
    reference: Sequence[int] = (),
) -> None:
    """Prove that every step of a kernel leaves its target invariant: πP = π to 1e-10.

    With `reversible` each step must be in detailed balance, too, as those of Metropolis are. Where
    chains may go through the kernel asynchronously, both ways must have one transition matrix. The
    target is that of the kernel's energy, at `temperature` or the kernel's own. With `lengths` the
    states are all sequences of these lengths, from the shortest to the longest. If the kernel has
    constraints, the states are those that meet them; `reference` are the tokens of the start text
    from which they count changes, and with which the energy compares.
    """
    if kernel.target is None or not kernel.leaves_invariant:
        raise AssertionError(f"'{kernel}' does not claim to leave a target invariant.")
    model = model or random_table(length)
    scorer = Scorer(model)
    start = (
        fresh_state(all_states(model, length))
        if lengths is None
        else all_sequences(model, *lengths)
    )
    start = constrained(start, kernel, model, reference)
    states = start.tokens
    heat, energy = kernel.target.temperature, kernel.target.energy
    heat = heat if temperature is None else temperature
    target = distribution(model, energy, states, heat, start.lengths, start.reference)
    first = kernel.begin(start.rows(torch.tensor([0])), CounterRng(0))
    steps = range(int(kernel.steps(first)[0]))
    for seed, number in itertools.product(range(seeds), steps):
        matrix = step_matrix(kernel, scorer, start, number, seed)
        where = f"step {number} of '{kernel}'"
        _expect((matrix.sum(1) - 1).abs().max() < TOLERANCE, f"{where} loses probability.")
        if reversible:
            error = balance_error(matrix, target)
            _expect(error < TOLERANCE, f"{where} breaks detailed balance by {error:.2g}.")
        error = invariance_error(matrix, target)
        _expect(error < TOLERANCE, f"{where} does not leave its target invariant: {error:.2g}.")
        if kernel.asynchronous:
            _check_asynchronous(kernel, scorer, states, number, seed, matrix)


def constrained(
    chains: Chains, kernel: Kernel, model: MaskedModel, reference: Sequence[int] = ()
) -> Chains:
    """Return those chains that meet the constraints of a kernel."""
    chains = _compared(chains, reference)
    possible = kernel.conditional.possible(chains.sequences, model)
    return chains.rows(possible.nonzero().flatten())


def _compared(chains: Chains, reference: Sequence[int]) -> Chains:
    """Return chains that all started from one text."""
    return replace(chains, reference=torch.tensor([reference] * len(chains.chain)).long())


def check_exchange(
    kernel: Exchange, model: MaskedModel | None = None, length: int = 2, seeds: int = 1
) -> None:
    """Prove replica exchange: it leaves the joint law of all replicas invariant, to 1e-10.

    The law is the product of the targets at every temperature of the ladder. The swaps of even and
    of odd epochs are in detailed balance with it, and whole epochs leave it invariant. Every tuple
    of states is enumerated, so model and ladder must be small.
    """
    if kernel.energy is None or not kernel.leaves_invariant:
        raise AssertionError(f"'{kernel}' does not claim to leave a target invariant.")
    model = model or random_table(length, size=2)
    scorer, states = Scorer(model), all_states(model, length)
    target = joint_distribution(kernel, model, states)
    # With two replicas, odd epochs test no pair.
    for epoch in range(min(2, kernel.replicas - 1)):
        now = replace(kernel, epoch=epoch)
        matrix = exchange_matrix(now, scorer, states, swaps_only=True)
        error = balance_error(matrix, target)
        _expect(error < TOLERANCE, f"swaps of '{kernel}' break detailed balance by {error:.2g}.")
        for seed in range(seeds):
            matrix = exchange_matrix(now, scorer, states, seed=seed)
            _expect((matrix.sum(1) - 1).abs().max() < TOLERANCE, f"'{kernel}' loses probability.")
            error = invariance_error(matrix, target)
            where = f"an epoch of '{kernel}'"
            _expect(error < TOLERANCE, f"{where} does not leave its target invariant: {error:.2g}.")


def joint_distribution(
    kernel: Exchange, model: MaskedModel, states: Int[Tensor, "states length"]
) -> Float[Tensor, " tuples"]:
    """Return the product of the targets of all replicas, over every tuple of states."""
    assert kernel.energy is not None
    joint = torch.ones(1, dtype=torch.float64)
    for beta in kernel.ladder:
        own = distribution(model, kernel.energy, states, kernel.target_temperature / beta)
        joint = (joint[:, None] * own).flatten()
    return joint


def exchange_matrix(
    kernel: Exchange,
    scorer: Scorer,
    states: Int[Tensor, "states length"],
    swaps_only: bool = False,
    seed: int = 0,
) -> Float[Tensor, "tuples tuples"]:
    """Return P of an epoch of replicas, or of its swaps alone, by enumerating every choice.

    Tuples of states are in the order of `joint_distribution`.
    """
    tuples = torch.cartesian_prod(*[torch.arange(len(states))] * kernel.replicas)
    place = len(states) ** torch.arange(kernel.replicas - 1, -1, -1)
    index = {tuple(state): row for row, state in enumerate(states.tolist())}
    matrix = torch.zeros((len(tuples), len(tuples)), dtype=torch.float64)
    pending: list[_Pending] = [(source, (), 1.0) for source in range(len(tuples))]
    while pending:
        rng = _Outcomes([told for _, told, _ in pending], seed, kernel.replicas)
        sources = torch.tensor([source for source, _, _ in pending])
        tokens = states[tuples[sources]].flatten(0, 1)
        chains = replace(
            fresh_state(tokens),
            chain=torch.arange(len(tokens)),
            beta=torch.tensor(kernel.ladder, dtype=torch.float64).repeat(len(pending)),
            replica=torch.arange(kernel.replicas).repeat(len(pending)),
        )
        chains = kernel.init(chains, scorer)
        end = kernel.end(chains, rng) if swaps_only else whole_epoch(kernel, chains, scorer, rng)
        found = torch.tensor([index[tuple(row)] for row in end.tokens.tolist()])
        targets = (found.view(-1, kernel.replicas) * place).sum(1).tolist()
        for number, (source, _, chance) in enumerate(pending):
            if number not in rng.open:
                matrix[source, targets[number]] += chance
        pending = _split(pending, rng)
    return matrix


def step_matrix(
    kernel: Kernel,
    scorer: Scorer,
    states: Int[Tensor, "states length"] | Chains,
    number: int = 0,
    seed: int = 0,
) -> Float[Tensor, "states states"]:
    """Return P(x → x') of step `number` of an epoch, by enumerating every random choice.

    `states` are tokens, all free and of one length, or chains as they are. `seed` is that of what
    is drawn without looking at the tokens.
    """
    start = states if isinstance(states, Chains) else fresh_state(states)
    index = {state: row for row, state in enumerate(_contents(start))}
    matrix = torch.zeros((len(index), len(index)), dtype=torch.float64)
    for sources, chances, after, info in _every_outcome(kernel, scorer, start, number, seed):
        _check_info(after, info)
        targets = [index.get(state, -1) for state in _contents(after)]
        if min(targets) < 0:
            raise AssertionError(f"'{kernel}' moved to a sequence that is not allowed.")
        matrix.index_put_((sources, torch.tensor(targets)), chances, accumulate=True)
    return matrix


def _contents(chains: Chains) -> list[tuple[int, ...]]:
    """Return the tokens of each chain, without padding."""
    rows = zip(chains.tokens.tolist(), chains.lengths.tolist(), strict=True)
    return [tuple(tokens[:length]) for tokens, length in rows]


class _Outcomes(Rng):
    """Gives every row its own outcomes: those it was told, then the first that is possible.

    Rows are told apart by their chain, `together` of which share their outcomes. Whatever is drawn
    with `uniform` is the same for all, as it must not depend on the tokens.
    """

    def __init__(self, told: list[tuple[int, ...]], seed: int, together: int = 1) -> None:
        self.told = told
        self._together = together
        self.asked = [0] * len(told)
        # The probabilities of the first choice that a row was not told.
        self.open: dict[int, Tensor] = {}
        self._numbers = CounterRng(seed)

    def uniform(
        self,
        chain: Int[Tensor, " n"],
        step: Int[Tensor, " n"],
        purpose: Purpose,
        index: Int[Tensor, " n"] | None = None,
    ) -> Float[Tensor, " n"]:
        """Return numbers that are the same for all rows."""
        if purpose in (Purpose.ACCEPT, Purpose.SWAP):
            raise AssertionError("decide with `rng.accept`, not with a number of your own.")
        return self._numbers.uniform(torch.zeros_like(chain), step, purpose, index)

    def categorical(
        self,
        probabilities: Float[Tensor, "n outcomes"],
        chain: Int[Tensor, " n"],
        step: Int[Tensor, " n"],
        purpose: Purpose,
        index: Int[Tensor, " n"] | None = None,
    ) -> Int[Tensor, " n"]:
        """Return the outcomes that the rows were told."""
        chances = probabilities.double()
        possible = (chances > 0).int().argmax(1).tolist()
        chosen = [
            self._choose(row // self._together, chances, number, first)
            for number, (row, first) in enumerate(zip(chain.tolist(), possible, strict=True))
        ]
        return torch.tensor(chosen, dtype=torch.long)

    def accept(
        self,
        log_ratio: Float[Tensor, " n"],
        chain: Int[Tensor, " n"],
        step: Int[Tensor, " n"],
        stage: int | Int[Tensor, " n"] = 0,
        purpose: Purpose = Purpose.ACCEPT,
    ) -> tuple[Bool[Tensor, " n"], Float[Tensor, " n"]]:
        """Return the decisions that the rows were told."""
        accepted = log_ratio.double().clamp(max=0.0).exp().nan_to_num(0.0)
        chances = torch.stack([1 - accepted, accepted], dim=1)
        decided = self.categorical(chances, chain, step, purpose)
        return decided.bool(), torch.full_like(accepted, torch.nan)

    def _choose(self, row: int, chances: Tensor, place: int, first: int) -> int:
        """Return what a row was told, or the first that is possible; its chances are at `place`."""
        number, told = self.asked[row], self.told[row]
        self.asked[row] += 1
        if number < len(told):
            return told[number]
        if row not in self.open:
            self.open[row] = chances[place]
        return first


def _every_outcome(
    kernel: Kernel, scorer: Scorer, start: Chains, number: int, seed: int
) -> Iterator[tuple[Tensor, Tensor, Chains, StepInfo]]:
    """Yield steps with all their random choices made: sources, probabilities and results."""
    pending: list[tuple[int, tuple[int, ...], float]] = [
        (source, (), 1.0) for source in range(len(start.chain))
    ]
    while pending:
        rng = _Outcomes([told for _, told, _ in pending], seed)
        sources = torch.tensor([source for source, _, _ in pending])
        rows = torch.arange(len(pending))
        chains = replace(start.rows(sources), chain=rows)
        chains = kernel.begin(kernel.init(chains, scorer), rng)
        chains = replace(chains, step=chains.step + number, number=chains.number + number)
        after, info = kernel.step(chains, rows, scorer, rng)
        done = [row for row in range(len(pending)) if row not in rng.open]
        if done:
            index = torch.tensor(done)
            chances = torch.tensor([pending[row][2] for row in done], dtype=torch.float64)
            yield sources[index], chances, after.rows(index), info
        pending = _split(pending, rng)


def _split(pending: list[_Pending], rng: _Outcomes) -> list[_Pending]:
    """Return what is left to run: a copy of each open row for each outcome of its next choice."""
    return [
        (pending[row][0], (*pending[row][1], outcome), pending[row][2] * share)
        for row, chances in rng.open.items()
        for outcome, share in enumerate(chances.tolist())
        if share > 0
    ]


def _check_info(after: Chains, info: StepInfo) -> None:
    proposal = info.proposal
    _expect(len(proposal.rows) == len(info.accepted), "a step reports other chains than it moved.")
    _expect(bool((after.number > 0).all()), "a step must count itself: see `maskov.kernels.base`.")


def _check_asynchronous(
    kernel: Kernel, scorer: Scorer, states: Tensor, number: int, seed: int, matrix: Tensor
) -> None:
    """Compare with the transition matrix of asynchronous chains at the same place."""
    assert isinstance(kernel, Metropolis)
    chains = kernel.begin(fresh_state(states[:1]), CounterRng(seed))
    masked = chains.rank[0] == number
    other = transition_matrix(kernel, scorer, states, masked, asynchronous=True)
    error = float((matrix - other).abs().max())
    _expect(error < TOLERANCE, f"asynchronous chains of '{kernel}' decide otherwise: {error:.2g}.")


def _check_terms(energy: Energy, scorer: Scorer, states: Chains, values: Tensor) -> None:
    try:
        terms = energy.terms(scorer.model, _sequences(energy, scorer, states))
    except InputError:
        return  # it has none
    _expect(_same(terms.sum(1), values), f"the terms of '{energy}' do not add up to it.")


def _check_cache(energy: Energy, scorer: Scorer, states: Chains) -> None:
    """Walk from every state and compare what the chains cache with what is computed afresh."""
    kernel, rng = Metropolis(energy, delayed=DelayedAcceptance(0)), CounterRng(0)
    chains = replace(states, chain=torch.arange(len(states.chain)))
    finite = _values(energy, scorer, states).isfinite()
    chains = kernel.init(chains.rows(finite.nonzero().flatten()), scorer)
    rows = torch.arange(len(chains.chain))
    for _ in range(2):
        chains = replace(kernel.begin(chains, rng), number=torch.zeros_like(rows))
        for _ in range(states.tokens.shape[1]):
            chains, _ = kernel.step(chains, rows, scorer, rng)
            fresh = _values(energy, scorer, chains)
            cached = chains.energy
            right = cached is not None and _same(cached, fresh)
            _expect(right, f"the cache of '{energy}' is wrong after a move.")


def _check_stages(
    energy: Energy, delayed: DelayedAcceptance, scorer: Scorer, states: Chains, values: Tensor
) -> None:
    """Compare the stages of every single-site move with those of its reverse."""
    kernel = Metropolis(energy, Site(), delayed=delayed)
    plan, tokens = TestPlan(energy, delayed), states.tokens
    finite = values.isfinite()
    index = {tuple(state): row for row, state in enumerate(tokens.tolist())}
    falls: dict[tuple[int, int], list[float]] = {}
    for place in range(tokens.shape[1]):
        for token in sorted(set(tokens[:, place].tolist())):
            proposed = tokens.clone()
            proposed[:, place] = token
            targets = torch.tensor([index[tuple(row)] for row in proposed.tolist()])
            moves = ((proposed != tokens).any(1) & finite & finite[targets]).nonzero().flatten()
            if not moves.numel():
                continue
            chains = kernel.init(states.rows(moves), scorer)
            comparison = Comparison(kernel, chains, _single(chains, place, token), scorer)
            every = torch.arange(len(moves))
            stages = [comparison.fall(number, every) for number in range(len(plan.stages))]
            for row, source in enumerate(moves.tolist()):
                pair = (source, int(targets[source]))
                falls[pair] = [float(stage[row]) for stage in stages]
    for (source, target), stages_of in falls.items():
        back = falls[(target, source)]
        off = max(abs(one + other) for one, other in zip(stages_of, back, strict=True))
        _expect(off < 1e-9, f"a stage of '{energy}' does not change its sign with the move.")
        whole = float(values[source] - values[target])
        _expect(abs(stages_of[-1] - whole) < 1e-9, f"the last stage of '{energy}' is not exact.")


def _single(chains: Chains, place: int, token: int) -> Proposal:
    """Return the proposal of one token at one place; its probabilities do not matter here."""
    rows = torch.arange(len(chains.chain))
    tokens = chains.tokens.clone()
    tokens[:, place] = token
    changed = tokens != chains.tokens
    zero = torch.zeros(len(rows), dtype=torch.float64)
    return Proposal(
        rows=rows, masked=changed, tokens=tokens, lengths=chains.lengths, changed=changed,
        known=changed, confidence=chains.confidence, log_q_forward=zero, log_q_reverse=zero,
        passes=torch.zeros_like(rows),
    )  # fmt: skip


@dataclass(frozen=True)
class _RandomTarget(Energy):
    """An energy with a random value for every sequence of a model."""

    model: MaskedModel
    length: int

    cost = 0.0

    def __call__(self, model: MaskedModel, sequences: Sequences) -> Float[Tensor, " n"]:
        """Look the values up."""
        size = int(sequences.tokens.max()) + 1
        base = max(self.model.vocabulary_size, size)
        place = base ** torch.arange(sequences.tokens.shape[1])
        code = (sequences.tokens * place).sum(1)
        uniform = CounterRng(0).uniform(code, torch.zeros_like(code), Purpose.LENGTH)
        return 3 * uniform

    def __str__(self) -> str:
        return "random"


def _sequences(energy: Energy, scorer: Scorer, states: Chains) -> Sequences:
    sequences = replace(states.sequences, sites=None)
    if not energy.needs_sites:
        return sequences
    sites = scorer.sites(sequences, energy.needs_normaliser, groups=energy.groups)
    return replace(sequences, sites=sites)


def _values(energy: Energy, scorer: Scorer, states: Chains) -> Float[Tensor, " states"]:
    values = energy(scorer.model, _sequences(energy, scorer, states))
    _expect(values.dtype == torch.float64, f"'{energy}' must return float64 numbers.")
    _expect(values.shape == states.chain.shape, f"'{energy}' must return one number a sequence.")
    _expect(not bool(values.isnan().any()), f"'{energy}' is not a number for some sequence.")
    return values


def _same(one: Tensor, other: Tensor) -> bool:
    return bool(torch.allclose(one, other, rtol=1e-10, atol=1e-10))


def _expect(holds: object, message: str) -> None:
    if not bool(holds):
        raise AssertionError(message)
