"""Parts and combinations of parts, proved by the functions that users have for their own."""

from dataclasses import dataclass, replace

import pytest
import torch

from maskov import (
    DelayedAcceptance,
    Gibbs,
    InputError,
    LowestConfidence,
    MaskedConditional,
    Metropolis,
    Mixture,
    Move,
    Norm,
    Raw,
    Site,
    Sweep,
)
from maskov.energies import Energy, TextEnergy
from maskov.energies.ordered import Ordered
from maskov.execution.recorded import rounds_of
from maskov.execution.site_rounds import SiteRounds
from maskov.execution.window_rounds import WindowRounds
from maskov.moves import Span
from maskov.random import Purpose
from maskov.testing import check_energy, check_kernel, check_move, random_table
from maskov.types import Proposal
from small import tiny_bert

TABLE = random_table()
TINY = tiny_bert()
MODELS = {"default": None, "table": TABLE, "bert": TINY}


@dataclass(frozen=True)
class Counts:
    """An energy of texts."""

    word: str = "a"
    price: float = 0.7

    def __call__(self, texts):
        return [self.price * text.split().count(self.word) for text in texts]


@dataclass(frozen=True)
class Twice(Energy):
    """An expensive energy with a cheap one as its early stage."""

    cost = 40.0

    def __call__(self, model, sequences):
        tokens = sequences.tokens.masked_fill(~sequences.inside, 0)
        return (tokens * torch.arange(1, 1 + tokens.shape[1])).sum(1).double().sin()

    def stages(self):
        return (TextEnergy(Counts("b")), self)


ENERGIES = {
    "raw": Raw(),
    "norm": Norm(),
    "sum": 0.3 * Raw() + 1.2 * Norm(),
    "text": TextEnergy(Counts()),
    "raw and text": Raw() + 2 * TextEnergy(Counts()),
    "norm and ordered": Norm() + 0.5 * Ordered(seed=1) + 0.2 * Ordered(temperature=0.7, seed=1),
    "norm, text, stages": Norm() + TextEnergy(Counts("c")) + 0.5 * Twice(),
}
MOVES = {
    "site": Site(),
    "truncated": Site(MaskedConditional(top_k=2, epsilon=0.1)),
    "block": Site(positions=Sweep("left-to-right", 2)),
    "blocks of 3": Site(positions=Sweep(block=3)),
    "pairs": Site(positions=Sweep("random", 2)),
    "spans of 2": Span(sizes=(2,)),
    "spans of 1 to 3": Span(sizes=(1, 2, 3), weights=(1.0, 2.0, 1.0)),
    "truncated spans": Span(MaskedConditional(0.7, top_k=2, epsilon=0.05), sizes=(2, 3)),
    "spans of all": Span(MaskedConditional(top_p=0.8), sizes=(9,)),
}


@pytest.mark.parametrize("model", ["default", "bert"])
@pytest.mark.parametrize("energy", ENERGIES)
def test_energies(energy, model):
    check_energy(ENERGIES[energy], MODELS[model])


@pytest.mark.parametrize("move", MOVES)
def test_moves(move):
    check_move(MOVES[move], seeds=3 if "span" in move else 1)


@pytest.mark.parametrize("delayed", [DelayedAcceptance(n) for n in (0, 1, (1, 2), 9)], ids=str)
@pytest.mark.parametrize("energy", ENERGIES)
def test_metropolis_in_both_ways_of_running(energy, delayed):
    target = ENERGIES[energy]
    if delayed.early and not target.needs_passes:
        pytest.skip("there are no masked passes to test early")
    kernel = Metropolis(target, target_temperature=0.7, delayed=delayed)
    assert (rounds_of(kernel) is SiteRounds) == (not target.others)
    check_kernel(kernel, TABLE)


SPANNED = [Raw(), Norm(), Norm() + TextEnergy(Counts()), Raw() + 0.5 * Ordered()]


