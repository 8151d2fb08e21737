"""Prove custom parts on models small enough to enumerate.

    from maskov.testing import check_energy, check_kernel, check_move

    check_energy(MyEnergy())
    check_move(MyMove())
    check_kernel(Metropolis(Raw() + MyEnergy(), MyMove()))

Each runs the real code on every sequence with every outcome of every random choice, and raises
`AssertionError` with what is wrong. maskov's own parts are tested by the same functions.

A batch of chains holds sequences of two lengths where the model has them, with a frozen token in
some of them. The default model has a token that is forbidden. Steps are those of the first epoch
and of a later one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch

from maskov.energies import Energy, as_energy
from maskov.errors import InputError
from maskov.exact import (
    all_chains,
    all_sequences,
    balance_error,
    distribution,
    expect,
    invariance_error,
    joined,
    places,
    step_matrix,
    with_passes,
)
from maskov.execution.recorded import new_buffers, rounds_of
from maskov.execution.rounds import Rounds
from maskov.kernels import DelayedAcceptance, Kernel, Metropolis
from maskov.kernels.base import ended, epoch as run_epoch, whole_epoch
from maskov.kernels.metropolis import ProposalScores
from maskov.models import MaskedModel, Queries, TabularModel
from maskov.models.scorer import Scorer
from maskov.moves import Move, Site
from maskov.random import CounterRng, Purpose
from maskov.types import Chains, Float, Proposal, Sequences, Tensor

TOLERANCE = 1e-10
# Longer sequences than this are enumerated with a frozen token only.
_LONGEST_FREE = 4
_LATE = 1000
# Chains at each state whose epochs in rounds are compared with those in lock-step.
_COPIES = 4
_DELAYS = (DelayedAcceptance(0), DelayedAcceptance(1), DelayedAcceptance(2))


def random_table(
    length: int | tuple[int, int] = 3,
    size: int = 3,
    seed: int = 0,
    forbidden: Sequence[str] = (),
    scale: float = 1.5,
) -> TabularModel:
    """Return a model with random conditionals, which fit no joint distribution.

    It has one `length`, or all from the shortest to the longest, each with its own conditionals.
    """
    if isinstance(length, tuple):
        lengths = range(length[0], length[1] + 1)
        return _Tables(*(random_table(n, size, seed + n, forbidden, scale) for n in lengths))
    generator = torch.Generator().manual_seed(seed)
    scores = torch.randn(length, *(size,) * length, generator=generator, dtype=torch.float64)
    return TabularModel(scale * scores, "abcdefgh"[:size], forbidden=forbidden)


class _Tables(TabularModel):
    """A table for each of several lengths, from the shortest to the longest."""

    def __init__(self, *tables: TabularModel) -> None:
        vars(self).update(vars(tables[-1]))
        self.min_length, self._tables = tables[0].max_length, tables

    def hidden(self, queries: Queries) -> Float[Tensor, "masked hidden"]:
        """Ask the table of each length."""
        row = queries.masked.nonzero(as_tuple=True)[0]
        answers = torch.zeros((len(row), len(self.tokens)), dtype=torch.float64)
        for table in self._tables:
            length = table.max_length
            chosen = queries.lengths == length
            if chosen.any():
                tokens, masked = queries.tokens[chosen, :length], queries.masked[chosen, :length]
                part = Queries(tokens, queries.lengths[chosen], masked)
                answers[chosen[row]] = table.hidden(part)
        return answers


def check_energy(
    energy: object,
    model: MaskedModel | None = None,
    length: int | None = None,
    reference: Sequence[int] = (),
) -> None:
    """Prove an energy: an Energy, its name, or a function of texts.

    Its value depends on the sequence alone, not on its padding; its terms, if it has some, add up
    to it; what chains cache after any move equals what is computed afresh; every stage of delayed
    acceptance changes its sign when the move is reversed, and the last one is the whole difference.
    `reference` are the tokens of the start text with which it compares, if it does.
    """
    target = as_energy(energy)
    model, length = _sized(model, length)
    scorer = Scorer(model)
    states = _compared(joined(_every_chain(model, length, reference, freeze=False)), reference)
    given = states.sequences
    values = _values(target, scorer, given)
    expect(bool(values.isfinite().any()), f"'{target}' is finite for no sequence.")
    order = torch.randperm(len(values), generator=torch.Generator().manual_seed(0))
    again = _values(target, scorer, given.rows(order))
    padded = replace(given, tokens=given.tokens.where(given.inside, _first_allowed(model)))
    other = _values(target, scorer, padded)[order]
    rows = [given.rows(row[None]) for row in order]
    alone = torch.cat([_values(target, scorer, _cut(one, int(one.lengths))) for one in rows])
    for found, where in (
        (again, "in another order"),
        (other, "with other padding"),
        (alone, "alone, without other sequences and padding"),
    ):
        expect(_same(values[order], found), f"'{target}' has different values {where}.")
    _check_terms(target, scorer, states, values)
    _check_cache(target, scorer, states)
    for delayed in _DELAYS if target.needs_passes else _DELAYS[:1]:
        _check_stages(target, delayed, scorer, states, values)


def check_move(
    move: Move,
    model: MaskedModel | None = None,
    length: int | None = None,
    seeds: int = 2,
    lengths: tuple[int, int] | None = None,
    reference: Sequence[int] = (),
) -> None:
    """Prove a move: with it, Metropolis-Hastings leaves any target invariant.

    The targets are random numbers for every sequence, so that a wrong probability in either
    direction cannot cancel. What the move draws without looking at the tokens, such as its
    positions, is drawn for several `seeds`. The rest is as in `check_kernel`.
    """
    expect(
        not move.irreversible,
        f"'{move}' says that it is irreversible: no kernel can use it exactly.",
    )
    kernel = Metropolis(_RandomTarget(), move)
    check_kernel(kernel, model, length, seeds=seeds, lengths=lengths, reference=reference)


def check_kernel(
    kernel: Kernel,
    model: MaskedModel | None = None,
    length: int | None = None,
    reversible: bool = True,
    temperature: float | None = None,
    seeds: int = 1,
    lengths: tuple[int, int] | None = None,
    reference: Sequence[int] = (),
) -> None:
    """Prove that every step of a kernel leaves its target invariant: πP = π to 1e-10.

    With `reversible` each step must be in detailed balance, too, as those of Metropolis are. Where
    chains may go in rounds (`maskov.execution`), these must decide the same by the same random
    numbers. The target is that of the kernel's energy, at `temperature` or the kernel's own. The
    states are all sequences of `length` tokens and, where the model has them, of two tokens fewer.
    With `lengths` they are all sequences of these lengths, from the shortest to the longest, and
    may become each other. If the kernel has constraints, the states are those that meet them;
    `reference` are the tokens of the start text from which they count changes, and with which the
    energy compares.
    """
    if kernel.target is None or not kernel.leaves_invariant:
        raise AssertionError(f"'{kernel}' does not claim to leave a target invariant.")
    model, length = _sized(model, lengths[1] if lengths else length)
    parts = _every_chain(model, length, reference, lengths)
    parts = [constrained(part, kernel, model, reference) for part in parts]
    parts = [part for part in parts if len(part.chain)]
    expect(parts, f"no sequence meets the constraints of '{kernel}'.")
    energy, own = kernel.target.energy, kernel.target.temperature
    at = own if temperature is None else temperature
    # Chains of one part cannot become those of another.
    laws = [
        distribution(model, energy, part.tokens, at, part.lengths, part.reference, part.free)
        for part in parts
    ]
    start, target, scorer = joined(parts), torch.cat(laws), Scorer(model)
    for seed, when in ((0, 0), *((seed, _LATE + seed) for seed in range(seeds))):
        for number in range(int(kernel.at(when, None, None).steps(start).max())):
            matrix = step_matrix(kernel, scorer, start, number, seed, when)
            where = f"step {number} of '{kernel}'" + f" in epoch {when}" * bool(when)
            expect((matrix.sum(1) - 1).abs().max() < TOLERANCE, f"{where} loses probability.")
            if reversible:
                error = balance_error(matrix, target)
                expect(error < TOLERANCE, f"{where} breaks detailed balance by {error:.2g}.")
            error = invariance_error(matrix, target)
            expect(error < TOLERANCE, f"{where} does not leave its target invariant: {error:.2g}.")
        if (kind := rounds_of(kernel)) is not None:
            _check_rounds(kernel, kind, scorer, start, seed, when)


def _check_rounds(
    kernel: Kernel, kind: type[Rounds], scorer: Scorer, start: Chains, seed: int, when: int
) -> None:
    """Compare an epoch in rounds with one in lock-step, by the same random numbers."""
    states, rng = start.rows(torch.arange(len(start.chain)).repeat(_COPIES)), CounterRng(seed)
    steps = kernel.steps(states)
    chains = kernel.init(replace(states, chain=torch.arange(len(steps)), step=when * steps), scorer)
    buffers = new_buffers(kind, kernel, scorer.model, chains)
    rounds = kind(kernel, scorer, rng, buffers, [kernel])
    rounds.limit.fill_(1)
    while rounds.slowest() < 1:
        rounds.advance()
    after = whole_epoch(kernel, chains, scorer, rng)
    same = torch.equal(buffers.tokens, after.tokens) and torch.equal(buffers.lengths, after.lengths)
    expect(same, f"'{kernel}' decides differently in rounds.")


def _sized(model: MaskedModel | None, length: int | None) -> tuple[MaskedModel, int]:
    """Return the model and the length of its sequences; by default those of this module."""
    if model is not None:
        return model, length or min(3, model.max_length)
    length = length or 5
    return random_table((max(length - 2, 1), length), size=4, forbidden="d"), length


def _every_chain(
    model: MaskedModel,
    length: int,
    reference: Sequence[int] = (),
    lengths: tuple[int, int] | None = None,
    freeze: bool = True,
) -> list[Chains]:
    """Return chains at every sequence, in parts that differ in their lengths and frozen places."""
    allowed = _first_allowed(model)
    if lengths is not None:
        shortest, longest = lengths
        first = reference[0] if reference else allowed
        held = [all_sequences(model, max(shortest, 2), longest, first)] * (longest > 1)
        return [all_sequences(model, shortest, longest), *held]
    place = length // 2
    token = reference[place] if len(reference) > place else allowed
    short, shorter = length <= _LONGEST_FREE, max(length - 2, model.min_length)
    parts = [all_chains(model, length, length)] * short
    if not short or (freeze and length > 1):
        parts.append(all_chains(model, length, length, (place, token)))
    # A chain that started from a text has its length.
    return [*parts, *([all_chains(model, shorter, length)] * (shorter < length and not reference))]


def _first_allowed(model: MaskedModel) -> int:
    return int((~model.forbidden).nonzero()[0])


def constrained(
    chains: Chains, kernel: Kernel, model: MaskedModel, reference: Sequence[int] = ()
) -> Chains:
    """Return those chains that meet the constraints of a kernel."""
    chains = _compared(chains, reference)
    return chains.rows(kernel.conditional.possible(chains.sequences, model).nonzero().flatten())


def _compared(chains: Chains, reference: Sequence[int]) -> Chains:
    """Return chains that all started from one text."""
    return replace(chains, reference=torch.tensor([reference] * len(chains.chain)).long())


def _check_terms(energy: Energy, scorer: Scorer, states: Chains, values: Tensor) -> None:
    try:
        terms = energy.terms(scorer.model, with_passes(energy, scorer, states.sequences))
    except InputError:
        return  # it has none
    expect(_same(terms.sum(1), values), f"the terms of '{energy}' do not add up to it.")


def _check_cache(energy: Energy, scorer: Scorer, states: Chains) -> None:
    """Walk from every state and compare what the chains cache with what is computed afresh."""
    kernel, rng = Metropolis(energy, delayed=DelayedAcceptance(0)), CounterRng(0)
    chains = replace(states, chain=torch.arange(len(states.chain)))
    finite = _values(energy, scorer, states.sequences).isfinite()
    chains = kernel.init(chains.rows(finite.nonzero().flatten()), scorer)
    for _ in range(2):
        for after, _ in run_epoch(kernel, ended(chains), scorer, rng):
            chains = after
            assert chains.energy is not None
            same = _same(chains.energy, _values(energy, scorer, chains.sequences))
            expect(same, f"the cache of '{energy}' is wrong after a move.")


def _check_stages(
    energy: Energy, delayed: DelayedAcceptance, scorer: Scorer, states: Chains, values: Tensor
) -> None:
    """Compare the stages of every single-site move with those of its reverse."""
    kernel = Metropolis(energy, Site(), delayed=delayed)
    tokens, finite = states.tokens, values.isfinite()
    drops = torch.full((len(kernel.plan.stages), len(tokens), len(tokens)), torch.nan).double()
    for place in range(tokens.shape[1]):
        free = states.free[:, place]
        for token in sorted(set(tokens[free, place].tolist())):
            proposed = tokens.clone()
            proposed[free, place] = token
            targets = places(states, replace(states, tokens=proposed))
            moves = ((proposed != tokens).any(1) & finite & finite[targets]).nonzero().flatten()
            if moves.numel():
                chains = kernel.init(states.rows(moves), scorer)
                scores = ProposalScores(kernel, chains, _single(chains, place, token), scorer)
                for number, drop in enumerate(drops):
                    drop[moves, targets[moves]] = scores.energy_drop(
                        number, torch.arange(len(moves))
                    )
    off = (drops + drops.transpose(1, 2)).nan_to_num().abs().max()
    expect(off < 1e-9, f"a stage of '{energy}' does not change its sign with the move.")
    off = (drops[-1] - (values[:, None] - values)).nan_to_num().abs().max()
    expect(off < 1e-9, f"the last stage of '{energy}' is not exact.")


def _single(chains: Chains, place: int, token: int) -> Proposal:
    """Return the proposal of one token at one place; its probabilities do not matter here."""
    rows = torch.arange(len(chains.chain))
    tokens = chains.tokens.clone()
    tokens[:, place] = token
    zero = torch.zeros(len(rows), dtype=torch.float64)
    return Proposal(
        rows=rows, before=chains.tokens, tokens=tokens, lengths=chains.lengths,
        masked=tokens != chains.tokens, log_q_forward=zero, log_q_reverse=zero,
        passes=torch.zeros_like(rows),
    )  # fmt: skip


@dataclass(frozen=True)
class _RandomTarget(Energy):
    """An energy with a random value for every sequence."""

    cost = 0.0

    def __call__(self, model: MaskedModel, sequences: Sequences) -> Float[Tensor, " n"]:
        """Look the values up."""
        tokens = (sequences.tokens + 1).masked_fill(~sequences.inside, 0)
        place = (model.vocabulary_size + 2) ** torch.arange(tokens.shape[1])
        code = (tokens * place).sum(1)
        return 3 * CounterRng(0).uniform(code, torch.zeros_like(code), Purpose.LENGTH)

    def __str__(self) -> str:
        return "random"


def _cut(given: Sequences, width: int) -> Sequences:
    """Return sequences without their last columns."""
    free = None if given.free is None else given.free[:, :width]
    return replace(given, tokens=given.tokens[:, :width], free=free)


def _values(energy: Energy, scorer: Scorer, given: Sequences) -> Float[Tensor, " states"]:
    values = energy(scorer.model, with_passes(energy, scorer, given))
    expect(values.dtype == torch.float64, f"'{energy}' must return float64 numbers.")
    expect(values.shape == given.lengths.shape, f"'{energy}' must return one number per sequence.")
    expect(not bool(values.isnan().any()), f"'{energy}' is not a number for some sequence.")
    return values


def _same(one: Tensor, other: Tensor) -> bool:
    return bool(torch.allclose(one, other, rtol=1e-10, atol=1e-10))
