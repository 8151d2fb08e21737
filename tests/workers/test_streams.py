"""Groups that take turns on one device: the same bytes as one after the other."""

from __future__ import annotations

import pytest

from maskov import Metropolis, Norm, Schedule, resume, sample
from maskov.errors import Interrupted, ModelError
from maskov.moves import Span
from maskov.workers.pools import Threads
from small import tiny_bert

MODEL = tiny_bert("red green blue white black")
KERNEL = Metropolis(Norm(), Span())
SETTINGS = {"chains": 9, "length": (3, 8), "resident": 2, "thin": 1, "seed": 3}


@pytest.fixture
def in_threads(monkeypatch):
    """Take turns on a CPU too, and say how many tasks were given."""
    given = []
    monkeypatch.setattr("maskov.workers.pools._shares_gpu", lambda *_: True)
    submit = Threads.submit
    monkeypatch.setattr(
        Threads, "submit", lambda self, task: (given.append(task.number), submit(self, task))
    )
    return given


def _content(folder):
    return (folder / "samples.jsonl").read_bytes()


def test_the_same_samples(tmp_path, in_threads, monkeypatch):
    sample(MODEL, KERNEL, Schedule(epochs=4), out=tmp_path / "turns", **SETTINGS)
    assert len(set(in_threads)) == 5
    monkeypatch.setattr("maskov.workers.pools._shares_gpu", lambda *_: False)
    sample(MODEL, KERNEL, Schedule(epochs=4), out=tmp_path / "alone", **SETTINGS)
    assert _content(tmp_path / "turns") == _content(tmp_path / "alone")


def test_a_run_that_is_stopped_goes_on(tmp_path, in_threads):
    sample(MODEL, KERNEL, Schedule(epochs=4), out=tmp_path / "whole", **SETTINGS)
    left = iter(range(10**9))
    with pytest.raises(Interrupted):
        sample(
            MODEL, KERNEL, Schedule(epochs=4), out=tmp_path / "cut", checkpoint_every=0,
            stop=lambda: next(left) > 150, **SETTINGS,
        )  # fmt: skip
    resume(tmp_path / "cut", MODEL)
    assert _content(tmp_path / "cut") == _content(tmp_path / "whole")


def test_a_model_that_breaks_down_is_told(in_threads):
    broken = tiny_bert("red green blue white black")
    broken.network.cls.predictions.bias.data.fill_(float("nan"))
    with pytest.raises(ModelError, match="NaN"):
        sample(broken, KERNEL, Schedule(epochs=2), **SETTINGS)
