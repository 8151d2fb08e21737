"""What a run comes to does not depend on who took which turn, when, and how often."""

from __future__ import annotations

import pytest
import torch

from maskov import (
    DelayedAcceptance,
    Gibbs,
    LinearSchedule,
    Metropolis,
    Norm,
    Raw,
    Schedule,
    Sweep,
    TranslationMethod,
    Workers,
    load,
    mask_predict,
    resume,
    sample,
    translate,
)
from maskov.cli import main
from maskov.errors import InputError, Interrupted
from maskov.models import scorer
from maskov.moves import Site
from maskov.runs.state import cut
from odd_workers import files, oddly
from small import tiny_bert
from tiny_translation import SOURCES, save

MODEL = tiny_bert("red green blue white black", torch.float32)
SETTINGS = {
    "schedule": Schedule(epochs=5, burn_in=1),
    "chains": 7,
    "length": (3, 7),
    "seed": 2,
    "thin": 2,
    "resident": 3,
}
KERNELS = {
    "sites": Metropolis(Norm()),
    "three tests": Metropolis(Raw(), delayed=DelayedAcceptance((1, 2))),
    "blocks": Metropolis(Raw(), Site(positions=Sweep(block=2))),
    "gibbs": Gibbs(),
    "mask-predict": mask_predict(6),
}


@pytest.mark.parametrize("name", KERNELS)
def test_any_order_and_any_loss_give_the_same_bytes(name, tmp_path, monkeypatch):
    kernel = KERNELS[name]
    sample(MODEL, kernel, out=tmp_path / "here", workers=Workers(threads=1), **SETTINGS)
    made = oddly(monkeypatch, count=3, seed=1)
    sample(MODEL, kernel, out=tmp_path / "there", workers=Workers(3), **SETTINGS)
    assert made[0].losses > 0
    assert files(tmp_path / "there") == files(tmp_path / "here")


def test_a_schedule_that_moves_survives_an_odd_crew(tmp_path, monkeypatch):
    """Forced epochs, blocks that shrink to one site, then single sites in rounds."""
    moving = Schedule(
        9, 1, LinearSchedule(1.0, 0.1, 0.3), LinearSchedule(3.0, 1.0, 1.0), force_accept=1
    )
    settings = SETTINGS | {"schedule": moving}
    sample(MODEL, KERNELS["sites"], out=tmp_path / "here", **settings)
    oddly(monkeypatch, count=2, seed=5)
    sample(MODEL, KERNELS["sites"], out=tmp_path / "there", workers=Workers(2), **settings)
    assert files(tmp_path / "there") == files(tmp_path / "here")


def test_a_run_begun_here_goes_on_there_and_back(tmp_path, monkeypatch):
    kernel = KERNELS["sites"]
    sample(MODEL, kernel, out=tmp_path / "whole", workers=Workers(threads=1), **SETTINGS)
    looks = iter(range(10**6))
    with pytest.raises(Interrupted):
        sample(
            MODEL, kernel, out=tmp_path / "run", workers=Workers(threads=1),
            stop=lambda: next(looks) > 60, **SETTINGS,
        )  # fmt: skip
    oddly(monkeypatch, count=2, seed=3, seconds=(0.0,))  # a turn is a single round
    calls = iter(range(10**6))

    class EnoughError(Exception):
        """The driver dies, with nothing said to anybody."""

    def dies(**_: object) -> None:
        if next(calls) > 10:
            raise EnoughError

    from maskov.runs import coordinator as driver

    receive = driver.Coordinator._receive
    monkeypatch.setattr(
        driver.Coordinator, "_receive", lambda self, taken: (dies(), receive(self, taken))[1]
    )
    with pytest.raises(EnoughError):
        resume(tmp_path / "run", MODEL, workers=Workers(2), checkpoint_every=0)
    monkeypatch.setattr(driver.Coordinator, "_receive", receive)
    assert not resume(tmp_path / "run", MODEL).damaged
    assert files(tmp_path / "run") == files(tmp_path / "whole")


def test_groups_are_of_one_size_but_for_the_last():
    assert cut(8, 3) == [range(3), range(3, 6), range(6, 8)]
    assert cut(9, 4) == [range(3), range(3, 6), range(6, 9)]
    assert cut(5, 100) == [range(5)]
    for chains in range(1, 40):
        for most in range(1, 12):
            groups = cut(chains, most)
            assert [chain for group in groups for chain in group] == list(range(chains))
            assert max(map(len, groups)) <= most


def test_groups_depend_on_the_model_and_not_on_the_number_of_chains():
    few, many = (sample(MODEL, Gibbs(), Schedule(epochs=1), chains=c, length=5) for c in (2, 60))
    assert few.manifest.config.execution.resident == many.manifest.config.execution.resident


@pytest.mark.parametrize("length", [5, (2, 9), 40])
def test_chains_in_lock_step_are_enough_for_a_batch_of_some_size(monkeypatch, length):
    """Each has one pass in a call then; for few rows a CPU mostly waits for the weights."""
    monkeypatch.setattr(scorer, "token_budget", lambda bytes_per_token, device: 1024)
    model, mh = tiny_bert("red green", max_position_embeddings=64), Metropolis(Raw())

    def group(kernel, schedule):
        run = sample(model, kernel, schedule, chains=2, length=length)
        return run.manifest.config.execution.resident

    rounds = group(mh, Schedule(epochs=1))
    lock_step = group(Gibbs(), Schedule(epochs=1))
    assert 1 <= rounds < lock_step
    mean = 40 if length == 40 else 5
    assert lock_step * mean >= 100
    # Epochs that accept everything are in lock-step.
    assert group(mh, Schedule(epochs=2, force_accept=1)) == lock_step


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


def test_a_kernel_of_the_users_own_is_not_sent_away():
    class Own(Metropolis):
        """Not ours."""

    with pytest.raises(InputError, match="cannot be written to a run folder or sent to workers"):
        sample(MODEL, Own(Raw()), workers=Workers(2), **SETTINGS)


def test_translations_are_shared_out_too(tmp_path, monkeypatch):
    model = load(save(tmp_path / "tiny"), "cpu")
    method = TranslationMethod("mh", epochs=5, chains=2, lengths="drawn")
    settings = {"seed": 4, "resident": 3}
    here = translate(model, SOURCES, method, out=tmp_path / "here", **settings)
    oddly(monkeypatch, count=2, seed=8)
    there = translate(
        model, SOURCES, method, out=tmp_path / "there", workers=Workers(2), **settings
    )
    assert there == here
    assert files(tmp_path / "there") == files(tmp_path / "here")


@pytest.mark.parametrize("words", ["--workers 2", "--workers ray", "--threads 2", "--resident 3"])
def test_ar_has_no_chains_to_share_out(words, capfd, tmp_path):
    (tmp_path / "lines").write_text("red\n")
    with pytest.raises(SystemExit) as ended:
        main(
            [
                "translate",
                str(tmp_path / "lines"),
                "--method",
                "ar",
                "--pair",
                "de-en",
                *words.split(),
            ]
        )
    assert ended.value.code == 2
    assert "'ar'" in capfd.readouterr().err
