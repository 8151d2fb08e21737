"""Making a study: balanced, drawn by the seed, and blind."""

from __future__ import annotations

import json
import stat
from collections import Counter
from itertools import pairwise

import pytest

from maskov.errors import InputError
from maskov.ui.ratings import Study, make
from rating_server import CONDITIONS, make_study


def texts(study):
    return [item.text for item in study.items]


def test_each_condition_gives_as_many_texts_none_of_them_twice(tmp_path):
    study = make_study(tmp_path, per_run=6)
    key = study.key()
    assert key.conditions == CONDITIONS
    assert Counter(key.condition_of.values()) == dict.fromkeys(CONDITIONS, 6)
    assert len(set(texts(study))) == 18
    # The letter in a text says where it came from.
    for item in study.items:
        assert key.condition_of[item.id] == CONDITIONS["ABC".index(item.text.split()[1][0])]


def test_what_raters_see_knows_no_condition(tmp_path):
    study = make_study(tmp_path)
    seen = (study.path / "items.json").read_text()
    assert not any(name in seen for name in (*CONDITIONS, "zebra", "gibbs", str(tmp_path)))
    assert [item.id for item in study.items] == list(range(1, 13))
    assert not any(name in repr(study.order("anna")) for name in CONDITIONS)


def test_numbers_are_mixed_over_conditions(tmp_path):
    """Numbers in the order of the runs would tell raters the condition."""
    study = make_study(tmp_path, per_run=10)
    in_order = [study.key().condition_of[item.id] for item in study.items]
    changes = sum(a != b for a, b in pairwise(in_order))
    assert changes > 8  # of 29, where sorted ones change twice and shuffled ones 20 times


def test_the_seed_decides_and_nothing_else(tmp_path):
    for name in "abc":
        (tmp_path / name).mkdir()
    first, again = make_study(tmp_path / "a"), make_study(tmp_path / "b")
    other = make_study(tmp_path / "c", seed=8)
    assert texts(first) == texts(again)
    assert first.order("anna") == again.order("anna")
    assert set(texts(first)) != set(texts(other))


def test_each_rater_has_an_order_of_his_own(tmp_path):
    study = make_study(tmp_path, per_run=10)
    anna, ben = study.order("anna"), study.order("ben")
    assert anna != ben
    assert set(anna) == set(ben) == set(study.items)
    assert anna == Study.open(study.path).order("anna")


def test_the_key_says_how_texts_came_about(tmp_path):
    study = make_study(tmp_path)
    key = json.loads((study.path / "key.json").read_text())
    assert [each["signature"] for each in key["conditions"]] == ["kernel:gibbs", None, None]
    assert key["seed"] == 7
    lines = (tmp_path / f"{CONDITIONS[2]}.txt").read_text().splitlines()
    for item, shown in zip(key["items"], study.items, strict=True):
        if item["condition"] == CONDITIONS[2]:
            assert lines[item["line"] - 1] == shown.text


def test_the_folder_is_its_owners_alone(tmp_path):
    """Whoever reads the links can rate in another's name."""
    assert stat.S_IMODE(make_study(tmp_path).path.stat().st_mode) == 0o700


def test_what_cannot_be_a_study_is_refused_and_leaves_nothing(tmp_path):
    (tmp_path / "a.txt").write_text("one\ntwo\n")
    (tmp_path / "b.txt").write_text("one\n\ntwo\n")
    (tmp_path / "c.jsonl").write_text('{"text": 3}\n')
    (tmp_path / "half.jsonl").write_text('{"text": "half of a character: \\ud800"}\n')
    (tmp_path / "d.txt").write_bytes(b"\xff\n")
    (tmp_path / "e").mkdir()
    (tmp_path / "f.csv").touch()
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "samples.jsonl").write_text('{"text": "one"}\n')
    before = sorted(tmp_path.iterdir())
    for runs, per_run, reason in [
        (["a.txt"], 3, "has only 2 texts"),
        (["a.txt"], 0, "1 or more"),
        (["b.txt"], 1, "line 2 of .* has no text"),
        (["c.jsonl"], 1, "line 1 of .* not a JSON object"),
        (["half.jsonl"], 1, "line 1 of .* not Unicode text"),
        (["d.txt"], 1, "not UTF-8"),
        (["e"], 1, "cannot read .*samples.jsonl"),
        (["f.csv"], 1, "neither"),
        (["nowhere.txt"], 1, "no such file"),
        (["a.txt", "a"], 1, "two runs are called 'a'"),
        ([], 1, "--runs"),
    ]:
        with pytest.raises(InputError, match=reason):
            make(tmp_path / "study", [tmp_path / run for run in runs], per_run, 0)
    assert sorted(tmp_path.iterdir()) == before


def test_a_study_is_never_written_over(tmp_path):
    study = make_study(tmp_path)
    with pytest.raises(InputError, match="already exists"):
        make(study.path, [tmp_path / f"{CONDITIONS[2]}.txt"], 1, 0)


@pytest.mark.parametrize(
    ("name", "content", "reason"),
    [
        ("items.json", None, "is no study"),
        ("items.json", "{", "is no study"),
        ("items.json", '{"format": 9}', "another format version"),
        ("items.json", '{"format": 1}', "damaged"),
        ("key.json", '{"format": 1}', "damaged"),
        (
            "key.json",
            '{"format": 1, "per_run": 1, "conditions": [], "items": []}',
            "do not match",
        ),
    ],
)
def test_a_damaged_study_is_named(tmp_path, name, content, reason):
    study = make_study(tmp_path)
    if content is None:
        (study.path / name).unlink()
    else:
        (study.path / name).write_text(content)
    with pytest.raises(InputError, match=reason):
        Study.open(study.path).key()
