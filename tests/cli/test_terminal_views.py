"""What a run shows while it works: on a terminal, in a pipe, and when it is to be quiet."""

import io
import math
import re
import sys
from dataclasses import replace

import numpy as np
import pytest
import torch
from rich.console import Console
from rich.live import Live

import maskov
from maskov import sample
from maskov.config import Schedule
from maskov.types import PartValues
from maskov.ui import terminal
from maskov.ui.terminal import LiveView, PlainProgress, in_words, progress_for
from odd_workers import oddly
from small import random_state, tiny_bert


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


def test_the_time_left_is_that_of_the_epochs_left_at_the_pace_so_far(clock):
    view, model = PlainProgress(10), tiny_bert()
    clock.now = 5.0
    view.begun(model)  # what came before, such as loading, is no part of the pace
    assert "left" not in view._progress(0.5, 0)
    clock.now = 9.0
    assert view._progress(1, 500).endswith("125 passes/s  about 36 s left")
    clock.now = 15.0
    assert view._progress(2.5, 500).endswith("50 passes/s  about 30 s left")
    assert "left" not in view._progress(10, 500)
    # A run that goes on does not count epochs that took no time here.
    resumed = PlainProgress(100)
    clock.now = 18.0
    assert resumed._progress(81, 0).endswith("about 57 s left")


@pytest.mark.parametrize(
    ("seconds", "words"),
    [(0.2, "0 s"), (59.4, "59 s"), (60, "1 min"), (75, "1 min 15 s"), (3000, "50 min"),
     (3599.6, "1 h 00 min"), (7500, "2 h 05 min")],
)  # fmt: skip
def test_times_are_said_as_people_say_them(seconds, words):
    assert in_words(seconds) == words


def test_plain_lines_say_the_time_left_until_there_is_none(capfd):
    view = PlainProgress(3)
    view.begun(tiny_bert())
    for epoch in range(3):
        view.epoch_ended(epoch, rates(), passes=100 * (epoch + 1))
    lines = capfd.readouterr().err.splitlines()
    assert [line.split("  ")[0] for line in lines] == ["epoch 1/3", "epoch 2/3", "epoch 3/3"]
    assert all(re.search(r"accepted 1\.00  novel 1\.00  [\d,]+ passes/s", line) for line in lines)
    assert [bool(re.search(r"about \d+ s left$", line)) for line in lines] == [True, True, False]


def test_points_of_a_path_are_not_called_epochs(capfd):
    with progress_for(tiny_bert(), 3, False, unit="point") as view:
        view.epoch_ended(0, rates(), passes=100)
    assert capfd.readouterr().err.startswith("point 1/3  ")


@pytest.mark.usefixtures("_impatient")
@pytest.mark.parametrize("kind", ["plain", "live"])
def test_progress_never_runs_backwards(kind, capfd):
    """Chains that are told of may be behind others, and a second run may follow the first."""
    model, out = tiny_bert(), io.StringIO()
    console = Console(file=out, force_terminal=True, width=120)
    state = random_state(model, 3, 6)
    with Live(console=console, auto_refresh=False) as live:
        view = PlainProgress(10) if kind == "plain" else LiveView(model, live, 10)
        for epochs in ([0, 1, 2, 3], [0, 1], [2, 5]):
            view.begun(model)
            for number, epoch in enumerate(epochs):
                view.moved(state, epoch, passes=10 * number)
                if kind == "plain":
                    view.worked()
                view.epoch_ended(min(epoch, 2), rates(3), passes=10 * number)
    shown = re.findall(r"epoch (\d+)/10", out.getvalue() + capfd.readouterr().err)
    numbers = list(map(int, shown))
    assert len(numbers) > 6
    assert numbers == sorted(numbers)
    assert 4 < numbers[-1] <= 6


class Heard:
    """A listener that keeps how far it was told the run is."""

    def __init__(self):
        self.begun_times, self.epochs = 0, []

    def begun(self, model):
        self.begun_times += 1

    def noted(self, text):
        pass

    def moved(self, chains, epoch, passes):
        self.epochs.append((epoch, passes))

    def epoch_ended(self, epoch, values, passes):
        pass


def test_groups_are_counted_as_one_run(monkeypatch):
    oddly(monkeypatch, count=1, seed=0, seconds=(0.0,))  # the shortest turns: none of a whole epoch
    model, heard = tiny_bert("red green blue"), [Heard(), Heard()]
    maskov.sample(model, listener=heard[0], chains=6, resident=2, epochs=12, length=3, workers=2)
    texts, options = ["red green", "blue red", "green"], {"epochs": 3, "resident": 2, "workers": 2}
    maskov.rewrite(model, texts, "length(3)", listener=heard[1], chains=2, **options)
    for one in heard:
        assert one.epochs == sorted(one.epochs)
        assert one.begun_times == 1
    assert {epoch for epoch, _ in heard[1].epochs} == {0, 1, 2, 3}


def test_plain_output_says_how_far_the_first_epoch_is(clock, capfd):
    """It used to be silent until the end of the epoch: minutes, for a long protein."""
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


@pytest.mark.parametrize(("quiet", "tty", "kind"), [
    (True, True, type(None)), (False, False, PlainProgress), (False, True, LiveView),
])  # fmt: skip
def test_the_view_suits_where_it_is_shown(quiet, tty, kind, monkeypatch):
    monkeypatch.setattr(sys.stderr, "isatty", lambda: tty, raising=False)
    with progress_for(tiny_bert(), 3, quiet) as view:
        assert isinstance(view, kind)


def test_a_whole_run_is_watched_on_a_terminal():
    model, out = tiny_bert(), io.StringIO()
    with Live(console=Console(file=out, force_terminal=True, width=100)) as live:
        view = LiveView(model, live, 5)
        view._drawn = 0.0
        sample(model, schedule=Schedule(epochs=5), chains=3, length=5, listener=view)
    assert "passes/s" in out.getvalue()
