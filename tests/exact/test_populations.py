"""Populations: Z without bias, the right law, calibrated errors, and wrong versions caught."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace

import numpy as np
import pytest
import torch

from maskov import Metropolis, Mixture, Norm, Raw, Site, Span, parse_energy
from maskov.constraints import AllowedTokens, AvoidWords, ContainsWords, MaxChanges
from maskov.diagnostics.populations import PopulationSummary, by_length
from maskov.energies.base import Evaluation
from maskov.energies.ordered import Ordered
from maskov.errors import InputError
from maskov.exact import all_states, distribution
from maskov.kernels.base import epoch, whole_epoch
from maskov.kernels.population import Population, backward, systematic
from maskov.models.scorer import Scorer
from maskov.moves import MaskedConditional
from maskov.random import CounterRng, Purpose
from maskov.starts import Layout, draw_lengths
from maskov.testing import random_table
from maskov.tuning import find_path, stretched
from maskov.types import Chains, Sequences

TABLE = random_table(3, size=3, scale=1.0)
STATES = all_states(TABLE, 3)
SCORER = Scorer(TABLE)
PARTICLES, POPULATIONS = 6, 8000
PATH = (0.3, 0.6, 1.0)
# A test of one true statement fails once in 16,000.
MOST_Z = 4.0


@dataclass(frozen=True)
class Recording(CounterRng):
    """Keeps the key of every number that was drawn."""

    keys: list = field(default_factory=list)

    def uniform(self, chain, step, purpose, index=None):
        places = torch.zeros_like(chain) if index is None else index
        rows = zip(chain.tolist(), step.tolist(), places.tolist(), strict=True)
        self.keys.extend((int(purpose), *row) for row in rows)
        return super().uniform(chain, step, purpose, index)


def _blank(first, count):
    chains = Chains.at(torch.full((count, 3), TABLE.mask_id))
    return replace(chains, chain=torch.arange(count) + first)


def _run(kernel, count=POPULATIONS, seed=0, chains=None, scorer=SCORER):
    """Return a summary of many populations, and their last chains."""
    rng, weights = CounterRng(seed), []
    if chains is None:
        chains = kernel.first(_blank(0, count * kernel.particles), scorer, rng)
    for point in range(len(kernel.path)):
        now = kernel.at(point, None, None)
        chains = whole_epoch(now, now.init(chains, scorer), scorer, rng)
        chains = getattr(now, "weighed_late", lambda moved: moved)(chains)
        weights.append(chains.log_weight)
    parts = torch.stack(weights), chains.ancestor, chains.energy
    log_weight, ancestor, energy = (
        one.unflatten(-1, (-1, kernel.particles)).numpy() for one in parts
    )
    return PopulationSummary(log_weight, ancestor, energy), chains


def _log_z(energy, temperature=1.0):
    given = Sequences(STATES, torch.full((len(STATES),), 3))
    given = replace(given, pass_cache=SCORER.cache(given))
    return float((-energy(TABLE, given) / temperature).logsumexp(0))


def _z(summary, log_z):
    return _z_of(summary.log_z_each, log_z)


def _z_of(each, log_z):
    """Return by how many standard errors the mean estimate of Z is too high."""
    ratio = np.exp(each - log_z)
    return (ratio.mean() - 1) / (ratio.std(ddof=1) / math.sqrt(len(ratio)))


def _law_z(summary, last, energy, temperature, log_z):
    """Return the largest z of the weighted share of any state."""
    tokens = last.tokens.view(*summary.ancestor.shape, 3)
    number = (tokens[:, :, None] == STATES).all(3).int().argmax(2)
    shares = torch.nn.functional.one_hot(number, len(STATES)).double().mean(1)
    weighted = shares * torch.from_numpy(np.exp(summary.log_z_each - log_z))[:, None]
    expected = distribution(TABLE, energy, STATES, temperature)
    often = expected > 0.02
    error = weighted.std(0) / math.sqrt(len(weighted))
    return float(((weighted.mean(0) - expected) / error)[often].abs().max())


TARGETS = {
    "norm, by sites and spans": (Norm(), 1.0, Ordered()),
    "raw, cooled": (Raw(), 0.7, Ordered(temperature=0.8)),
    "a product": (0.7 * Ordered() + 0.4 * Norm(), 1.0, Ordered()),
    "a mixture of orders": (Norm() + 0.2 * Raw(), 1.3, Ordered(orders=2)),
    "by a rule": (Norm(), 1.0, Ordered(rule="confident")),
    "an expert": (parse_energy("norm+2*contains(a)"), 1.0, Ordered(groups=2)),
}


@pytest.mark.parametrize("name", TARGETS)
def test_z_is_unbiased_and_the_weighted_law_is_the_target(name):
    energy, temperature, start = TARGETS[name]
    moves = Metropolis(energy, Site(), temperature)
    if "spans" in name:
        moves = Mixture((moves, Metropolis(energy, Span(sizes=(2,)), temperature)), (1.0, 1.0))
    # Every second population moves longer by default, which costs three times as much.
    kernel = Population(moves, start, PARTICLES, PATH, 2, 5 if "spans" in name else 1)
    summary, last = _run(kernel, 3000 if "spans" in name else POPULATIONS)
    truth = _log_z(energy, temperature)
    assert abs(_z(summary, truth)) < MOST_Z
    assert _law_z(summary, last, energy, temperature, truth) < MOST_Z + 1


@pytest.mark.parametrize(
    ("constraint", "rule"),
    [
        (ContainsWords(("a",)), None),
        (AvoidWords(("b",)), "confident"),
        (MaxChanges(1), None),
        (AllowedTokens.parse("2:a"), "confident"),
    ],
    ids=str,
)
def test_under_constraints_z_is_that_of_the_sequences_that_meet_them(constraint, rule):
    move = Span(MaskedConditional(constraints=(constraint,)), sizes=(1, 2))
    # A part of the target that is drawn from without constraints is another one than the start.
    energy = Norm() if rule is None else 0.5 * Ordered(rule=rule) + 0.4 * Norm()
    kernel = Population(Metropolis(energy, move, 0.8), Ordered(rule=rule), PARTICLES, PATH, 2, 1)
    reference = torch.zeros((4000 * PARTICLES, 3), dtype=torch.long)
    chains = replace(_blank(0, len(reference)), reference=reference)
    states = replace(Chains.at(STATES), reference=reference[: len(STATES)])
    meets = move.conditional.possible(states.sequences, TABLE)
    assert 0 < int(meets.sum()) < len(STATES)
    # The start adds up to 1 over them.
    inside = states.rows(meets.nonzero().flatten()).sequences
    assert abs(float((-kernel.start(TABLE, inside)).exp().sum()) - 1) < 1e-12
    summary, last = _run(kernel, chains=kernel.first(chains, SCORER, CounterRng(1)))
    inside = replace(inside, pass_cache=SCORER.cache(inside))
    truth = float((-energy(TABLE, inside) / 0.8).logsumexp(0))
    assert abs(_z(summary, truth)) < MOST_Z
    assert move.conditional.possible(last.sequences, TABLE).all()


def test_z_of_every_length_is_unbiased_where_particles_have_several():
    # Lengths are drawn evenly and kept; the target is exp(−E) over all of them.
    model = random_table((2, 3), size=3)
    layout = Layout.blank(model, [draw_lengths(model, 2, 3, 4000 * PARTICLES, 0)])
    chains = layout.chains(model, range(len(layout.starts)), 3)
    kernel = Population(Metropolis(Raw(), Site(), 0.7), Ordered(), PARTICLES, PATH, 2, 1)
    scorer = Scorer(model)
    chains = kernel.first(chains, scorer, CounterRng(1))
    summary, last = _run(kernel, chains=chains, scorer=scorer)
    lengths, truths = last.lengths.view(-1, PARTICLES), []
    for length in (2, 3):
        states = all_states(model, length)
        given = Sequences(states, torch.full((len(states),), length))
        given = replace(given, pass_cache=scorer.cache(given))
        truths.append(float((-Raw()(model, given) / 0.7).logsumexp(0)))
        share = (lengths == length).double().mean(1).numpy()
        # Half of the particles begin at each length.
        each = 2 * share * np.exp(summary.log_z_each - truths[-1])
        assert abs((each.mean() - 1) / (each.std(ddof=1) / math.sqrt(len(each)))) < MOST_Z
    assert abs(_z(summary, np.logaddexp(*truths) - math.log(2))) < MOST_Z
    found = by_length(summary, lengths.flatten().numpy(), 2)
    for one, truth in zip(found, truths, strict=True):
        assert abs(one.log_z - truth) < MOST_Z * one.error < 0.2


def test_the_target_that_is_the_start_has_log_z_of_exactly_zero():
    kernel = Population(Metropolis(Ordered(), Site()), Ordered(), PARTICLES, PATH, 2)
    summary, _ = _run(kernel, 5)
    assert np.allclose(summary.log_z_each, 0, atol=1e-12)


@dataclass(frozen=True)
class _Enumerated(Ordered):
    """E_raw at T = 0.7: not normalised, but with exact draws, of all states at once."""

    heat: float = 0.7

    def evaluate(self, scorer, sequences, known=None, changed=None):
        given = replace(sequences, pass_cache=scorer.cache(sequences))
        value = Raw()(TABLE, given) / 0.7
        cells = torch.zeros_like(sequences.tokens).double()
        return Evaluation(value, cells, torch.zeros_like(sequences.lengths))

    def draw(self, scorer, sequences, chain, step, rng):
        law = distribution(TABLE, Raw(), STATES, self.heat)
        index = rng.categorical(law.expand(len(chain), -1), chain, step, Purpose.TOKEN)
        return STATES[index], None, torch.zeros_like(chain)

    def __str__(self):
        return f"enumerated({self.heat})"


def _back(heat=0.7, population=Population):
    target = Metropolis(_Enumerated(heat=heat), Site())
    kernel = population(target, Ordered(), PARTICLES, PATH, 2, 1)
    return backward(kernel)


def test_populations_that_go_back_from_exact_draws_estimate_one_over_z():
    kernel, truth = _back(), _log_z(Raw(), 0.7)
    assert kernel.path == pytest.approx((0.4, 0.7, 1.0))
    summary, last = _run(kernel)
    assert abs(_z(summary, -truth)) < MOST_Z
    assert _law_z(summary, last, Ordered(), 1.0, -truth) < MOST_Z + 1
    # An upper bound, as an estimate that is unbiased for Z is a lower one.
    assert -summary.log_z_each.mean() > truth + 3 * summary.log_z_each.std() / math.sqrt(
        POPULATIONS
    )


def test_only_exact_draws_lead_back():
    with pytest.raises(InputError, match="ordered"):
        backward(Population(Metropolis(Norm()), Ordered(), PARTICLES, PATH))


def test_errors_are_calibrated():
    # Eight populations at a time: the truth lies within two errors as often as Student's t says.
    kernel = Population(Metropolis(Norm(), Site(), 0.8), Ordered(), 12, PATH, 2, 1)
    summary, _ = _run(kernel, 1600)
    truth, inside = _log_z(Norm(), 0.8), 0
    for part in range(200):
        rows = slice(8 * part, 8 * part + 8)
        one = PopulationSummary(
            summary.log_weight[:, rows], summary.ancestor[rows], summary.energy[rows]
        )
        inside += abs(one.log_z.value - truth) < 2.36 * one.log_z.error
    assert inside >= 178  # 190 are expected; fewer than 178 happen once in 4,000


def test_false_alarms_are_rare_and_a_gain_is_found():
    # Populations with known estimates of log Z, four at a time.
    noise = 0.15 * np.random.default_rng(0).standard_normal((800, 4))
    ancestor, energy = np.tile(np.arange(8), (4, 1)), np.zeros((4, 8))

    def problems(each, first=0):
        weight = np.repeat(each[None, :, None], 8, axis=2)
        return PopulationSummary(weight, ancestor, energy, first).problems

    assert sum(bool(problems(each)) for each in noise) < 0.03 * len(noise)
    gain = np.array([0.0, 0.6, 0.0, 0.6])
    found = [problems(each + gain)[:1] for each in noise]
    assert sum("moved longer" in " ".join(one) for one in found) > 0.7 * len(noise)
    # Which are the longer ones follows from the number of the first.
    assert "moved longer" not in " ".join(problems(3 * gain, first=1))


@pytest.mark.parametrize("move", [Site(), Span(sizes=(2,))], ids=str)
def test_every_move_changes_something_however_many_there_are(move):
    # More moves than a sequence has places.
    kernel = Population(Metropolis(Norm(), move), Ordered(), 2, (1.0,), 9, 1)
    chains = kernel.init(kernel.first(_blank(0, 200), SCORER, CounterRng(0)), SCORER)
    masked = []
    for _, info in epoch(kernel, chains, SCORER, CounterRng(0)):
        masked.append(bool(info.proposal.masked.any(1).all()))
    assert masked == [True] * 9


class _AfterTheMove(Population):
    """Weighs the particles by where their moves took them."""

    def weighed_late(self, chains):
        weight = self.log_weights(chains, self.share(self.epoch - 1), self.share(self.epoch))
        return replace(chains, log_weight=weight)


class _KeepsWeights(Population):
    """Counts the weights of the step before again, although particles were drawn by them."""

    def begin(self, chains, rng):
        after = super().begin(chains, rng)
        return replace(after, log_weight=after.log_weight + chains.log_weight)


@dataclass(frozen=True)
class _LooksAhead(Ordered):
    """Reveals the place of the smallest token first, which it cannot know yet."""

    def _rank(self, sequences, number):
        return sequences.tokens.sort(dim=1, stable=True).indices.argsort(1)


@pytest.mark.parametrize("wrong", [_AfterTheMove, _KeepsWeights])
def test_wrong_weights_are_caught(wrong):
    kernel = wrong(Metropolis(Raw(), Site(), 0.7), Ordered(), PARTICLES, PATH, 2, 1)
    assert abs(_z(_run(kernel)[0], _log_z(Raw(), 0.7))) > MOST_Z


@pytest.mark.parametrize(("heat", "kind"), [(0.8, Population), (0.7, _AfterTheMove)])
def test_wrong_ways_back_are_caught(heat, kind):
    # Draws that are not quite those of the target; weights after the move.
    assert abs(_z(_run(_back(heat, kind))[0], -_log_z(Raw(), 0.7))) > MOST_Z


def test_a_path_that_populations_choose_by_their_own_weights_is_caught():
    # Each takes of two first steps the one along which its estimate is the higher one.
    kernel = Population(Metropolis(Raw(), Site(), 0.7), Ordered(), PARTICLES, PATH, 2, 1)
    chains = kernel.first(_blank(0, POPULATIONS * PARTICLES), SCORER, CounterRng(0))
    known, excess = kernel.init(chains, SCORER), []
    for share in (0.3, 0.6):
        weight = kernel.log_weights(known, 0.0, share).view(-1, PARTICLES)
        excess.append(weight.logsumexp(1) - math.log(PARTICLES) - _log_z(kernel.bridge(share)))
    further = (excess[1] > excess[0]).repeat_interleave(PARTICLES)
    found = [
        _run(replace(kernel, path=(share, 1.0)), chains=known.rows(chosen.nonzero().flatten()))[0]
        for share, chosen in ((0.3, ~further), (0.6, further))
    ]
    each = np.concatenate([one.log_z_each for one in found])
    truth = _log_z(Raw(), 0.7)
    assert _z_of(each, truth) > MOST_Z


def test_an_order_that_looks_at_what_is_masked_is_caught():
    given = Sequences(STATES, torch.full((len(STATES),), 3))
    assert abs(float((-_LooksAhead()(TABLE, given)).exp().sum()) - 1) > 1e-3


def test_resampling_copies_each_particle_as_often_as_its_weight_says():
    weight = torch.tensor([0.5, 0.1, 0.25, 0.15], dtype=torch.float64)
    mean = torch.zeros(4, dtype=torch.float64)
    for part in range(1000):
        index = systematic(weight.log()[None], torch.tensor([(part + 0.5) / 1000]))[0]
        copies = torch.bincount(index, minlength=4)
        assert ((copies - 4 * weight).abs() < 1).all()
        mean += copies / 1000
    assert torch.allclose(mean, 4 * weight, atol=2e-3)


def test_a_pilot_finds_a_path_that_rises_to_one_and_can_be_stretched():
    kernel = Population(Metropolis(Raw(), Site(), 0.3), Ordered(), 32, (), 2)
    path = find_path(kernel, _blank(0, 32), SCORER, CounterRng(0), aim=0.9)[0]
    assert path[-1] == 1
    assert len(path) > 2
    assert path == tuple(sorted(set(path)))
    longer = stretched(path, 3 * len(path))
    assert longer[2::3] == pytest.approx(path)
    assert len(stretched(path, 2)) == 2


@pytest.mark.parametrize("move", [Site(), Span()], ids=["site", "span"])
def test_draws_and_moves_use_no_random_number_twice(move):
    rng = Recording(0)
    kernel = Population(Metropolis(Norm(), move), Ordered(), PARTICLES, PATH, moves=2)
    chains = kernel.first(_blank(0, PARTICLES), SCORER, rng)
    assert rng.keys
    for point in range(len(PATH)):
        now = kernel.at(point, None, None)
        chains = whole_epoch(now, now.init(chains, SCORER), SCORER, rng)
    assert len(set(rng.keys)) == len(rng.keys)


def test_particles_that_move_less_than_once_a_position_are_not_called_converged():
    # Populations that are as alike as can be: nothing else speaks against them.
    energy = np.tile(np.arange(8.0), (4, 1))
    ancestor = np.tile(np.arange(8), (4, 1))
    still, moved = (
        PopulationSummary(np.zeros((5, 4, 8)), ancestor, energy, moves=moves, positions=20)
        for moves in (19, 20)
    )
    assert not moved.problems
    assert len(still.problems) == 1
    assert "19 moves for 20 positions" in still.problems[0]
