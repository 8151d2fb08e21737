"""Means, intervals and exports, by hand where a hand can do it."""

from __future__ import annotations

import csv
import json
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from maskov.errors import InputError
from maskov.ui.ratings import Answer, Mean, load
from maskov.ui.ratings.cells import from_cell, to_cell
from maskov.ui.ratings.report import mean
from rating_server import CONDITIONS, make_study


@pytest.fixture
def study(tmp_path):
    return make_study(tmp_path)


def rate(study, **answers):
    """Have each rater give (coherence, fluency) to all texts of some conditions."""
    condition_of = study.key().condition_of
    with study.store() as store:
        for rater, given in answers.items():
            store.add_rater(rater)
            for item, condition in condition_of.items():
                if condition in given:
                    store.save(Answer(rater, item, *given[condition]))


def test_no_ratings_give_no_numbers(study):
    found = load(study.path)
    assert [condition.name for condition in found.conditions] == list(CONDITIONS)
    for condition in found.conditions:
        assert condition.coherence == condition.fluency == Mean(None, None, None)
        assert (condition.items, condition.rated, condition.ratings, condition.raters) == (
            4,
            0,
            0,
            0,
        )
    assert found.coherence_alpha is None
    assert found.fluency_alpha is None
    assert found.rows == []


def test_means_by_hand(study):
    gibbs, norm, raw = CONDITIONS
    rate(study, anna={gibbs: (1, 2), norm: (3, 3)}, ben={gibbs: (2, 4)})
    found = {condition.name: condition for condition in load(study.path).conditions}
    assert found[gibbs].coherence.value == 1.5
    assert found[gibbs].fluency.value == 3
    assert (found[gibbs].rated, found[gibbs].ratings, found[gibbs].raters) == (4, 8, 2)
    # Every text got the same: texts do not differ, and that is all the interval is about.
    assert found[gibbs].coherence == Mean(1.5, 1.5, 1.5)
    assert (found[norm].coherence.value, found[norm].raters) == (3, 1)
    assert found[raw].coherence.value is None
    assert load(study.path).raters == {"anna": 8, "ben": 4}


def test_a_changed_answer_counts_once_and_as_it_is_now(study):
    item = next(iter(study.items)).id
    with study.store() as store:
        store.add_rater("anna")
        store.save(Answer("anna", item, 1, 1))
        store.save(Answer("anna", item, 4, 3, "better than I thought"))
    found = load(study.path)
    (condition,) = (each for each in found.conditions if each.ratings)
    assert condition.coherence == Mean(4, None, None)  # a single text has no interval
    assert [row["comment"] for row in found.rows] == ["better than I thought"]


def test_alpha_is_over_items_of_all_conditions(study):
    gibbs, norm, _ = CONDITIONS
    rate(
        study,
        anna={gibbs: (1, 1), norm: (4, 4)},
        ben={gibbs: (1, 4), norm: (4, 1)},
    )
    found = load(study.path)
    assert found.coherence_alpha == 1
    assert found.fluency_alpha < 0


def test_an_interval_is_as_wide_as_the_normal_one_for_many_items():
    generator = np.random.default_rng(0)
    items = [[int(value)] for value in generator.integers(1, 5, 400)]
    found = mean(items, seed=0)
    deviation = np.std(items, ddof=1) / 20
    assert found.low == pytest.approx(found.value - 1.96 * deviation, abs=0.15 * deviation)
    assert found.high == pytest.approx(found.value + 1.96 * deviation, abs=0.15 * deviation)


def test_an_interval_resamples_items_and_not_ratings():
    """Three raters who always agree tell as much about other texts as one of them."""
    once = [[1], [2], [4], [1], [3], [2], [2], [4]]
    thrice = [ratings * 3 for ratings in once]
    assert mean(once, seed=0) == mean(thrice, seed=0)


def test_an_interval_covers_as_often_as_it_says():
    """500 studies of 60 texts by one or two raters; the share has a standard deviation of 1 %.

    The percentile bootstrap over items covers 94 % here, which fails at 0.5 % of seeds; over
    ratings it covers 88 %, which passes at 1 %; one standard error wide, 67 %, never.
    """
    generator = np.random.default_rng(1)
    covered = 0
    for _ in range(500):
        quality = generator.integers(1, 4, 60)
        ratings = [
            [int(q + generator.integers(0, 2)) for _ in range(generator.integers(1, 3))]
            for q in quality
        ]
        found = mean(ratings, seed=0, resamples=400)
        covered += found.low <= 2.5 <= found.high
    assert abs(covered / 500 - 0.95) < 0.035


