"""Hard constraints: transition matrices over the sequences that meet them, and wrong versions."""

import itertools
from dataclasses import dataclass, replace

import pytest
import torch

from maskov import DelayedAcceptance, Metropolis, Mixture, Norm
from maskov.constraints import (
    AllowedTokens,
    AvoidWords,
    Constraint,
    ContainsWords,
    MaxChanges,
    MaxEdits,
    PartlyFilled,
)
from maskov.exact import all_states
from maskov.execution.recorded import rounds_of
from maskov.models.scorer import Scorer
from maskov.moves import MaskedConditional, Resize, Site, Span, Sweep
from maskov.testing import check_kernel, constrained, random_table, step_matrix
from maskov.types import Chains
from small import tiny_bert

TABLE = random_table(length=4, size=3)
LENGTHS = random_table((1, 3), size=2)
# Whole words and pieces: "red" is followed by "##s" or not.
PIECES = tiny_bert("red ##s blue")
TEXT = (0, 1, 2, 0)

CONSTRAINTS: dict[str, tuple[Constraint, ...]] = {
    "avoid a token": (AvoidWords(("b",)),),
    "avoid words": (AvoidWords(("a b", "b c a", "c c")),),
    "allowed": (AllowedTokens(((2, 3, "a c"), (3, 3, "b c"))),),
    "contains": (ContainsWords(("a",)),),
    "contains words": (ContainsWords(("a b", "c")),),
    "contains twice": (ContainsWords(("b", "b")),),
    "changes": (MaxChanges(2),),
    "edits": (MaxEdits(2),),
    "contains and avoids": (ContainsWords(("a", "b")), AvoidWords(("a b", "c"))),
    "contains and allowed": (ContainsWords(("a b",)), AllowedTokens(((2, 2, "b c"),))),
    "changes and contains": (MaxChanges(2), ContainsWords(("c b",))),
}
MOVES = {
    "site": Site(),
    "truncated site": Site(MaskedConditional(0.8, top_k=1, epsilon=0.2)),
    "no way back": Site(MaskedConditional(top_p=0.6)),
    "block": Site(positions=Sweep("left-to-right", 3)),
    "pairs": Site(positions=Sweep("random", 2)),
    "span": Span(sizes=(2, 3)),
    "truncated span": Span(MaskedConditional(0.7, top_k=2), sizes=(2,)),
    "everything": Span(sizes=(4,)),
}


def _with(move, constraints):
    conditional = replace(move.conditional, constraints=constraints)
    return replace(move, conditional=conditional)


def _kernel(move, name, energy=None, delayed=0):
    energy = Norm() if energy is None else energy
    constraints = CONSTRAINTS[name] if isinstance(name, str) else name
    return Metropolis(energy, _with(move, constraints), delayed=DelayedAcceptance(delayed))


# Every constraint with two moves and every move with three constraints.
PAIRS = [
    (move, name)
    for move in MOVES
    for name in CONSTRAINTS
    if move in ("block", "span") or name in ("avoid words", "edits", "changes and contains")
]


@pytest.mark.parametrize(("move", "name"), PAIRS)
def test_every_move_under_every_constraint(move, name):
    kernel = _kernel(MOVES[move], name)
    assert rounds_of(kernel) is None
    check_kernel(kernel, TABLE, length=4, reference=TEXT, seeds=1 + ("pan" in move))


RESIZED = {
    "avoid": (AvoidWords(("a a", "b b b")),),
    "contains": (ContainsWords(("a",)),),
    "contains words": (ContainsWords(("b a",)),),
    "edits": (MaxEdits(1),),
    "contains, avoids": (ContainsWords(("b",)), AvoidWords(("a b",))),
    "contains, edits": (ContainsWords(("b",)), MaxEdits(2)),
}


@pytest.mark.parametrize("name", RESIZED)
@pytest.mark.parametrize(
    "pairs", [((0, 1),), pytest.param(((1, 2), (1, 3)), marks=pytest.mark.slow)], ids=str
)
def test_changing_lengths(pairs, name):
    moves = (Site(), Span(sizes=(2,)), Resize(MaskedConditional(0.7), pairs))
    kernels = tuple(_kernel(move, RESIZED[name], delayed=1) for move in moves)
    kernel = Mixture(kernels, (1.0, 1.0, 2.0))
    check_kernel(kernel, LENGTHS, lengths=(1, 3), reference=(0, 1), seeds=2)
    check_kernel(kernels[2], LENGTHS, lengths=(1, 3), reference=(0, 1), seeds=2)


WORDS = {
    "red alone": (ContainsWords(("red",)),),
    "reds": (ContainsWords(("reds",)),),
    "no reds": (AvoidWords(("reds",)),),
    "both": (ContainsWords(("red", "reds")),),
    "blue but not first": (ContainsWords(("blue",)), AllowedTokens(((1, 1, "red"),))),
}


