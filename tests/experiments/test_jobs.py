"""Cells in several processes: each is done once, and comes to what one process makes of it."""

from __future__ import annotations

import os
import signal
from dataclasses import replace

import pytest
from experiments.chains import TextChains
from experiments.work import do, done

from experiments import jobs

WORKS = [
    TextChains("raw", chains=5, epochs=3, burn_in=1, length=(4, 6), seed=seed) for seed in range(3)
]
NAMED = {work: str(work.seed) for work in WORKS}


def test_processes_share_cells_and_change_nothing(workshop, again, tmp_path):
    alone = [do(work, again(out=tmp_path / "alone")) for work in WORKS]
    jobs.share(NAMED, workshop, 2)
    for work, expected in zip(WORKS, alone, strict=True):
        found = done(work, workshop)
        assert found is not None
        for part in ("signature", "values", "epochs", "texts"):
            assert found[part] == expected[part]
    assert not (workshop.out / "claims").exists()


def test_a_cell_that_is_taken_is_left_to_its_process(workshop):
    with jobs._claimed(WORKS[0], workshop) as mine:
        assert mine
        with jobs._claimed(WORKS[0], workshop) as also, jobs._claimed(WORKS[1], workshop) as other:
            assert (also, other) == (False, True)
    with jobs._claimed(WORKS[0], workshop) as mine:
        assert mine


def test_a_process_passes_over_what_cannot_be_done_and_what_another_has(workshop, monkeypatch):
    impossible = replace(WORKS[0], length=(4, 10**6))
    taken = []
    monkeypatch.setattr(jobs, "do", lambda work, _: taken.append(work) or do(work, workshop))
    with jobs._claimed(WORKS[0], workshop), jobs._claimed(WORKS[1], workshop):
        jobs._work_through({impossible: "too long", **NAMED}, workshop)
    assert taken == [impossible, WORKS[2]]
    assert [done(work, workshop) is not None for work in WORKS] == [False, False, True]


def test_a_signal_ends_a_process_between_batches(workshop, monkeypatch):
    def interrupted(work, its):
        os.kill(os.getpid(), signal.SIGTERM)
        return do(work, its)

    monkeypatch.setattr(jobs, "do", interrupted)
    jobs._work_through(NAMED, workshop)
    assert not any(done(work, workshop) for work in WORKS)
    monkeypatch.undo()
    # The first one was begun and goes on.
    assert len(list((workshop.out / "runs").iterdir())) == 1
    jobs._work_through({WORKS[0]: "first"}, workshop)
    assert done(WORKS[0], workshop) is not None


@pytest.mark.parametrize("stop", [True, False], ids=["stopped", "left alone"])
def test_results_are_put_together_from_what_there_is(workshop, again, monkeypatch, stop):
    from experiments.driver import reproduce
    from experiments.registry import RESULTS

    from maskov.errors import Interrupted

    first, *_ = RESULTS["figure1"].cells(workshop.setting).values()

    def only_first(works, its, count):
        assert first in works
        assert count == 3
        do(first, again())

    monkeypatch.setattr("experiments.driver.share", only_first)
    asked = again(stop=lambda: stop)
    if stop:
        with pytest.raises(Interrupted):
            reproduce([RESULTS["figure1"]], asked, print, jobs=3)
    else:
        (whole,) = reproduce([RESULTS["figure1"]], asked, print, jobs=3)
        assert whole["complete"]
    assert (workshop.out / "figure1.json").is_file()
