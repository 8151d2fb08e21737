"""Runs that have a name: where it is kept, where it is shown, and what is no name."""

from __future__ import annotations

import json

import pytest

import maskov
from maskov import Run
from maskov.errors import InputError, RunError
from maskov.ui.report import build, to_html, to_markdown
from report_runs import small_run

FAST = ["--epochs", "2", "--chains", "2", "-q"]
NAME = "Second <b>try</b>"


@pytest.mark.parametrize("command", [["sample", "-l", "5"], ["infill", "the [MASK] river"]])
def test_a_name_is_kept_in_the_run_folder_and_shown_by_reports(call, tmp_path, command):
    code, _, err = call(*command, *FAST, "--out", tmp_path / "run", "--name", NAME)
    assert (code, err) == (0, "")
    run = Run.open(tmp_path / "run")
    assert run.manifest.name == NAME
    report = build([run])
    assert report.title == report.runs[0].label == NAME
    page = to_html(report)
    assert "<h1>Second &lt;b&gt;try&lt;/b&gt;</h1>" in page
    assert NAME not in page
    assert "# Second \\<b\\>try\\</b\\>" in to_markdown(report)


@pytest.mark.parametrize(
    ("words", "phrase"),
    [
        (["--out", "run", "--name", "x" * 101], "100 is the maximum"),
        (["--out", "run", "--name", "two\nlines"], "one line"),
        (["--out", "run", "--name", "\x1b[2J"], "one line"),
        (["--out", "run", "--name", " spaced"], "without spaces around it"),
        (["--name", NAME], "--out"),
    ],
)
def test_what_is_no_name_is_refused_before_anything_is_written(words, phrase, refused):
    assert phrase in refused("sample", *FAST, *words)


def test_a_name_given_in_python_is_checked_too():
    assert small_run(name="mine").manifest.name == "mine"
    with pytest.raises(InputError, match="one line"):
        small_run(name="a\tb")


def test_runs_of_one_name_are_told_apart():
    runs = [small_run(name="mine"), small_run(seed=1, name="mine"), small_run(seed=2)]
    assert [run.label for run in build(runs).runs] == ["mine (1)", "mine (2)", "mh-raw"]


def test_a_foreign_manifest_cannot_bring_a_name_that_is_none(tmp_path):
    model = maskov.load("untrained", "cpu")
    maskov.sample(model, chains=1, length=4, out=tmp_path / "run")
    file = tmp_path / "run" / "manifest.json"
    manifest = json.loads(file.read_text())
    assert manifest["name"] == ""
    file.write_text(json.dumps(manifest | {"name": "\x1b[2J"}))
    with pytest.raises(RunError, match="'name' must be one line"):
        Run.open(tmp_path / "run")
