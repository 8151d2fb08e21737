"""Swap rates and round trips, against counts by hand."""

import numpy as np
import pytest
from made_up_runs import manifest, traces

from maskov.diagnostics import diagnose
from maskov.diagnostics.diagnosis import round_trips


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ([0, 1, 2, 1, 0], 1),  # there and back
        ([0, 0, 2, 2, 0, 0], 1),
        ([0, 1, 0, 1, 0], 0),  # never at the last temperature
        ([2, 1, 0], 0),  # only half of it
        ([2, 0, 2, 0], 1),
        ([0, 2, 0, 2, 1, 2, 0, 1], 2),
        ([1, 1, 1], 0),
    ],
)
def test_round_trips_are_from_the_first_temperature_to_the_last_and_back(path, expected):
    """Replica 0 takes the path; the others never see both ends."""
    where = np.full((len(path), 1, 3), -1)
    for epoch, rung in enumerate(path):
        others = [2, 1]
        for place in range(3):
            where[epoch, 0, place] = 0 if place == rung else others.pop()
    counted = _by_hand(where)
    assert round_trips(where) == counted
    if path[0] != 2:
        assert _by_hand(where, replica=0) == expected


def _by_hand(where, replica=None) -> int:
    """Follow each state by itself."""
    count = 0
    for chain in range(where.shape[1]):
        for state in range(where.shape[2]) if replica is None else [replica]:
            ends = ""
            for epoch in range(len(where)):
                rung = where[epoch, chain].tolist().index(state)
                ends += {0: "c", where.shape[2] - 1: "h"}.get(rung, "")
            count += ends.lstrip("h").replace("hh", "h").count("hc")
    return count


def test_many_random_walks_are_counted_as_by_hand():
    random = np.random.default_rng(0)
    where = np.stack([[random.permutation(3) for _ in range(4)] for _ in range(60)])
    assert round_trips(where) == _by_hand(where) > 10


def test_rates_are_over_the_epochs_after_burn_in():
    epochs, chains = 6, 2
    random = np.random.default_rng(1)
    made = traces(random.normal(size=(epochs, chains)))
    tested = np.zeros((epochs, chains, 2), dtype=bool)
    tested[::2, :, 0] = tested[1::2, :, 1] = True
    accepted = tested.copy()
    accepted[4:, :, 1] = False
    accepted[2, 0, 0] = False
    made |= {
        "swap_tested": tested,
        "swap_accepted": accepted,
        "rung_replica": np.broadcast_to(np.arange(3), (epochs, chains, 3)),
        "rung_energy": random.normal(size=(epochs, chains, 3)),
    }
    described = manifest(epochs, chains, {"burn_in": 2}, replicas=3, ladder=(1.0, 0.7, 0.5))
    figures = diagnose(described, made).exchange
    assert figures.swap_rates == [3 / 4, 2 / 4]
    assert figures.round_trips == figures.round_trips_per_1000_epochs == 0
    assert [pair for pair, _ in figures.pairs()] == ["1 and 0.7", "0.7 and 0.5"]
    made["tokens"] = random.integers(9, size=(epochs, chains, 5), dtype=np.int32)
    made["rejected"] = random.random((epochs, chains, 5)) < 0.5
    positions = diagnose(described, made).tokens.positions
    assert [part.novel for part in positions] == [None]  # a swap changes tokens, too
    assert diagnose(manifest(epochs, chains), made).tokens.positions[0].novel
    made["swap_accepted"] = accepted & (np.arange(2) == 0)
    again = diagnose(described, made)
    assert any("between 0.7 and 0.5" in note for note in again.notes)
    assert diagnose(manifest(epochs, chains), made).exchange is None
