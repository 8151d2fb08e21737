"""`infill` answers with each distinct text, how often it was drawn, and its energy."""

from __future__ import annotations

from collections import Counter

import pytest

from maskov.cli import fills

WORDS = ["--model", "untrained", "-n", "20", "-c", "4", "--workers", "0", "-q"]


@pytest.fixture
def all_rows(monkeypatch):
    monkeypatch.setattr(fills, "_SHOWN", 1000)


@pytest.fixture
def printed(call):
    def run(*words):
        code, out, err = call("infill", *words, *WORDS)
        assert code == 0, err
        return out.splitlines()

    return run


def rows_of(lines):
    names = lines[0].split()
    return [dict(zip(names, line.split(None, len(names) - 1), strict=True)) for line in lines[1:]]


@pytest.mark.parametrize("template", ["the [MASK] sat", "she [MASK{1,3}]"])
def test_fills_are_counted_over_all_draws_most_frequent_first(template, all_rows, printed, rows):
    """The draws are those that `--thin 1` keeps, so that both must agree."""
    kept = rows("infill", template, *WORDS, "--thin", "1")
    rows = rows_of(printed(template))
    counts = Counter(sample["text"].strip() for sample in kept)
    assert len(kept) > 40
    assert {row["text"].strip(): int(row["count"]) for row in rows} == counts
    numbers = [int(row["count"]) for row in rows]
    assert numbers == sorted(numbers, reverse=True)
    energy = {sample["text"].strip(): sample for sample in kept}
    for row in rows:
        assert row["share"] == f"{int(row['count']) / len(kept):.1%}"
        for name in ("raw", "norm"):
            expected = energy[row["text"].strip()][f"energy_{name}"]
            assert float(row[f"E_{name}"]) == pytest.approx(expected, abs=0.006)


def test_templates_are_told_apart(tmp_path, all_rows, printed):
    (tmp_path / "templates").write_text("the [MASK] sat\nno [MASK]\n")
    rows = rows_of(printed(tmp_path / "templates"))
    assert {row["text"].split()[0] for row in rows if row["template"] == "1"} == {"the"}
    assert {row["text"].split()[0] for row in rows if row["template"] == "2"} == {"no"}
    for number in "12":
        shares = [float(row["share"].rstrip("%")) for row in rows if row["template"] == number]
        assert sum(shares) == pytest.approx(100, abs=1)


def test_json_has_the_samples(rows):
    assert [row["chain"] for row in rows("infill", "the [MASK] sat", *WORDS)] == [0, 1, 2, 3]


def test_rare_fills_are_left_out_of_the_table_and_counted(monkeypatch, call):
    monkeypatch.setattr(fills, "_SHOWN", 2)
    _, out, err = call("infill", "the [MASK] [MASK] sat", *WORDS[:-1])
    assert len(out.splitlines()) == 3
    assert "counts of 48 draws" in err
    assert "more fills are not shown (--json" in err
