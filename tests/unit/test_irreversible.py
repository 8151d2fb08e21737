"""Steps whose way back a truncated proposal rules out are counted, one by one."""

import numpy as np
import pytest

import maskov
from maskov import MaskedConditional, Metropolis, Norm, Schedule, Sweep
from maskov.models.scorer import Scorer
from maskov.moves import Site
from maskov.random import CounterRng
from small import epoch, random_state, tiny_bert

MODEL = tiny_bert("red green blue white black")
CUT = MaskedConditional(top_p=0.7)


def test_a_step_is_irreversible_where_the_current_token_is_outside_the_nucleus():
    kernel, draws, engine = Metropolis(Norm(), Site(CUT)), CounterRng(3), Scorer(MODEL)
    seen = 0
    state = kernel.init(random_state(MODEL, 12, 5), engine)
    for before, _, info in epoch(kernel, state, engine, draws):
        for row in range(12):
            place = int(info.proposal.masked[row].nonzero())
            logits = MODEL.logits(before.pass_cache.hidden[row, place][None])
            log_q = CUT.log_probabilities(logits, MODEL.forbidden)[0]
            stuck = bool(log_q[before.tokens[row, place]] == -np.inf)
            assert stuck == bool(info.proposal.log_q_reverse[row] == -np.inf)
            assert not (stuck and info.accepted[row])
            seen += stuck
    assert seen > 10


@pytest.mark.parametrize("block", [1, 2])
def test_traces_count_them_and_an_epsilon_leaves_none(block):
    settings = {"schedule": Schedule(epochs=4), "chains": 10, "length": 6, "seed": 1}
    counts = {}
    for epsilon in (0.0, 0.1):
        proposal = MaskedConditional(top_p=0.6, epsilon=epsilon)
        kernel = Metropolis(Norm(), Site(proposal, Sweep(block=block)))
        traces = maskov.sample(MODEL, kernel, **settings).traces
        counts[epsilon] = int(traces["irreversible"].sum())
        assert (traces["irreversible"] <= traces["steps"] - traces["accepted"]).all()
    assert counts[0.0] > 0
    assert counts[0.1] == 0
