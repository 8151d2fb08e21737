"""Frozen tokens on the command line: `sample --start-text --freeze` and `rewrite --freeze`."""

from __future__ import annotations

import json

import pytest

from maskov import Run

FAST = ["--epochs", "2", "--chains", "2", "-q"]


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


@pytest.mark.parametrize(
    ("words", "phrase"),
    [
        (["--freeze", "4"], "no position 4"),
        (["--freeze", "1-3"], "every token of text 2"),
        (["--freeze", "bridge"], "occurs in no text"),
        (["--freeze", "re:(?<=a)b"], "no lookaround"),
        (["--freeze", "x" * 5000], "occurs in no text"),
        (["--freeze", "city", "--moves", "span,insert-delete", "--length", "2:9"], "drop --length"),
    ],
)
def test_refusals(words, phrase, refused, texts):
    assert phrase in refused("sample", *FAST, "--start-text", texts, *words)


def test_frozen_tokens_need_a_text(refused):
    assert "--start-text" in refused("sample", *FAST, "--freeze", "1")


def test_rewritings_keep_what_is_frozen(call, refused, texts):
    words = ["--toward", "contains('old')", "--freeze", "city", "--model", "untrained", "--json"]
    code, out, err = call("rewrite", texts, *FAST, *words)
    assert (code, err) == (0, "")
    assert all("city" in json.loads(line)["text"].split() for line in out.splitlines())
    words = [*words[:3], "bridge", "--model", "untrained"]
    assert "occurs in no text" in refused("rewrite", texts, *FAST, *words)
