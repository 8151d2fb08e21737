"""`maskov report` as a user calls it."""

import json

import pytest

import maskov
from maskov.cli import main
from maskov.config import Schedule
from small import random_table


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("runs") / "first"
    maskov.sample(random_table(), schedule=Schedule(epochs=3), chains=2, length=3, out=path)
    return path


@pytest.fixture
def call(capfd):
    def run(*words):
        capfd.readouterr()
        with pytest.raises(SystemExit) as ended:
            main(["report", *map(str, words)])
        out, err = capfd.readouterr()
        return ended.value.code or 0, out, err

    return run


def test_a_page_is_written_and_nothing_else_said_on_standard_output(call, folder, tmp_path):
    code, out, err = call(folder, "--out", tmp_path / "page.html")
    assert (code, out) == (0, "")
    assert "1 run, " in err
    text = (tmp_path / "page.html").read_text(encoding="utf-8")
    assert text.startswith("<!doctype html>")
    assert "<h1>first</h1>" in text


def test_the_format_is_given_or_told_by_the_name(call, folder, tmp_path):
    code, out, _ = call(folder, "--format", "json")
    assert code == 0
    assert json.loads(out)["runs"][0]["label"] == "first"
    code, out, _ = call(folder, folder, "--format", "md", "--title", "Two of them")
    assert out.startswith("# Two of them\n")
    call(folder, "--out", tmp_path / "a.json")
    assert json.loads((tmp_path / "a.json").read_text(encoding="utf-8"))["title"] == "first"
    call(folder, "--out", tmp_path / "a.md")
    assert (tmp_path / "a.md").read_text(encoding="utf-8").startswith("# first\n")
    call(folder, "--out", tmp_path / "b.json", "--samples", "0")
    assert json.loads((tmp_path / "b.json").read_text(encoding="utf-8"))["runs"][0]["samples"] == []


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["{run}"], "give --out report.html"),
        (["{run}", "--format", "pdf"], "unknown format 'pdf'"),
        (["{run}/nowhere", "--format", "md"], "is not a run folder"),
        (["{run}", "--out", "{run}"], "is a folder"),
        (["{run}", "--out", "{run}/no/such/folder.html"], "cannot write"),
    ],
)
def test_what_a_user_can_fix_is_one_sentence_and_code_2(call, folder, words, said):
    code, out, err = call(*(word.replace("{run}", str(folder)) for word in words))
    assert (code, out) == (2, "")
    assert said in err
    assert len(err.splitlines()) == 1


def test_no_run_at_all_is_a_usage_error(call):
    assert call("--format", "md")[0] == 2
