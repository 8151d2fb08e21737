"""How fast tokens are forgotten: against theory, by brute force, and where nothing can be said."""

import numpy as np
import pytest
from made_up_runs import sticky

from maskov.diagnostics.chains import Group
from maskov.diagnostics.tokens import SHOWN_LAGS, memories, memory


# The standard deviations over 200 seeds, relative to theory, of the time over all positions, of
# that of one, and of the correlation at any of the first lags; five of them.
@pytest.mark.parametrize(
    ("keep", "overall", "one", "by_lag"),
    [(0.0, 0.02, 0.035, 0.007), (0.5, 0.04, 0.07, 0.01), (0.8, 0.06, 0.11, 0.014)],
)
def test_tokens_that_are_drawn_anew_now_and_then_have_a_known_time(keep, overall, one, by_lag):
    found = memory(sticky(keep, 500, 4, 3, 5))
    expected = (1 + keep) / (1 - keep)
    correlation, time, goes_on = found.overall()
    assert correlation[:5] == pytest.approx(keep ** np.arange(5), abs=5 * by_lag)
    assert time == pytest.approx(expected, rel=5 * overall)
    assert not goes_on
    for correlation, time, on in found.by_position():
        assert time == pytest.approx(expected, rel=5 * one)
        assert not on
        # A third of the positions: the deviation is √3 times that of all together.
        assert correlation[:5] == pytest.approx(keep ** np.arange(5), abs=5 * np.sqrt(3) * by_lag)
        assert len(correlation) == SHOWN_LAGS


def test_each_position_has_its_own_time():
    tokens = np.concatenate([sticky(0.0, 400, 4, 1, 5), sticky(0.9, 400, 4, 1, 5)], axis=2)
    fast, slow = (time for _, time, _ in memory(tokens).by_position())
    assert fast < 2 < 10 < slow


def test_agreement_is_counted_as_one_would_by_hand():
    tokens = sticky(0.6, 24, 3, 2, 3, seed=1)
    tokens[:, :, 1] *= 70_000  # ids may be large
    found = memory(tokens)
    for place in range(2):
        pooled = tokens[:, :, place].flatten().tolist()
        chance = sum(a == b for a in pooled for b in pooled) / len(pooled) ** 2
        assert found.variation[place] == pytest.approx(3 * (1 - chance))
        for lag in range(12):
            pairs = [
                tokens[t, chain, place] == tokens[t + lag, chain, place]
                for chain in range(3)
                for t in range(24 - lag)
            ]
            excess = 3 * (sum(pairs) / len(pairs) - chance)
            assert found.excess[lag, place] == pytest.approx(excess)


def test_chains_stuck_at_different_tokens_never_forget():
    tokens = np.broadcast_to(np.arange(4, dtype=np.int32)[:, None], (60, 4, 2))
    correlation, time, goes_on = memory(tokens).overall()
    assert correlation == pytest.approx([1.0] * 30)
    assert time == pytest.approx(-1 + 2 * 30)  # as long as was looked
    assert goes_on
    assert [on for _, _, on in memory(tokens).by_position()] == [True, True]


def test_what_never_varies_has_no_time_and_weighs_nothing():
    moving = sticky(0.5, 200, 4, 2, 5)
    frozen = np.full((200, 4, 1), 7, dtype=np.int32)
    found = memory(np.concatenate([frozen, moving], axis=2))
    assert found.by_position()[0] is None
    assert found.by_position()[1:] == memory(moving).by_position()
    assert found.overall() == memory(moving).overall()
    assert memory(frozen).overall() is None
    assert memory(frozen).by_position() == [None]


def test_groups_are_set_against_their_own_marginals():
    one, two = sticky(0.0, 300, 4, 2, 3), 10 + sticky(0.0, 300, 4, 2, 3, seed=1)
    tokens = np.concatenate([one, two], axis=1)
    apart = [Group(0, 4, np.arange(4)), Group(0, 5, np.arange(4, 8))]
    (found,) = memories(tokens, apart).values()
    assert found.overall()[1] == pytest.approx(1, abs=0.2)
    # Pooled blindly they agree in 1/6 instead of 1/3, and what is left looks like memory.
    (pooled,) = memories(tokens, [Group(0, 4, np.arange(8))]).values()
    assert pooled.overall()[0][10] == pytest.approx((1 / 3 - 1 / 6) / (1 - 1 / 6), abs=0.05)
    templates = [Group(0, 4, np.arange(4)), Group(1, 5, np.arange(4, 8))]
    assert memories(tokens, templates).keys() == {0, 1}
    assert memories(tokens[:7], apart) == {}
