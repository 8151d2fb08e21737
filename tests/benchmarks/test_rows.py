"""Rows of `python -m benchmarks samplers`: what is timed, and what is counted in that time."""

import itertools
from argparse import Namespace
from types import SimpleNamespace

import pytest

from benchmarks import samplers
from small import random_state, tiny_bert

WORDS = "red green blue white black"
LENGTH = 5


@pytest.fixture(scope="module")
def model():
    return tiny_bert(WORDS, initializer_range=0.3)  # flat enough to move often


def starts(model, chains: int = 3) -> list[list[int]]:
    return random_state(model, chains, LENGTH).tokens.tolist()


def options(**settings) -> Namespace:
    return Namespace(**{"energy": "raw", "epochs": 12, "seed": 4, "seconds": 1e-9} | settings)


def of_steps(monkeypatch, steps: int) -> float:
    """Give a time limit that ends after so many steps, by a clock that counts its readings."""
    clock = SimpleNamespace(perf_counter=map(float, itertools.count()).__next__)
    monkeypatch.setattr(samplers, "time", clock)
    return steps + 0.5


@pytest.mark.parametrize("energy", ["raw", "norm"])
def test_plain_rows_decide_alike_and_run_2t_plus_1_passes_a_step(model, monkeypatch, energy):
    sizes: list[int] = []
    hook = model.network.register_forward_pre_hook(
        lambda _, args, kwargs: sizes.append(len(kwargs["input_ids"])), with_kwargs=True
    )
    found = []
    for together in (False, True):
        sizes.clear()
        given = options(energy=energy, seconds=of_steps(monkeypatch, 30))
        found.append(samplers.measure_plain(model, given, starts(model), together))
        assert max(sizes) == (LENGTH if together else 1)
        warm_up = LENGTH if together else 1
        assert found[-1]["passes"] == sum(sizes) - warm_up == 30 * (2 * LENGTH + 1)
        assert found[-1]["tokens"] == found[-1]["passes"] * (LENGTH + 2)
        assert found[-1]["steps"] == 30
    hook.remove()
    one, many = found
    assert one["ids"] == many["ids"] != starts(model)
    # Moves and refusals both happened, so that equal decisions mean something.
    assert 0 < one["novel_seen"] == many["novel_seen"] < 30
