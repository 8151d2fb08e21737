"""Rates by position, against counting every step of the same chains done again one by one."""

import numpy as np
import pytest
import torch

import maskov
from maskov import DelayedAcceptance, Gibbs, Metropolis, Raw, Schedule, Sweep
from maskov.models.scorer import Scorer
from maskov.moves import Site
from maskov.random import CounterRng
from maskov.starts import Layout, fill
from small import epoch, random_table, tiny_bert

MODEL = tiny_bert("red green blue white")
TEXTS = ["red green blue", "white white", "blue red green red white"]
TEMPLATES = ["red [MASK] blue [MASK]", "[MASK] white [MASK] [MASK] green"]
METROPOLIS = Metropolis(Raw(), delayed=DelayedAcceptance(0))
IN_ORDER = Metropolis(Raw(), Site(positions=Sweep("left-to-right")), delayed=DelayedAcceptance(0))


def counted(kernel, layout, seed: int, epochs: int, first: int) -> np.ndarray:
    """Return visits, acceptances and changes by chain and position, from epoch `first` on."""
    engine, draws = Scorer(MODEL), CounterRng(seed)
    state = layout.chains(MODEL, range(len(layout.tokens)), max(map(len, layout.tokens)))
    if (state.tokens == MODEL.mask_id)[state.inside].any():
        state = fill(state, "masked", kernel.conditional, engine, draws)
    state = kernel.init(state, engine)
    counts = torch.zeros((3, *state.tokens.shape), dtype=torch.long)
    for number in range(epochs):
        for before, after, info in epoch(kernel, state, engine, draws):
            rows, masked = info.proposal.rows, info.proposal.masked
            if number >= first:
                counts[0][rows] += masked
                counts[1][rows] += masked & info.accepted[:, None]
                counts[2] += before.tokens != after.tokens
            state = after
    return counts.numpy()


@pytest.mark.parametrize("kernel", [METROPOLIS, IN_ORDER, Gibbs()])
@pytest.mark.parametrize("burn_in", [0, 3])
def test_every_visit_is_counted_where_lengths_differ(kernel, burn_in):
    run = maskov.sample(
        MODEL, kernel, Schedule(epochs=8, burn_in=burn_in), texts=TEXTS, chains=5, seed=3
    )
    layout = Layout.of_texts(MODEL, TEXTS, 5)
    visits, accepted, novel = counted(kernel, layout, 3, 8, max(burn_in, 1)).sum(1)
    (found,) = run.diagnose().tokens.positions
    assert found.positions == [0, 1, 2, 3, 4]
    assert found.visits == visits.tolist()
    assert found.acceptance == pytest.approx(accepted / visits)
    assert found.novel == pytest.approx(novel / visits)
    if isinstance(kernel, Metropolis):
        assert 0 < novel.sum() < accepted.sum() < visits.sum()


def test_frozen_words_are_not_visited_and_templates_stay_apart():
    run = maskov.sample(
        MODEL, METROPOLIS, Schedule(epochs=10, burn_in=2), templates=TEMPLATES, chains=4, seed=1
    )
    counts = counted(METROPOLIS, Layout.of_templates(MODEL, TEMPLATES, 4), 1, 10, 2)
    found = run.diagnose().tokens.positions
    assert [one.positions for one in found] == [[1, 3], [0, 2, 3]]
    for one in found:
        chains = slice(4 * one.template, 4 * one.template + 4)
        visits, accepted, novel = counts[:, chains, one.positions].sum(1)
        assert one.visits == visits.tolist() == [4 * 8] * len(one.positions)
        assert one.acceptance == pytest.approx(accepted / visits)
        assert one.novel == pytest.approx(novel / visits)


def test_rates_add_up_to_those_of_the_whole_run():
    run = maskov.sample(MODEL, METROPOLIS, Schedule(epochs=9, burn_in=2), chains=7, length=(2, 6))
    (found,) = run.diagnose().tokens.positions
    summary, visits = run.summary(), np.array(found.visits)
    assert visits @ found.acceptance / visits.sum() == pytest.approx(summary.acceptance_rate)
    assert visits @ found.novel / visits.sum() == pytest.approx(summary.novel_rate)


@pytest.mark.parametrize(
    ("kernel", "schedule"),
    [
        (Metropolis(Raw(), Site(positions=Sweep(block=2))), Schedule(epochs=4)),
        (maskov.mask_predict(4), Schedule(epochs=4)),
        (Gibbs(), Schedule(epochs=4, block=maskov.LinearSchedule(3, rate=1, floor=1))),
    ],
)
def test_where_visits_are_not_known_no_rate_is_made_up(kernel, schedule):
    diagnosis = maskov.sample(MODEL, kernel, schedule, chains=3, length=4).diagnose()
    (found,) = diagnosis.tokens.positions
    assert set(found.positions) <= {0, 1, 2, 3}
    assert found.visits is found.acceptance is found.novel is None
    assert any("acceptance by position" in note for note in diagnosis.notes)


def test_a_shrinking_block_counts_once_it_is_one():
    schedule = Schedule(epochs=6, burn_in=2, block=maskov.LinearSchedule(3, rate=1, floor=1))
    found = maskov.sample(MODEL, Gibbs(), schedule, chains=3, length=4).diagnose()
    assert found.tokens.positions[0].visits == [3 * 4] * 4
    assert found.notes == []


def test_runs_too_large_to_trace_positions_say_so(monkeypatch):
    monkeypatch.setattr("maskov.runs.store._MOST_PLACES", 1)
    found = maskov.sample(MODEL, METROPOLIS, Schedule(epochs=3), chains=2, length=4).diagnose()
    assert found.tokens is None
    assert any("tokens were not traced" in note for note in found.notes)


def test_every_position_has_an_autocorrelation_of_its_own():
    run = maskov.sample(random_table(), Gibbs(), Schedule(epochs=60), chains=4, length=3)
    (found,) = run.diagnose().tokens.positions
    assert found.positions == [0, 1, 2]
    for lags, time in zip(found.autocorrelation, found.time, strict=True):
        assert lags[0] == pytest.approx(1.0)
        assert len(lags) == 20
        assert time is not None
    short = maskov.sample(random_table(), Gibbs(), Schedule(epochs=5), chains=4, length=3)
    assert short.diagnose().tokens.positions[0].autocorrelation is None