@pytest.mark.parametrize(
    ("name", "energy", "nearest"),
    [("bert", Norm(), 1), *(("table", energy, near) for energy in SPANNED for near in (0, 1, 2))],
    ids=str,
)
def test_spans_with_every_stage(name, energy, nearest):
    kernel = Metropolis(
        energy, Span(MaskedConditional(0.8), (2, 3)), 0.7, DelayedAcceptance(nearest)
    )
    check_kernel(kernel, MODELS[name], seeds=2)


@pytest.mark.parametrize(
    "move",
    [
        Span(MaskedConditional(0.8, top_k=2, epsilon=0.1), sizes=(1, 2, 3)),
        Span(MaskedConditional(top_p=0.8), sizes=(3,)),
    ],
    ids=str,
)
def test_truncated_spans_in_both_ways_of_running(move):
    kernel = Metropolis(Raw(), move, 0.7, DelayedAcceptance(1))
    assert rounds_of(kernel) is WindowRounds
    check_kernel(kernel, seeds=2)


def test_spans_and_sites_together():
    parts = (Metropolis(Norm(), delayed=DelayedAcceptance(1)), Metropolis(Norm(), Span()))
    check_kernel(Mixture(parts, (1.0, 2.0)), TABLE)


@dataclass(frozen=True)
class ForgetsHalf(Site):
    """Reports the reverse probability of the first masked place only."""

    def propose(self, chains, rows, scorer, rng):
        right = super().propose(chains, rows, scorer, rng)
        return replace(right, log_q_reverse=right.log_q_reverse / 2)


@dataclass(frozen=True)
class Biased(Move):
    """Draws a token by uneven chances and says that they were even."""

    right: bool = False

    def propose(self, chains, rows, scorer, rng):
        tokens, turn = chains.tokens[rows], chains.epoch_step[rows] + 1
        place = (chains.free[rows].cumsum(1) == turn[:, None]).int().argmax(1)
        chances = torch.tensor([0.5, 0.3, 0.2], dtype=torch.float64).expand(len(rows), 3)
        new = rng.categorical(chances, chains.chain[rows], chains.step[rows], Purpose.TOKEN)
        every = torch.arange(len(rows))
        old, proposed = tokens[every, place], tokens.clone()
        proposed[every, place] = new
        log_q = chances[0].log() if self.right else torch.zeros(3, dtype=torch.float64)
        return Proposal(
            rows=rows, before=tokens, tokens=proposed, lengths=chains.lengths[rows],
            masked=proposed != tokens,
            log_q_forward=log_q[new], log_q_reverse=log_q[old], passes=torch.zeros_like(rows),
        )  # fmt: skip


def test_a_move_of_ones_own():
    check_move(Biased(right=True), TABLE)
    check_kernel(Metropolis(Raw() + TextEnergy(Counts()), Biased(right=True)), TABLE)


@pytest.mark.parametrize("move", [ForgetsHalf(), Biased()])
def test_wrong_probabilities_are_found(move):
    with pytest.raises(AssertionError, match="detailed balance"):
        check_move(move, TABLE)


@dataclass(frozen=True)
class WrongSomewhere(Site):
    """Reports half of the reverse log-probability, but only at some steps, places or chains."""

    where: str = ""

    def propose(self, chains, rows, scorer, rng):
        right = super().propose(chains, rows, scorer, rng)
        lengths, free = chains.lengths[rows], chains.free[rows]
        wrong = {
            "later steps": chains.step[rows] >= 9,
            "later epochs": torch.full_like(rows, self.positions.block > 1, dtype=torch.bool),
            "later places": right.changed[:, 4:].any(1),
            "padded chains": lengths < free.shape[1],
            "frozen chains": free.sum(1) < lengths,
        }[self.where]
        return replace(right, log_q_reverse=right.log_q_reverse / (1 + wrong))

    def at(self, epoch, block):
        later = self.where == "later epochs" and epoch > 0
        return replace(self, positions=Sweep("left-to-right", 1 + later))


@pytest.mark.parametrize("where", ["steps", "epochs", "places", "padded", "frozen"])
def test_moves_that_are_wrong_somewhere_are_found(where):
    where = f"{where} chains" if where in ("padded", "frozen") else f"later {where}"
    with pytest.raises(AssertionError, match="detailed balance"):
        check_move(WrongSomewhere(where=where))


