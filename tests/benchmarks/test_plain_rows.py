"""The plain rows are Algorithm 1, pass by pass, and go on where maskov's chains end."""

from __future__ import annotations

import itertools
from types import SimpleNamespace

import pytest

import maskov
from maskov.benchmarks.options import Options
from maskov.benchmarks.plain import measure_plain
from maskov.benchmarks.variants import reference_variant
from maskov.energies import parse_energy
from small import random_state, tiny_bert

WORDS = "red green blue white black"
LENGTH = 5


@pytest.fixture(scope="module")
def model():
    return tiny_bert(WORDS, initializer_range=0.3)  # flat enough to move often


def starts(model, chains: int = 3) -> list[list[int]]:
    return random_state(model, chains, LENGTH).tokens.tolist()


def of_steps(monkeypatch, steps: int) -> float:
    """Give a time limit that ends after so many steps, by a clock that counts its readings."""
    readings = map(float, itertools.count())
    clock = SimpleNamespace(perf_counter=readings.__next__)
    monkeypatch.setattr("maskov.benchmarks.plain.time", clock)
    return steps + 0.5


@pytest.mark.parametrize("energy", ["raw", "norm"])
def test_both_rows_decide_alike_and_run_2t_plus_1_passes_a_step(model, monkeypatch, energy):
    seconds = of_steps(monkeypatch, 30)
    options = Options(energy=energy, seconds=seconds, seed=4)
    one, many = (measure_plain(model, options, starts(model), t) for t in (False, True))
    assert one["ids"] == many["ids"] != starts(model)
    for found in (one, many):
        assert found["steps"] == 30
        assert found["passes"] == 30 * (2 * LENGTH + 1)
        assert found["tokens"] == found["passes"] * (LENGTH + 2)
    # Moves and refusals both happened, so that equal decisions mean something.
    assert 0 < one["novel_seen"] == many["novel_seen"] < 30


def test_novel_moves_are_those_that_change_a_sequence(model, monkeypatch):
    found = [
        measure_plain(model, Options(seconds=of_steps(monkeypatch, n)), starts(model), True)
        for n in range(1, 13)
    ]
    changed = [
        before != after
        for before, after in itertools.pairwise([starts(model), *(run["ids"] for run in found)])
    ]
    assert [run["novel_seen"] for run in found] == list(itertools.accumulate(changed))
    assert 0 < sum(changed) < 12


def test_batches_are_of_one_copy_or_of_all(model, monkeypatch):
    sizes: list[int] = []
    hook = model.network.register_forward_pre_hook(
        lambda _, args, kwargs: sizes.append(len(kwargs["input_ids"])), with_kwargs=True
    )
    options = Options(seconds=of_steps(monkeypatch, 1))
    measure_plain(model, options, starts(model), together=False)
    assert set(sizes) == {1}
    sizes.clear()
    measure_plain(model, options, starts(model), together=True)
    hook.remove()
    assert sizes[-3:] == [LENGTH, 1, LENGTH]


def test_at_least_one_step_is_made(model):
    found = measure_plain(model, Options(seconds=1e-9), starts(model), together=True)
    assert found["steps"] == 1


@pytest.mark.parametrize("energy", ["raw", "norm"])
def test_a_row_goes_on_as_the_reference_would(model, monkeypatch, energy):
    """One more epoch by plain code gives the sequences of a run that is one epoch longer."""
    chains, epochs = 8, 2

    def ids(count: int) -> list[list[int]]:
        kernel = reference_variant().build_kernel(parse_energy(energy))
        run = maskov.sample(
            model, kernel, maskov.Schedule(count), chains=chains, length=LENGTH, seed=9
        )
        return [found.ids for found in run.samples]

    seconds = of_steps(monkeypatch, chains * LENGTH)
    options = Options(energy=energy, epochs=epochs, burn_in=1, seconds=seconds, seed=9)
    found = measure_plain(model, options, ids(epochs), together=True)
    assert found["ids"] == ids(epochs + 1) != ids(epochs)
