"""What a run shows while it works: on a terminal, in a pipe, and when it is to be quiet."""

import io
import math
import re
from dataclasses import replace

import numpy as np
import pytest
import torch
from rich.console import Console
from rich.live import Live

import maskov
from maskov.types import PartValues
from maskov.ui import terminal
from maskov.ui.terminal import LiveView, PlainProgress
from odd_workers import oddly
from small import random_state, tiny_bert
from stopped_runs import Heard


class Clock:
    now = 0.0

    def __call__(self):
        return self.now


@pytest.fixture
def clock(monkeypatch):
    made = Clock()
    monkeypatch.setattr(terminal.time, "monotonic", made)
    return made


@pytest.fixture
def _impatient(monkeypatch):
    for name, value in (
        ("_SILENCE", 0.0),
        ("_SILENT_SHARE", 0.0),
        ("_FRAMES_PER_SECOND", math.inf),
    ):
        monkeypatch.setattr(terminal, name, value)


def rates(chains=2):
    counts = {name: np.full(chains, 5) for name in ("accepted", "novel", "steps")}
    return counts | {f"energy_{name}": np.full(chains, -3.0) for name in ("raw", "norm")}


def test_groups_are_counted_as_one_run(monkeypatch):
    oddly(monkeypatch, count=1, seed=0, seconds=(0.0,))  # the shortest turns: none of a whole epoch
    model, heard = tiny_bert("red green blue"), [Heard(), Heard()]
    maskov.sample(model, listener=heard[0], chains=6, resident=2, epochs=12, length=3, workers=2)
    texts, options = ["red green", "blue red", "green"], {"epochs": 3, "resident": 2, "workers": 2}
    maskov.rewrite(model, texts, "length(3)", listener=heard[1], chains=2, **options)
    for one in heard:
        epochs = [(epoch, passes) for _, epoch, passes in one.told["moved"]]
        assert epochs == sorted(epochs)
        assert len(one.told["begun"]) == 1
    assert {epoch for epoch, _ in epochs} == {0, 1, 2, 3}


def test_plain_output_says_how_far_the_first_epoch_is(clock, capfd):
    view, model = PlainProgress(3), tiny_bert()
    state = random_state(model, 3, 6)
    for now in range(120):
        clock.now = float(now)
        if now == 7:
            view.begun(model)
        if now >= 20:
            step = torch.full((3,), now)
            view.moved(replace(state, epoch_step=step), 0, passes=10 * now)
        view.worked()
    lines = capfd.readouterr().err.splitlines()
    assert lines[:5] == [
        "starting  (5 s)",
        "computing the first energies  (10 s)",
        "computing the first energies  (15 s)",
        "epoch 1/3  step 20  15 passes/s  (20 s)",
        "epoch 1/3  step 27  14 passes/s  (27 s)",
    ]
    assert len(lines) == 10
    assert lines[-1] == "epoch 1/3  step 115  11 passes/s  (1 min 55 s)"


@pytest.mark.usefixtures("_impatient")
def test_a_run_in_a_pipe_speaks_before_its_first_epoch_has_ended(call):
    lines = call("sample --length 9 -c 2 -n 2 -e raw")[2].splitlines()
    first = next(n for n, line in enumerate(lines) if line.startswith("epoch 1/2  E_"))
    before = "\n".join(lines[:first])
    assert "computing the first energies" in before
    assert re.search(r"epoch 1/2  step \d+  [\d,]+ passes/s", before)


def test_the_live_view_shows_chains_changes_energies_rates_pace_and_time_left(clock):
    clock.now = 100.0
    model, out = tiny_bert("red green blue white black"), io.StringIO()
    console = Console(file=out, force_terminal=True, width=120, color_system="standard")
    live = Live(console=console, auto_refresh=False)
    view = LiveView(model, live, 4)
    state = random_state(model, 3, 6)
    energy = torch.tensor([-12.5, 3.25, 7.0], dtype=torch.float64)
    state = replace(state, part_values=PartValues(None, energy[:, None], energy))
    with live:
        clock.now += 12
        view.worked()
        assert "computing the first energies  (12 s)" in out.getvalue()
        view.begun(model)
        clock.now += 1
        view.moved(state, 0, passes=60)
        first = out.getvalue()
        view.epoch_ended(0, rates(3), passes=120)
        clock.now += 1
        other = int(model.encode("black")[0])
        token = other if int(state.tokens[0, 2]) != other else int(model.encode("red")[0])
        tokens = state.tokens.clone()
        tokens[0, 2] = token
        view.moved(replace(state, tokens=tokens), 1, passes=240)
    frame = out.getvalue()[len(first) :]
    assert "left" not in first
    assert all(energy in first for energy in ("-12.5", "3.2", "7.0"))
    bold = re.findall(r"\x1b\[1;33m([^\x1b]+)\x1b", frame)
    assert {word.strip() for word in bold} == set(model.token_strings([token]))
    # 1.5 epochs took 2 s, 2.5 are left
    for shown in ("epoch 2/4", "120 passes/s", "about 3 s left", "accepted 1.00"):
        assert shown in frame