@dataclass(frozen=True)
class AnyPlace(Sweep):
    """Visits the frozen places, too."""

    def rank(self, chain, step, free, rng):
        before = free.flip(1).int().cummax(1).values.flip(1).bool()
        return super().rank(chain, step, before, rng)


@dataclass(frozen=True)
class AnyToken(MaskedConditional):
    """Draws forbidden tokens, too."""

    def log_probabilities(self, logits, forbidden, allowed=None):
        return super().log_probabilities(logits, torch.zeros_like(forbidden), allowed)


@pytest.mark.parametrize(
    "move",
    [Site(positions=AnyPlace()), Site(AnyToken()), Span(AnyToken(), sizes=(2,))],
    ids=["frozen places", "forbidden tokens", "forbidden tokens of spans"],
)
def test_moves_to_sequences_that_are_not_allowed_are_found(move):
    with pytest.raises(AssertionError, match="not allowed"):
        check_move(move)


def test_mixtures_at_any_temperature():
    parts = tuple(Metropolis(Norm(), move, 0.6) for move in (Site(), Span(sizes=(2, 3))))
    check_kernel(Mixture(parts))
    check_kernel(Mixture((Mixture(parts), parts[0])), TABLE)
    with pytest.raises(AssertionError, match="detailed balance"):
        check_kernel(Mixture(parts), TABLE, temperature=0.7)
    colder = replace(parts[1], target_temperature=0.5)
    for kernel in (Mixture((parts[0], colder)), Mixture((parts[0], Gibbs()))):
        assert not kernel.leaves_invariant
        with pytest.raises(AssertionError, match="does not claim"):
            check_kernel(kernel, TABLE)


def test_a_move_that_looks_at_the_tokens_is_refused():
    with pytest.raises(AssertionError, match="irreversible"):
        check_move(Site(positions=LowestConfidence(3)), TABLE)


@dataclass(frozen=True)
class AcceptsTooMuch(Metropolis):
    def log_ratio(self, chains, proposal, fall):
        return super().log_ratio(chains, proposal, fall) + 0.1


@dataclass(frozen=True)
class DoesNotCount(Metropolis):
    def step(self, chains, rows, scorer, rng):
        after, info = super().step(chains, rows, scorer, rng)
        return replace(after, epoch_step=chains.epoch_step), info


def test_wrong_kernels_are_found():
    with pytest.raises(AssertionError, match="detailed balance"):
        check_kernel(AcceptsTooMuch(Raw()), TABLE)
    with pytest.raises(AssertionError, match="count itself"):
        check_kernel(DoesNotCount(Raw()), TABLE)
    with pytest.raises(AssertionError, match="does not claim"):
        check_kernel(Gibbs(), TABLE)


@dataclass(frozen=True)
class LooksAtTheBatch(Energy):
    def __call__(self, model, sequences):
        return (sequences.tokens * sequences.inside).double().sum(1) + len(sequences.tokens)


@dataclass(frozen=True)
class CountsPadding(Energy):
    """Adds up all columns of a batch, or those that hold some token."""

    token: int | None = None

    def __call__(self, model, sequences):
        found = sequences.tokens if self.token is None else sequences.tokens == self.token
        return found.double().sum(1)


@dataclass(frozen=True)
class WrongTerms(Raw):
    def __call__(self, model, sequences):
        return super().__call__(model, sequences) + 1


@dataclass(frozen=True)
class OtherStages(Twice):
    def stages(self):
        return (TextEnergy(Counts("b")), TextEnergy(Counts("c")))


@pytest.mark.parametrize(
    ("energy", "reason"),
    [
        (LooksAtTheBatch(), "alone"),
        (WrongTerms(), "add up"),
        (Raw() + OtherStages(), "must be itself"),
        (CountsPadding(), "padding"),
        (CountsPadding(0), "padding"),
        (CountsPadding(4), "padding"),
        (lambda texts: [0.0], "one number for each text"),
    ],
)
def test_wrong_energies_are_found(energy, reason):
    with pytest.raises((AssertionError, InputError), match=reason):
        check_energy(energy)