@pytest.mark.parametrize("name", WORDS)
def test_tiny_transformers(name):
    conditional = MaskedConditional(0.8, top_k=2, epsilon=0.1)
    for move in (Site(conditional), Span(conditional, (2, 3))):
        check_kernel(_kernel(move, WORDS[name], delayed=1), PIECES, length=3)
    if not any(isinstance(one, AllowedTokens) for one in WORDS[name]):
        move = Resize(conditional, ((0, 1), (1, 2)))
        check_kernel(_kernel(move, WORDS[name]), PIECES, lengths=(1, 3))


def _holds(state, word):
    return any(state[i : i + len(word)] == word for i in range(len(state)))


def _distance(state, text):
    row = list(range(len(text) + 1))
    for i, token in enumerate(state, 1):
        above, row = row, [i]
        for j, other in enumerate(text, 1):
            row.append(min(row[-1] + 1, above[j] + 1, above[j - 1] + (token != other)))
    return row[-1]


MEANT = {
    "avoid words": lambda s: not any(_holds(s, w) for w in ((0, 1), (1, 2, 0), (2, 2))),
    "allowed": lambda s: s[1] in (0, 2) and s[2] == 2,
    "contains words": lambda s: _holds(s, (0, 1)) and 2 in s,
    "contains twice": lambda s: s.count(1) >= 2,
    "changes": lambda s: sum(a != b for a, b in zip(s, TEXT, strict=True)) <= 2,
    "edits": lambda s: _distance(s, TEXT) <= 2,
}


@pytest.mark.parametrize("name", MEANT)
def test_the_sequences_that_meet_them(name):
    states = Chains.at(all_states(TABLE, 4))
    kept = constrained(states, _kernel(Site(), name), TABLE, TEXT).tokens.tolist()
    assert kept == [state for state in states.tokens.tolist() if MEANT[name](tuple(state))]


@pytest.mark.parametrize("name", [*CONSTRAINTS][:8])
def test_a_token_is_allowed_just_if_a_completion_is(name):
    """Each constraint alone never leads into a dead end, except that avoided words may."""
    (constraint,) = CONSTRAINTS[name]
    states = all_states(TABLE, 4)
    met = constrained(Chains.at(states), _kernel(Site(), name), TABLE, TEXT).tokens
    for window in itertools.product([False, True], repeat=4):
        for place in [i for i in range(4) if window[i]]:
            hidden = torch.tensor(window).expand(len(met), -1)
            at = torch.full((len(met),), place)
            reference = torch.tensor([TEXT]).expand(len(met), -1)
            lengths = torch.full((len(met),), 4)
            allowed = constraint.allowed(PartlyFilled(met, lengths, hidden, at, reference), TABLE)
            others = [i for i in range(4) if not window[i]]
            for row, state in enumerate(met):
                fits = met[(met[:, others] == state[others]).all(1)]
                possible = {int(token) for token in fits[:, place]}
                found = {int(token) for token in allowed[row].nonzero().flatten()}
                assert possible <= found
                if not isinstance(constraint, AvoidWords):
                    assert possible == found


def _irreducible(kernel, start, model, seeds=6):
    matrix = sum(step_matrix(kernel, Scorer(model), start, 0, seed) for seed in range(seeds))
    reach = (matrix > 0).double()
    for _ in range(8):
        reach = ((reach @ reach) > 0).double()
    return bool((reach > 0).all())


@pytest.mark.parametrize(
    "name", ["contains", "contains words", "contains twice", "changes", "edits"]
)
def test_spans_reach_everything(name):
    kernel = _kernel(Span(sizes=(2,)), name)
    start = constrained(Chains.at(all_states(TABLE, 4)), kernel, TABLE, TEXT)
    assert _irreducible(kernel, start, TABLE)


@dataclass(frozen=True)
class RestrictsLate(MaskedConditional):
    """Cuts to the best tokens first and then leaves out some, which loses their share."""

    def log_probabilities(self, logits, forbidden, allowed=None):
        log_q = super().log_probabilities(logits, forbidden)
        return log_q if allowed is None else log_q.masked_fill(~allowed, -torch.inf)


def test_a_restriction_after_the_cut_is_found_out():
    conditional = RestrictsLate(top_k=2, constraints=CONSTRAINTS["avoid words"])
    kernel = Metropolis(Norm(), Span(conditional, sizes=(2,)), delayed=DelayedAcceptance(0))
    with pytest.raises(AssertionError):
        check_kernel(kernel, TABLE, length=4)


@dataclass(frozen=True)
class LooksBehindTheWindow(ContainsWords):
    """Looks at tokens of the window that the move does not see."""

    def allowed(self, sequences, model):
        peeked = replace(sequences, unfilled=torch.zeros_like(sequences.unfilled))
        return super().allowed(peeked, model) & super().allowed(sequences, model)


def test_a_constraint_that_looks_into_the_window_is_found_out():
    kernel = _kernel(Span(sizes=(2, 3)), (LooksBehindTheWindow(("a b", "c")),))
    with pytest.raises(AssertionError, match="detailed balance"):
        check_kernel(kernel, TABLE, length=4, seeds=4)
