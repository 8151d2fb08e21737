"""Claims: every one names numbers that exist, and its verdict follows from them alone."""

import json
import re
from pathlib import Path

import numpy as np
import pytest
from experiments.findings import PAGES, WHY, Results
from experiments.lib.result import Entry, Result, build_document
from experiments.lib.settings import SETTINGS
from experiments.paper.claim_tests import less
from experiments.paper.claims import CLAIMS
from experiments.paper.claims_page import render_page
from experiments.paper.registry import RESULTS
from experiments.paper.verdicts import FAILED, HELD, NOT_RUN, PART, UNSETTLED, Claim

FULL = SETTINGS["full"]


def _made(name: str):
    """Return a result whose every number is the paper's, or 1 where the paper has none."""
    result, cells = RESULTS[name], {}
    for entry in result.entries(FULL):
        cell = cells.setdefault(entry.cell, {"seconds": 1.0, "device": "cpu", "values": {}})
        value = 1.0 if entry.paper is None else entry.paper
        cell["values"][entry.quantity] = {"value": value, "standard_error": 0.0, "n": 5}
    return build_document(result, FULL, cells, [])


@pytest.fixture
def everything():
    found = {name: _made(name) for name in RESULTS}
    curve = {"value": [0.9, 0.5, 0.4], "standard_error": [0.0, 0.0, 0.0]}
    rising = {"value": [1.0, 2.0, 3.0], "standard_error": [0.0, 0.0, 0.0]}
    for name in ("raw", "norm"):
        found["blocksize"]["cells"][name]["epochs"] = {"acceptance": curve}
    found["figure1"]["cells"]["deg"]["epochs"] = {"energy_norm": rising}
    return found


def test_every_claim_finds_its_numbers(everything):
    for claim in CLAIMS:
        verdict, outcomes = claim.verdict(everything)
        assert verdict != NOT_RUN, claim.text
        assert all(outcome.ours for outcome in outcomes)


def test_the_papers_own_numbers_uphold_the_claims_they_were_made_of(everything):
    numbered = {"table1", "table2", "table5", "table6", "table7", "acceptance", "table4"}
    fared = {
        claim.text: claim.verdict(everything)[0]
        for claim in CLAIMS
        if claim.result in numbered and not claim.text.startswith("Ours")
    }
    # Equal to a digit counts as unsettled, and two sentences of the paper are not its tables'.
    assert [text for text, verdict in fared.items() if verdict not in (HELD, PART)] == []


def _two(low: float, high: float, error: float):
    cells = {
        name: {"values": {"bleu": {"value": value, "standard_error": error, "n": 5}}}
        for name, value in (("a", low), ("b", high))
    }
    entries = [Entry("bleu", name, 1.0, name, 20.0) for name in cells]
    result = Result("table1", "t", "", lambda s: {}, lambda s: entries, lambda d: None)
    return {"table1": build_document(result, FULL, cells, ["c"])}


CLAIM = Claim("t", "table1", less("table1", (("bleu", "a", 1.0), ("bleu", "b", 1.0))), "")


@pytest.mark.parametrize(
    ("low", "high", "error", "verdict"),
    [
        (1.0, 2.0, 0.1, HELD),
        (2.0, 1.0, 0.1, FAILED),
        (1.0, 2.0, 0.4, UNSETTLED),
        (2.0, 1.0, 0.4, UNSETTLED),
        (1.0, 1.0, 0.0, UNSETTLED),
    ],
)
def test_two_standard_errors_settle_a_comparison(low, high, error, verdict):
    assert CLAIM.verdict(_two(low, high, error))[0] == verdict


@pytest.fixture(scope="module")
def stored():
    return Results(Path(__file__).parents[2] / "results")


@pytest.mark.parametrize("file", PAGES)
def test_pages_of_results_are_written_from_the_documents(file, stored):
    text = (stored.root / file).read_text(encoding="utf-8")
    assert text == PAGES[file](stored)
    if file == "README.md":  # the README repeats two of its numbers
        front = (stored.root.parent / "README.md").read_text(encoding="utf-8")
        found = re.search(r"reach in ([\d,]+) masked passes .* reach in ([\d,]+)", front)
        assert all(number in text for number in found.groups())
    assert len(text.splitlines()) <= 120


def test_every_reason_belongs_to_a_verdict_of_the_page(stored):
    documents = stored.documents("paper")
    found = {(claim.text, claim.verdict(documents)[0]) for claim in CLAIMS}
    for start, verdict in WHY:
        assert any(text.startswith(start) and verdict == one for text, one in found), start


def test_pages_of_claims_are_written_from_the_documents(stored):
    for folder in [stored.root / "paper", *(stored.root / "variants").glob("*/")]:
        text = (folder / "README.md").read_text(encoding="utf-8")
        assert text == render_page(stored.documents(str(folder.relative_to(stored.root))))


def _numbers(data):
    """Yield every number of a document, and those in its texts."""
    if isinstance(data, dict | list):
        for one in data.values() if isinstance(data, dict) else data:
            yield from _numbers(one)
    elif isinstance(data, str):
        yield from map(float, re.findall(r"\d+\.\d+", data))
    elif isinstance(data, int | float):
        value = abs(data)  # also as a percentage, and without its power of ten
        yield from (value, 100 * value, value / 10 ** np.floor(np.log10(value or 1)))


# Pages that are written by hand: where else their numbers are from, and settings that they name.
BY_HAND = {
    "english": ((), {"12.0", "12.2", "8.3", "1.68"}),
    "energies": ((), set()),
    "antibody": ((), {"0.0021", "0.016", "0.022", "0.2"}),
    "translation": (("paper", "translation-newstest2016"), set()),
}


@pytest.mark.parametrize("folder", BY_HAND)
def test_measured_numbers_of_other_pages_stand_in_the_documents(folder, stored):
    folders, settings = BY_HAND[folder]
    files = [file for one in (folder, *folders) for file in (stored.root / one).glob("*.json")]
    known = np.array(sorted({n for file in files for n in _numbers(json.loads(file.read_text()))}))
    text = (stored.root / folder / "README.md").read_text(encoding="utf-8")
    text = re.sub(r"```.*?```|`[^`]*`", "", text, flags=re.S)
    for shown in set(re.findall(r"(?<![\w.,])\d+\.\d+", text)) - settings:
        rounding = 0.51 * 10 ** -len(shown.partition(".")[2])
        assert np.abs(known - float(shown)).min() <= rounding, shown
