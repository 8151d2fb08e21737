"""Frozen tokens on the command line: `sample --start-text --freeze` and `rewrite --freeze`."""

from __future__ import annotations

import json

import pytest

from maskov import Run
from maskov.cli import main
from small import on_untrained

FAST = ["--epochs", "2", "--chains", "2", "-q"]


@pytest.fixture
def call(capfd):
    """Run the command in this process; return its exit code, output and errors."""

    def run(*words: object):
        capfd.readouterr()
        with pytest.raises(SystemExit) as ended:
            main(on_untrained([str(word) for word in words]))
        out, err = capfd.readouterr()
        return ended.value.code or 0, out, err

    return run


@pytest.fixture
def texts(tmp_path):
    file = tmp_path / "texts.txt"
    file.write_text("the city of the river\nthe old city\n")
    return file


@pytest.mark.parametrize(
    ("rule", "held"),
    [
        ("1", [[0], [0]]),
        ("1-2", [[0, 1], [0, 1]]),
        ("city, river", [[1, 4], [2]]),
        ("re:r[a-z]*$", [[4], []]),
        ("a file", [[1], [0, 2]]),
    ],
)
def test_samples_keep_what_is_frozen(rule, held, call, texts, tmp_path):
    if rule == "a file":
        rule = tmp_path / "masks"
        rule.write_text(".#...\n#.#\n")
    folder = tmp_path / "run"
    words = ["--start-text", texts, "--freeze", rule, "--json", "--out", folder]
    code, out, err = call("sample", *FAST, *words)
    assert (code, err) == (0, "")
    lines = [line.split() for line in texts.read_text().splitlines()]
    for one in map(json.loads, out.splitlines()):
        given = lines[one["template"]]
        for place in held[one["template"]]:
            assert one["tokens"][place] == given[place]
    assert [list(places) for places in Run.open(folder).manifest.inputs.frozen] == held
    for command in (["diagnose", folder], ["report", folder, "--format", "md"]):
        assert call(*command)[0] == 0


def test_lengths_change_between_frozen_words(call, texts, tmp_path):
    words = ["--start-text", texts, "--freeze", "city", "--moves", "span,insert-delete"]
    code, out, err = call("sample", *FAST, *words, "--length-prior", "none", "--json")
    assert (code, err) == (0, "")
    assert all("city" in json.loads(line)["tokens"] for line in out.splitlines())
    code, _, err = call("sample", *FAST, *words, "--length", "2:9")
    assert code != 0
    assert "drop --length" in err


@pytest.mark.parametrize(
    ("rule", "reason"),
    [
        ("4", "no position 4"),
        ("1-3", "every token of text 2"),
        ("bridge", "occurs in no text"),
        ("re:(?<=a)b", "no lookaround"),
        ("x" * 5000, "occurs in no text"),
    ],
)
def test_refusals(rule, reason, call, texts):
    code, out, err = call("sample", *FAST, "--start-text", texts, "--freeze", rule)
    assert code != 0
    assert out == ""
    assert reason in " ".join(err.split())


def test_frozen_tokens_need_a_text(call):
    code, _, err = call("sample", *FAST, "--freeze", "1")
    assert code != 0
    assert "--start-text" in err


def test_rewritings_keep_what_is_frozen(call, texts):
    words = ["--toward", "contains('old')", "--freeze", "city", "--model", "untrained", "--json"]
    code, out, err = call("rewrite", texts, *FAST, *words)
    assert (code, err) == (0, "")
    assert all("city" in json.loads(line)["text"].split() for line in out.splitlines())
    code, _, err = call("rewrite", texts, *FAST, *words[:3], "bridge", "--model", "untrained")
    assert code != 0
    assert "occurs in no text" in err
