"""Lengths that are sampled, on the command line: blanks of unknown length, moves and weights."""

from __future__ import annotations

import json

import pytest

from maskov import Run

FAST = ["--epochs", "2", "--chains", "2"]
MOVES = ["--moves", "site,span,insert-delete", "--length", "4:8"]


@pytest.fixture(autouse=True)
def _short_tuning(monkeypatch):
    monkeypatch.setattr("maskov.tuning.tune._LENGTH_CHAINS", 2)
    monkeypatch.setattr("maskov.tuning.tune._LENGTH_STEPS", 8)
    monkeypatch.setattr("maskov.tuning.lengths._MEASURED", 4)


def test_blanks_of_unknown_length_are_filled_with_the_moves_they_need(call, tmp_path):
    template = "the [MASK{1,3}] of [MASK*]"
    code, out, err = call("infill", template, *FAST, "--json", "-q", "--out", tmp_path / "run")
    assert (code, err) == (0, "")
    run = Run.open(tmp_path / "run")
    assert run.manifest.config.length_prior == "flat"
    assert [part["move"]["part"] for part in run.manifest.config.kernel["kernels"]] == [
        "span", "resize", "resize",
    ]  # fmt: skip
    for number, line in enumerate(map(json.loads, out.splitlines())):
        first, second = run.traces["sizes"][-1, number]
        assert 1 <= first <= 3
        assert 1 <= second <= 8
        assert len(line["tokens"]) == 2 + first + second
        assert (line["tokens"][0], line["tokens"][1 + first]) == ("the", "of")
    assert call("diagnose", tmp_path / "run")[0] == 0
    assert call("report", tmp_path / "run", "--format", "md")[0] == 0


@pytest.mark.parametrize("prior", ["none", "flat", "4:1,8:2"])
def test_weights_of_lengths(prior, call, tmp_path):
    words = [*MOVES, "--length-prior", prior, "--out", tmp_path / "run"]
    code, out, err = call("sample", *FAST, *words, "--json", "-q")
    assert (code, err) == (0, "")
    assert all(4 <= len(json.loads(line)["ids"]) <= 8 for line in out.splitlines())
    run = Run.open(tmp_path / "run")
    weights = run.manifest.tuning.lengths
    assert len(weights) == (5 if prior == "flat" else 0)
    assert ("length_prior(4," in run.manifest.energy) == (prior == "4:1,8:2")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["sample", "--moves", "site,insert-delete", "--length", "5"], "need a range of lengths"),
        (["sample", "--length", "4:8", "--length-prior", "flat"], "no move changes the length"),
        (["sample", *MOVES, "--length-prior", "short"], "the length prior 'short' is not valid"),
        (["sample", *MOVES, "--length-prior", "4:0,8:1"], "must be above 0"),
        (["infill", "the [MASK{5,2}]"], "'[MASK{5,2}]' has no length"),
        (["infill", "the [MASK{0,2}]"], "'[MASK{0,2}]' has no length"),
        (["infill", "the [MASK*]", "--moves", "span"], "need moves that change the length"),
        (["infill", "the [MASK]", "--moves", "insert-delete"], "no template has a blank of unk"),
        (["infill", "the [MASK]", "--length-prior", "none"], "no move changes the length"),
    ],
    ids=str,
)
def test_what_cannot_be_is_refused(words, said, refused):
    assert said in refused(*words, *FAST, "--out", "run")
