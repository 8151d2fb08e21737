"""`maskov rate`: blind studies for Label Studio and CSV, their results, and agreement."""

import csv
import io
import json
from collections import Counter
from itertools import pairwise, permutations

import numpy as np
import pytest
from hypothesis import given, strategies as st

from maskov.errors import InputError
from maskov.ratings import SCALES, export, load, mean, ordinal_alpha, to_cell

# Names that stand nowhere else, so that finding one in what raters get means a leak.
NAMES = ("zebra-gibbs", "zebra-norm", "zebra-raw")
TEXTS = {
    name: [f"sentence {kind}{number} ." for number in range(10)]
    for kind, name in zip("ABC", NAMES, strict=True)
}


def study(folder, form="csv", texts=TEXTS, **settings):
    return export(folder / "study", texts, form, **{"per_run": 4, "seed": 7} | settings)


def items(key):
    return {one["item"]: one for one in json.loads(key.read_text())["items"]}


def annotated(tasks, ratings):
    """Return what Label Studio exports; `ratings` maps raters to (coherence, fluency) of items."""
    exported = []
    for number, task in enumerate(json.loads(tasks.read_text()), 100):
        annotations = [
            {
                "id": number, "completed_by": rater, "was_cancelled": False,
                "updated_at": "2026-11-17T12:00:00Z",
                "result": [
                    {"id": "x", "type": "choices", "from_name": scale, "to_name": "text",
                     "value": {"choices": [str(point)]}}
                    for scale, point in zip(SCALES, of(task["data"]["item"]), strict=True)
                ] + [{"id": "y", "type": "textarea", "from_name": "comment", "to_name": "text",
                      "value": {"text": ["so so"]}}],
            }
            for rater, of in ratings.items()
        ]  # fmt: skip
        exported.append({"id": number, "data": task["data"], "annotations": annotations})
    return exported


