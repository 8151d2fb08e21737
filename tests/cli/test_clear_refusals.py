"""Messages that name the cause: files, tokenizers, blanks, model names, starting texts."""

from __future__ import annotations

import json

import pytest

from maskov import Run, Schedule, sample
from maskov.cli import main
from maskov.models import untrained
from maskov.shipped import did_you_mean
from tiny_proteins import save_bert

FAST = ["-n", "2", "--burn-in", "1", "-m", "untrained", "--workers", "0"]


@pytest.fixture
def call(capfd, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)

    def run(*words):
        capfd.readouterr()
        with pytest.raises(SystemExit) as ended:
            main([str(word) for word in words])
        out, err = capfd.readouterr()
        return ended.value.code or 0, out, err

    return run


@pytest.fixture
def run_folder(tmp_path):
    sample(untrained(), None, Schedule(epochs=2), chains=2, length=3, out=tmp_path / "run")
    return tmp_path / "run"


def test_a_report_is_no_pdf(call, run_folder, tmp_path):
    code, _, err = call("report", run_folder, "--out", "x.pdf")
    assert (code, err) == (
        2,
        "maskov: 'x.pdf' would be a PDF file; reports are HTML, Markdown or JSON: use a name with "
        ".html (which a browser prints to PDF), .md or .json, or give --format.\n",
    )
    assert not (tmp_path / "x.pdf").exists()


@pytest.mark.parametrize(
    ("words", "begins"),
    [(["--out", "x.html"], "<!"), (["--out", "x"], "<!"), (["--out", "x.md"], "# "),
     (["--out", "x.json"], "{"), (["--out", "x.txt", "--format", "md"], "# ")],
)  # fmt: skip
def test_a_report_has_the_format_of_its_name(words, begins, call, run_folder, tmp_path):
    assert call("report", run_folder, *words)[0] == 0
    assert (tmp_path / words[1]).read_text().startswith(begins)


def test_a_folder_without_tokenizer_needs_one(call, tmp_path):
    save_bert(tmp_path / "bert")
    (tmp_path / "bert" / "vocab.txt").rename(tmp_path / "vocab.txt")
    code, _, err = call("score", "E V Q L", "-m", tmp_path / "bert")
    assert code == 2
    assert "give --tokenizer (a folder, a hub name or a vocab.txt)." in err
    words = ["-m", tmp_path / "bert", "--tokenizer", tmp_path / "vocab.txt"]
    assert call("score", "E V Q L", *words)[0] == 0


def test_another_models_blank_is_pointed_out(call):
    code, _, err = call("infill", "the <mask> sat", *FAST, "-q")
    assert (code, err) == (
        2,
        "maskov: template 1 has <mask>, which is not a blank of 'untrained': write [MASK].\n",
    )


@pytest.mark.parametrize(
    ("name", "meant"),
    [("wiki-smal", "wiki-small"), ("WikiSmall", "wiki-small"), ("antibert", "antiberty"),
     ("bert-base-uncased", None), ("./folder", None)],
)  # fmt: skip
def test_a_near_miss_of_a_name_is_recognised(name, meant):
    assert did_you_mean(name) == ("" if meant is None else f"Did you mean '{meant}'? ")


def test_a_near_miss_is_in_the_message(call):
    code, _, err = call("score", "the cat", "-m", "wiki-smal")
    assert code == 2
    assert "Did you mean 'wiki-small'?" in err


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
