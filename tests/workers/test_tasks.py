"""What a run comes to does not depend on who took which turn, when, and how often."""

import pytest
import torch

from maskov import Gibbs, Metropolis, Norm, Schedule, Workers, resume, sample
from maskov.errors import InputError
from maskov.runs import state
from maskov.runs.coordinator import Coordinator
from odd_workers import files, oddly
from small import tiny_bert
from stopped_runs import Stopper, cut

MODEL = tiny_bert("red green blue white black", torch.float32)
SETTINGS = {
    "schedule": Schedule(epochs=5, burn_in=1),
    "chains": 7,
    "length": (3, 7),
    "seed": 2,
    "thin": 2,
    "resident": 3,
}


def test_a_run_begun_here_goes_on_there_and_back(tmp_path, monkeypatch):
    kernel = Metropolis(Norm())
    sample(MODEL, kernel, out=tmp_path / "whole", workers=Workers(threads=1), **SETTINGS)
    cut(tmp_path / "run", 61, MODEL, kernel, workers=Workers(threads=1), **SETTINGS)
    oddly(monkeypatch, count=2, seed=3, seconds=(0.0,))  # a turn is a single round
    receive, dies = Coordinator._receive, Stopper(11)

    class EnoughError(Exception):
        """The driver dies, with nothing said to anybody."""

    def received(self, taken):
        if dies():
            raise EnoughError
        return receive(self, taken)

    with monkeypatch.context() as patch:
        patch.setattr(Coordinator, "_receive", received)
        with pytest.raises(EnoughError):
            resume(tmp_path / "run", MODEL, workers=Workers(2), checkpoint_every=0)
    assert not resume(tmp_path / "run", MODEL).recovered
    assert files(tmp_path / "run") == files(tmp_path / "whole")


def test_groups_are_of_one_size_but_for_the_last():
    assert state.cut(8, 3) == [range(3), range(3, 6), range(6, 8)]
    assert state.cut(9, 4) == [range(3), range(3, 6), range(6, 9)]
    assert state.cut(5, 100) == [range(5)]
    for chains in range(1, 40):
        for most in range(1, 12):
            groups = state.cut(chains, most)
            assert [chain for group in groups for chain in group] == list(range(chains))
            assert max(map(len, groups)) <= most


def test_groups_depend_on_the_model_and_not_on_the_number_of_chains():
    few, many = (sample(MODEL, Gibbs(), Schedule(epochs=1), chains=c, length=5) for c in (2, 60))
    assert few.manifest.config.execution.resident == many.manifest.config.execution.resident


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"count": -1}, "--workers"),
        ({"count": 10**9}, "--workers"),
        ({"threads": 0}, "--threads"),
        ({"engine": "slurm"}, "unknown engine"),
        ({"address": "auto"}, "ray"),
        ({"gpus_per_worker": 1}, "ray"),
        ({"engine": "ray", "gpus_per_worker": -1}, "gpus_per_worker"),
        ({"engine": "ray", "gpus_per_worker": float("nan")}, "gpus_per_worker"),
    ],
)
def test_workers_that_cannot_be_are_refused(settings, said):
    with pytest.raises(InputError, match=said):
        Workers(**settings)


def test_threads_belong_to_a_run_from_its_beginning(tmp_path, monkeypatch):
    asked, before = [], torch.get_num_threads()
    monkeypatch.setattr(torch, "set_num_threads", asked.append)
    run = sample(MODEL, Gibbs(), out=tmp_path / "run", workers=Workers(threads=7), **SETTINGS)
    assert run.manifest.config.execution.threads == 7
    # Once for what is chosen before a run, and once for the run.
    assert asked == [7, before] * 2
    with pytest.raises(InputError, match="threads it began with"):
        resume(tmp_path / "run", MODEL, workers=Workers(threads=1))