def filled(sheet, of):
    """Fill in a rater's sheet."""
    rows = list(csv.DictReader(io.StringIO(sheet.read_text(encoding="utf-8-sig"), newline="")))
    with open(sheet, "w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, rows[0], delimiter=";")  # as some spreadsheets save it
        writer.writeheader()
        for row in rows:
            coherence, fluency = of(int(row["item"]))
            writer.writerow(row | {"coherence": coherence, "fluency": fluency, "comment": "so so"})


# Two raters, by item.
RATERS = {1: lambda item: (1 + item % 4, 2), 2: lambda item: (1 + item % 3, 2)}


@pytest.fixture
def _files(monkeypatch, tmp_path):
    run = tmp_path / NAMES[0]
    run.mkdir()
    lines = ["".join(json.dumps({"text": text}) + "\n" for text in TEXTS[name]) for name in NAMES]
    (run / "samples.jsonl").write_text(lines[0])
    (tmp_path / f"{NAMES[1]}.jsonl").write_text(lines[1])
    (tmp_path / f"{NAMES[2]}.txt").write_text("".join(text + "\n" for text in TEXTS[NAMES[2]]))
    monkeypatch.chdir(tmp_path)


SOURCES = (NAMES[0], f"{NAMES[1]}.jsonl", f"{NAMES[2]}.txt")
EXPORT = ("rate", "export", *SOURCES, "--out", "study", "--per-run", "4", "--seed", "7")


@pytest.mark.usefixtures("_files")
def test_label_studio_and_csv_give_the_same_results(call, tmp_path):
    code, out, err = call(*EXPORT)
    assert (code, out.split()) == (0, ["study.key.json", "study/tasks.json", "study/config.xml"])
    assert "12 texts, 4 of each of 3 conditions" in err
    exported = annotated(tmp_path / "study" / "tasks.json", RATERS)
    (tmp_path / "done.json").write_text(json.dumps(exported))
    code, out, _ = call("rate", "import", "done.json", "--key", "study.key.json", "--json")
    assert code == 0
    from_label_studio = json.loads(out)

    words = (*EXPORT[:5], "--out", "sheets", *EXPORT[7:], "--format", "csv", "--raters", "2")
    code, out, _ = call(*words)
    assert code == 0
    sheets = [tmp_path / "sheets" / f"rater-{number}.csv" for number in RATERS]
    for number, sheet in zip(RATERS, sheets, strict=True):
        filled(sheet, RATERS[number])
    words = ("rate", "import", *sheets, "--key", "sheets.key.json")
    code, out, _ = call(*words, "--json", "--csv", "all.csv")
    assert code == 0
    from_csv = json.loads(out)
    assert from_label_studio.pop("raters") == {"1": 12, "2": 12}
    assert from_csv.pop("raters") == {"rater-1": 12, "rater-2": 12}
    assert from_csv == from_label_studio

    # By hand, with the key.
    found = {one["name"]: one for one in from_csv["conditions"]}
    numbers = items(tmp_path / "study.key.json")
    for name in NAMES:
        own = [item for item, one in numbers.items() if one["condition"] == name]
        points = [of(item)[0] for of in RATERS.values() for item in own]
        assert found[name]["coherence"]["value"] == pytest.approx(np.mean(points))
        assert found[name]["fluency"] == {"value": 2, "low": 2, "high": 2}
        assert [found[name][what] for what in ("items", "rated", "ratings", "raters")] == [
            4,
            4,
            8,
            2,
        ]
    pairs = [[of(item)[0] for of in RATERS.values()] for item in numbers]
    assert from_csv["coherence_alpha"] == pytest.approx(by_pairs(pairs))
    assert from_csv["fluency_alpha"] is None
    rows = list(csv.DictReader(io.StringIO((tmp_path / "all.csv").read_text("utf-8-sig"))))
    assert len(rows) == 24
    assert all(TEXTS[row["condition"]][int(row["line"]) - 1] == row["text"] for row in rows)
    assert {row["comment"] for row in rows} == {"so so"}

    code, out, err = call(*words)
    assert "2.00 [2.00, 2.00]" in out
    assert "alpha" in out
    assert "bootstrap over items" in err


def test_the_latest_annotation_counts_and_skipped_tasks_do_not(tmp_path):
    key, tasks, _ = study(tmp_path, "label-studio")
    exported = annotated(tasks, {7: lambda _: (4, 3)})
    first = exported[0]["annotations"]
    first[:] = [
        first[0] | {"completed_by": {"id": 7, "email": "a@b.example"}},
        first[0] | {"completed_by": {"id": 7, "email": "a@b.example"}, "result": [],
                    "updated_at": "2026-11-16T12:00:00Z", "was_cancelled": True},
    ]  # fmt: skip
    again = json.loads(json.dumps(exported[1]["annotations"][0]))
    again["updated_at"] = "2026-11-17T11:00:00Z"
    again["result"][0]["value"]["choices"] = ["1"]
    exported[1]["annotations"].append(again)
    for task in exported[2:]:
        task["annotations"] = []
    (tmp_path / "done.json").write_text(json.dumps(exported))
    found = load([tmp_path / "done.json"], key)
    assert found.raters == {"7": 1, "a@b.example": 1}
    assert [row["coherence"] for row in found.rows] == [4, 4]


@pytest.mark.parametrize("form", ["label-studio", "csv"])
def test_raters_get_no_condition(tmp_path, form):
    key, *files = study(tmp_path, form)
    assert key not in files
    assert key.parent != tmp_path / "study"
    assert sorted(files) == sorted((tmp_path / "study").iterdir())
    for file in files:
        seen = file.read_text()
        assert not any(word in seen for word in (*NAMES, "zebra", str(tmp_path)))
    # Not even by other names of the same texts.
    other = tmp_path / "other"
    renamed = study(other, form, dict(zip(NAMES[::-1], TEXTS.values(), strict=True)))[1:]
    assert {file.name for file in renamed} == {file.name for file in files}


def test_each_condition_gives_as_many_texts_mixed_by_the_seed(tmp_path):
    key, *_, sheet = study(tmp_path, per_run=10, raters=2)
    numbers = items(key)
    assert Counter(one["condition"] for one in numbers.values()) == dict.fromkeys(NAMES, 10)
    assert len({one["text"] for one in numbers.values()}) == 30
    in_order = [numbers[item]["condition"] for item in sorted(numbers)]
    # Of 29, where sorted ones change twice and shuffled ones 20 times.
    assert sum(a != b for a, b in pairwise(in_order)) > 8
    for one in numbers.values():
        assert TEXTS[one["condition"]][one["line"] - 1] == one["text"]
    first, second = (sheet.with_name(f"rater-{number}.csv").read_text() for number in (1, 2))
    assert first != second
    assert sorted(first) == sorted(second)
    again = study(tmp_path / "again", per_run=10)[0]
    assert items(again) == numbers
    assert items(study(tmp_path / "seed", per_run=10, seed=8)[0]) != numbers


@pytest.mark.parametrize(
    ("words", "phrase"),
    [
        ((NAMES[0], NAMES[0]), "two conditions"),
        ((f"{NAMES[2]}.txt", "--per-run", "11"), "--per-run"),
        ((f"{NAMES[2]}.txt", "--raters", "2"), "--raters"),
        ((f"{NAMES[2]}.txt", "--key", "study/key.json"), "keep the key elsewhere"),
        (("nowhere.txt",), "no such file"),
        (("empty.txt", "--per-run", "1"), "line 2 of 'empty'"),
        (("half.jsonl", "--per-run", "1"), "line 1 of 'half'"),
        (("c.jsonl", "--per-run", "1"), "not a JSON object"),
        ((f"{NAMES[2]}.txt", "--out", NAMES[0]), "already exists"),
    ],
)
@pytest.mark.usefixtures("_files")
def test_what_cannot_be_a_study_is_refused_and_leaves_nothing(refused, tmp_path, words, phrase):
    (tmp_path / "empty.txt").write_text("one\n\ntwo\n")
    (tmp_path / "half.jsonl").write_text('{"text": "half of a character: \\ud800"}\n')
    (tmp_path / "c.jsonl").write_text('{"text": 3}\n')
    assert phrase in refused("rate", "export", "--out", "study", "--per-run", "4", *words)


def test_answers_that_do_not_fit_the_key_are_refused(tmp_path):
    key, _, sheet = study(tmp_path)
    other = study(tmp_path / "other", seed=8)[0]
    empty = sheet.read_text()
    filled(sheet, RATERS[1])
    whole = sheet.read_text()
    assert load([sheet], key).raters == {"rater-1": 12}
    with pytest.raises(InputError, match="another study"):
        load([sheet], other)
    with pytest.raises(InputError, match="twice"):
        load([sheet, sheet], key)
    for content, phrase in [
        (whole.replace(";2;so so", ";5;so so", 1), "1 to 4"),
        (whole.replace(";2;so so", ";;so so", 1), "1 to 4"),
        (whole.replace("coherence", "cohesion", 1), "not readable CSV"),
        (empty.replace("rater", "x").encode("utf-16").decode("latin-1"), "not readable CSV"),
    ]:
        sheet.write_text(content)
        with pytest.raises(InputError, match=phrase):
            load([sheet], key)
    for name in ("none.csv", "none.json"):
        with pytest.raises(InputError, match=name):
            load([tmp_path / name], key)
    with pytest.raises(InputError, match="not the key"):
        load([], sheet)


# Cells and formulas.


# What begins a formula, what may stand before it, and other characters.
@given(st.text(st.sampled_from("=+-@＝＋－＠' \t\r\n\x00\u00a0\u200b\u3000a1é\"")))
def test_no_cell_begins_a_formula_and_every_text_comes_back(text):
    cell = to_cell(text)
    assert cell.lstrip()[:1] not in tuple("=+-@＝＋－＠")
    assert cell == text or cell == f"'{text}"
    assert cell.removeprefix("'") == text


def test_an_interval_resamples_items_and_not_ratings():
    """Three raters who always agree tell as much about other texts as one of them."""
    once = [[1], [2], [4], [1], [3], [2], [2], [4]]
    assert mean(once, seed=0) == mean([ratings * 3 for ratings in once], seed=0)
    assert mean([[1, 2]], seed=0).low is None


# Krippendorff (2011), "Computing Krippendorff's Alpha-Reliability", section D: four observers,
# twelve units, missing values; he gives 0.815 for ordinal data.
OBSERVERS = ["123321412...", "1233224125.3", ".3332342251.", "12332441251."]


def by_pairs(items):
    """Work it out from the definition: mean distances of pairs within items, and of all pairs."""
    items = [ratings for ratings in items if len(ratings) > 1]
    pool = [rating for ratings in items for rating in ratings]

    def distance(c, k):
        low, high = min(c, k), max(c, k)
        between = sum(low <= rating <= high for rating in pool)
        return (between - (pool.count(low) + pool.count(high)) / 2) ** 2

    observed = sum(
        distance(a, b) / (len(ratings) - 1)
        for ratings in items
        for a, b in permutations(ratings, 2)
    ) / len(pool)
    expected = sum(distance(a, b) for a, b in permutations(pool, 2))
    return 1 - observed / (expected / (len(pool) * (len(pool) - 1)))


def test_alpha_of_the_published_example_with_missing_data():
    columns = [[int(v) for v in column if v != "."] for column in zip(*OBSERVERS, strict=True)]
    assert ordinal_alpha(columns) == pytest.approx(0.815, abs=5e-4)
    assert ordinal_alpha([[1, 1], [4, 4], [2, 2, 2]]) == 1
    # Ratings 1 1 2 2, always apart: of 12 ordered pairs 8 differ, so 1 − 1 / (8/12).
    assert ordinal_alpha([[1, 2], [2, 1]]) == pytest.approx(-0.5)
