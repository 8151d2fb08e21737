"""A bar on terminals and in notebooks, and nothing anywhere else."""

import io
import sys
from types import SimpleNamespace

import pytest
import torch

import maskov
from small import tiny_bert
from stopped_runs import Heard, cut

MODEL = tiny_bert("red green blue", torch.float32)
SMALL = {"chains": 2, "epochs": 4, "length": 3}


class Terminal(io.StringIO):
    def isatty(self):
        return True


def on_terminal(monkeypatch):
    """Return what stands for the screen; called in a test, since fixtures have another stderr."""
    screen = Terminal()
    monkeypatch.setattr(sys, "stderr", screen)
    monkeypatch.setenv("TERM", "xterm")
    return screen


@pytest.fixture
def notebook(monkeypatch):
    shell = SimpleNamespace(kernel=object())
    monkeypatch.setitem(sys.modules, "IPython", SimpleNamespace(get_ipython=lambda: shell))


def test_where_there_is_a_bar(monkeypatch, capfd):
    maskov.sample(MODEL, **SMALL)
    assert capfd.readouterr() == ("", "")  # none in a pipe
    terminal = on_terminal(monkeypatch)
    for settings in ({"progress": False}, {"listener": Heard()}):
        maskov.sample(MODEL, **SMALL, **settings)
        assert terminal.getvalue() == ""
    maskov.sample(MODEL, **SMALL)
    assert "4/4" in terminal.getvalue()
    assert "passes/s" in terminal.getvalue()


def test_a_notebook_has_a_bar(notebook, capfd):
    maskov.sample(MODEL, **SMALL)
    assert "epoch" in capfd.readouterr().err
    maskov.sample(MODEL, progress=False, **SMALL)
    assert capfd.readouterr() == ("", "")
    maskov.sample(maskov.load("untrained", "cpu"), **SMALL)
    assert capfd.readouterr().err.count("note:") == 1  # a caution of the model, once


def test_infill_rewrite_and_resume_have_bars(monkeypatch, tmp_path):
    cut(tmp_path / "run", 4, MODEL, **SMALL)
    terminal = on_terminal(monkeypatch)
    for call in (
        lambda: maskov.infill(MODEL, "red [MASK]", chains=1, epochs=2),
        lambda: maskov.rewrite(MODEL, ["red green"], "edit", chains=1, epochs=2),
        lambda: maskov.resume(tmp_path / "run", MODEL),
    ):
        terminal.seek(0)
        terminal.truncate()
        call()
        assert "epoch" in terminal.getvalue()
