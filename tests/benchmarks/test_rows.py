"""Rows of `python -m benchmarks samplers`: what is timed, and what is counted in that time."""

import itertools
from argparse import Namespace
from types import SimpleNamespace

import pytest
from benchmarks.flops import sampling_flops

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


@pytest.mark.parametrize("energy", ["raw", "norm"])
def test_time_and_counts_of_maskov_are_those_after_burn_in(model, monkeypatch, energy):
    """By a clock that moves once an epoch, and by the traces of the same run made again."""
    clock = SimpleNamespace(perf_counter=map(float, itertools.count()).__next__)
    monkeypatch.setattr("benchmarks.tools.time", clock)
    monkeypatch.setattr("benchmarks.tools.RunTimer.moved", lambda *_, **__: None)
    given = options(energy=energy, chains=4, length="3:6", epochs=9, burn_in=3, seed=2)
    found = samplers.measure_sampling(model, given, samplers.REFERENCE)
    assert found["seconds"] == 9 - 3
    assert found["passes_by_engine"] == found["passes"]
    run, _ = samplers._time_run(model, given, samplers.REFERENCE, 9)
    kept = {name: values[3:].sum(0) for name, values in run.traces.items()}
    assert found["steps"] == kept["steps"].sum()
    assert found["passes"] == kept["passes"].sum()
    assert found["novel_seen"] == kept["novel"].sum() > 0
    assert found["ids"] == [sample.ids for sample in run.samples]
    lengths = [len(sample.ids) for sample in run.samples]
    assert len(set(lengths)) > 1
    passes, steps = kept["passes"].tolist(), kept["steps"].tolist()
    assert found["tokens"] == sum(n * (t + 2) for n, t in zip(passes, lengths, strict=True))
    assert found["flops"] == sampling_flops(model, lengths, passes, steps, energy)
    assert found["effective"] is None  # chains of different lengths have none in common
