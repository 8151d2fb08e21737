"""Messages that name the cause: files, tokenizers, blanks, model names, starting texts."""

from __future__ import annotations

import json

import pytest

from maskov import Run, Schedule, sample
from maskov.models import untrained
from maskov.shipped import did_you_mean
from tiny_proteins import save_bert

FAST = ["-n", "2", "--burn-in", "1", "-m", "untrained", "--workers", "0"]


@pytest.fixture(autouse=True)
def _in_its_folder(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def run_folder(tmp_path):
    sample(untrained(), schedule=Schedule(epochs=2), chains=2, length=3, out=tmp_path / "run")
    return tmp_path / "run"


def test_a_report_is_no_pdf(refused, run_folder):
    told = refused("report", run_folder, "--out", "x.pdf")
    assert "'x.pdf' would be a PDF" in told
    assert "--format" in told


@pytest.mark.parametrize(
    ("words", "begins"),
    [(["--out", "x.html"], "<!"), (["--out", "x"], "<!"), (["--out", "x.md"], "# "),
     (["--out", "x.json"], "{"), (["--out", "x.txt", "--format", "md"], "# ")],
)  # fmt: skip
def test_a_report_has_the_format_of_its_name(words, begins, call, run_folder, tmp_path):
    assert call("report", run_folder, *words)[0] == 0
    assert (tmp_path / words[1]).read_text().startswith(begins)


def test_a_folder_without_tokenizer_needs_one(call, refused, tmp_path):
    save_bert(tmp_path / "bert")
    (tmp_path / "bert" / "vocab.txt").rename(tmp_path / "vocab.txt")
    assert "tokenizer=vocab.txt" in refused("score", "E V Q L", "-m", tmp_path / "bert")
    words = ["-m", f"{tmp_path / 'bert'}(tokenizer={tmp_path / 'vocab.txt'})"]
    assert call("score", "E V Q L", *words)[0] == 0


def test_another_models_blank_is_pointed_out(refused):
    assert "write [MASK]" in refused("infill", "the <mask> sat", *FAST, "-q")


@pytest.mark.parametrize(
    ("name", "meant"),
    [("wiki-smal", "wiki-small"), ("WikiSmall", "wiki-small"), ("antibert", "antiberty"),
     ("bert-base-uncased", None), ("./folder", None)],
)  # fmt: skip
def test_a_near_miss_of_a_name_is_recognised(name, meant):
    assert did_you_mean(name) == ("" if meant is None else f"Did you mean '{meant}'? ")


def test_a_near_miss_is_in_the_message(refused):
    assert "Did you mean 'wiki-small'?" in refused("score", "the cat", "-m", "wiki-smal")


def test_each_default_says_of_what(call):
    lines = call("models")[1].splitlines()
    named = [line.split(None, 1)[1].strip() for line in lines if "(default" in line]
    assert named == ["wiki-judge (default judge of evaluate)", "wiki-small (default)"]


def test_every_starting_text_has_its_chains_and_the_run_says_so(call, tmp_path):
    (tmp_path / "texts").write_text("the cat sat\nthe dog ran\nshe sat\n")
    words = ["sample", "--start-text", "texts", *FAST, "--json", "--out", "run"]
    code, out, err = call(*words, "-c", "2")
    assert code == 0
    assert [json.loads(line)["template"] for line in out.splitlines()] == [0, 0, 1, 1, 2, 2]
    assert err.startswith("note: 3 texts start 2 chains each: 6 chains\n")
    signature = Run.open(tmp_path / "run").signature
    assert "|start:texts|texts:#" in signature
    assert "start:masked" not in signature
