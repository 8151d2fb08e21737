"""Steps whose way back a truncated proposal rules out are counted, one by one."""

import pytest

import maskov
from maskov import MaskedConditional, Metropolis, Norm, Schedule, Sweep
from maskov.moves import Site
from small import tiny_bert

MODEL = tiny_bert("red green blue white black")


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