def test_the_bootstrap_is_seeded_and_says_so(study):
    items = [[1 + number**2 % 7] for number in range(50)]  # enough means to tell seeds apart
    assert mean(items, seed=1) == mean(items, seed=1)
    assert mean(items, seed=1) != mean(items, seed=2)
    assert "bootstrap-over-items,percentile,n=2000,seed=5" in load(study.path, seed=5).signature


def test_the_signature_changes_with_the_study(tmp_path):
    for name in "ab":
        (tmp_path / name).mkdir()
    first, second = make_study(tmp_path / "a"), make_study(tmp_path / "b", seed=8)
    assert load(first.path).signature != load(second.path).signature


def test_csv_and_json_hold_what_was_said(study, tmp_path):
    comment = 'says "maybe",\nthen <b>no</b> – é'
    with study.store() as store:
        store.add_rater("anna, the first")
        store.save(Answer("anna, the first", 3, 2, 4, comment))
    found = load(study.path)
    found.write_csv(tmp_path / "ratings.csv")
    with open(tmp_path / "ratings.csv", encoding="utf-8", newline="") as file:
        (row,) = csv.DictReader(file)
    assert list(row) == [
        "rater", "item", "condition", "text", "coherence", "fluency", "comment", "time",
    ]  # fmt: skip
    assert row["comment"] == comment
    assert (row["rater"], row["item"]) == ("anna, the first", "3")
    assert row["condition"] == study.key().condition_of[3]
    assert row["text"] == next(item.text for item in study.items if item.id == 3)
    assert (row["coherence"], row["fluency"]) == ("2", "4")
    assert row["time"].endswith("+00:00")
    assert json.loads(json.dumps(found.to_dict()))["raters"] == {"anna, the first": 1}
    with pytest.raises(InputError, match="cannot write"):
        found.write_csv(tmp_path / "nowhere" / "ratings.csv")


# Cells and formulas.

FORMULAS = [
    "=1+1", "+1", "-1", "@SUM(A1)", "\t=1", "\r=1", "\n=1", " =1", "\u00a0-1", "＝1", "＋1", "－1",
    "＠1", '=HYPERLINK("http://evil.example";"x")', "=cmd|' /C calc'!A0", "\tx", "\rx",
]  # fmt: skip


def begins_a_formula(cell):
    return cell[:1] in ("\t", "\r", "\n") or cell.lstrip()[:1] in tuple("=+-@＝＋－＠")


@pytest.mark.parametrize("text", FORMULAS)
def test_what_could_be_a_formula_is_marked_as_text(text):
    assert to_cell(text) == f"'{text}"


def test_other_text_stays_as_it_is():
    for text in ("", "a", "a=1", "1-1", "so - so", "<b>", "é", '"=1"'):
        assert to_cell(text) == text


@given(st.text() | st.sampled_from(FORMULAS).flatmap(lambda start: st.text().map(start.__add__)))
def test_no_cell_begins_a_formula_and_every_text_comes_back(text):
    assert not begins_a_formula(to_cell(text))
    assert from_cell(to_cell(text)) == text


def test_the_csv_file_holds_no_formula_in_any_column(study, tmp_path):
    """Names, comments, texts and conditions may all be somebody else's words."""
    with study.store() as store:
        store.add_rater("=1+1")
        store.add_rater("@anna;=2")
        store.save(Answer("=1+1", 3, 2, 4, "-2+3;=1\t=1"))
        store.save(Answer("@anna;=2", 3, 2, 4, "'quoted"))
    found = load(study.path)
    rows = [{**row, "text": "=HYPERLINK(1)", "condition": "+cond"} for row in found.rows]
    replace(found, rows=rows).write_csv(tmp_path / "ratings.csv")
    content = (tmp_path / "ratings.csv").read_text()
    with open(tmp_path / "ratings.csv", encoding="utf-8", newline="") as file:
        read = list(csv.DictReader(file))
    assert not any(begins_a_formula(cell) for row in read for cell in row.values())
    assert [{name: from_cell(cell) for name, cell in row.items()} for row in read] == [
        {name: str(value) for name, value in row.items()} for row in read_order(rows)
    ]
    # Every text is quoted, so that no other separator makes a cell of its end.
    assert '"\'-2+3;=1\t=1"' in content


def read_order(rows):
    names = ("rater", "item", "condition", "text", "coherence", "fluency", "comment", "time")
    return [{name: row[name] for name in names} for row in rows]


def test_half_of_a_character_is_written_as_a_question_mark(study, tmp_path):
    with study.store() as store:
        store.add_rater("anna")
        store.save(Answer("anna", 3, 2, 4))
    found = load(study.path)
    rows = [{**row, "text": "a\ud800b"} for row in found.rows]
    replace(found, rows=rows).write_csv(tmp_path / "ratings.csv")
    assert "a?b" in (tmp_path / "ratings.csv").read_text()
