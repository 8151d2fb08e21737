"""What pages tell a newcomer: verdicts, names, whole words, and what terms mean."""

from __future__ import annotations

import re

import pytest
from chromium import Visits
from pages import DESKTOP, assert_nothing_is_cut_off
from playwright.sync_api import expect

from maskov import Gibbs, Run, Schedule
from maskov.ui.detokenise import respaced
from view_runs import ServedRuns, make_run

pytestmark = pytest.mark.browser

NAME = "Second <b>try</b> & more"
PHONE = {"viewport": {"width": 360, "height": 740}, "is_mobile": True, "has_touch": True}
PATIENCE = 30_000
# Words as tokenizers give them, one string for each token.
SPELLINGS = {
    "the l ##s ##d , he said .": "the lsd, he said.",
    'anglo - norman ( or " old " ) and / or': 'anglo-norman (or "old") and/or',
    "the king ' s men don ' t": "the king's men don't",
    "it cost $ 10 , 000 in 3 . 5 years": "it cost $10,000 in 3.5 years",
    "in 2008 , 5 men": "in 2008, 5 men",
    "- a list": "- a list",
    "E V Q L V": "EVQLV",
}


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("cards") / "runs"
    make_run(folder / "short", name=NAME, schedule=Schedule(epochs=12))
    make_run(folder / "gibbs", kernel=Gibbs(), chains=1)
    return folder


@pytest.fixture(scope="module")
def served(runs, tmp_path_factory):
    with ServedRuns(runs, tmp_path_factory.mktemp("made") / "runs") as server:
        yield server


@pytest.fixture
def visit(browser, served):
    visits = Visits(browser)

    def open_page(path="", **view):
        page = visits.page(**(view or DESKTOP))
        page.emulate_media(reduced_motion="reduce")
        page.goto(served.address + path)
        page.locator("html[data-ready]").wait_for(timeout=PATIENCE)
        return page

    yield open_page
    visits.close()
    # A request that the server refuses is what one test is about.
    assert [text for text in visits.complaints if "status of 422" not in text] == []


@pytest.fixture
def short(visit):
    """Open the page of the named run, its chain replayed."""

    def open_run(**view):
        page = visit("", **view)
        page.get_by_role("link", name=NAME).click()
        expect(page.locator("#agreement")).not_to_be_empty(timeout=PATIENCE)
        return page

    return open_run


def test_cards_wear_the_verdict_and_the_name(visit, runs):
    page = visit()
    for folder in ("short", "gibbs"):
        found = Run.open(runs / folder).diagnose().verdict
        card = page.locator("#runs-list li", has_text=folder)
        expect(card.locator(".pill.wears")).to_have_text(found.state, timeout=PATIENCE)
        expect(card.locator(".pill.wears")).to_have_attribute("title", found.reason)
    named = page.locator("#runs-list li", has_text="short")
    expect(named.locator("h3")).to_have_text(NAME)
    said = Run.open(runs / "short").diagnose().verdict.headline
    assert said.startswith("The rule is exact;")
    expect(named.locator(".said-of-it")).to_contain_text(said)
    expect(named.locator(".bad")).to_have_count(0)
    other = page.locator("#runs-list li", has_text="gibbs")
    expect(other.locator(".said-of-it")).to_contain_text("The rule is not exact")
    page.get_by_label("Find").fill("second")
    expect(page.locator("#runs-list li")).to_have_count(1)


def test_a_run_and_its_report_tell_the_rule_from_the_run(short, runs):
    page, said = short(), Run.open(runs / "short").diagnose().verdict.headline
    expect(page.locator("h1")).to_have_text(NAME)
    banner = page.locator(".verdict")
    expect(banner).to_contain_text(said)
    expect(banner).to_have_class("verdict open")
    page.get_by_role("link", name="The whole report").click()
    expect(page.locator("h1")).to_have_text(NAME)
    expect(page.locator(".verdict")).to_contain_text(said)
    expect(page.locator(".verdict")).to_have_class("verdict open")
    assert page.get_by_text("target invariant").count() == 0


def test_the_player_opens_at_the_first_accepted_change(short, runs):
    page = short()
    novel = Run.open(runs / "short").traces["novel"][:, 0]
    first = next(epoch for epoch, count in enumerate(novel) if count)
    expect(page.locator("#epoch-said")).to_have_text(f"{first + 1} of 12")
    expect(page.locator("#decision [data-part=outcome]")).to_have_text("✓ accepted")
    expect(page.locator("#sentence ins")).to_have_count(1)
    shown = int(re.match(r"\d+", page.locator("#step-said").inner_text())[0])
    before = page.locator("#steps tr .result").all_inner_texts()[: shown - 1]
    assert "✓ accepted" not in before


def test_words_are_whole_and_spaced_as_people_write(short):
    page = short()
    for tokens, text in SPELLINGS.items():
        words = tokens.split(" ")
        assert page.evaluate("(words) => joined(spelled(words))", words) == text
        # Samples are spelled in Python, by the same rules.
        spaces = [not word.startswith("##") for word in words]
        bare = [word.removeprefix("##") for word in words]
        parts = zip(bare, respaced(bare, spaces), strict=True)
        assert "".join(" " * space + word for word, space in parts) == text
    parts = """([before, after, step]) => changedParts(before, after, step)
        .map(({ from, to }) => [from, to])"""
    before = ["the", "l", "##s", "##d", "is", "a", "part", "."]
    after = ["the", "l", "##ate", "##d", "is", "a", "man", "."]
    step = {"start": None, "positions": [6, 2], "old": [0, 0], "new": [0, 0]}
    assert page.evaluate(parts, [before, after, step]) == [["lsd", "lated"], ["part", "man"]]
    longer = ["the", "l", "##s", "##d", "##s", "now", "is", "a", "part", "."]
    step = {"start": 4, "positions": [4], "old": [], "new": [1, 2]}
    assert page.evaluate(parts, [before, longer, step]) == [["lsd", "lsds now"]]
    assert "##" not in page.locator("#play").inner_text()


def test_log_u_and_the_limit_are_explained_by_pointer_and_by_keys(short):
    page = short()
    for name, meaning in (("log u", "random number between 0 and 1"), ("limit", "fall of the")):
        term = page.locator(".steps").get_by_role("button", name=name, exact=True)
        tip = page.get_by_role("tooltip").filter(has_text=meaning)
        expect(tip).to_have_count(0)
        # Scrolling hides what is explained.
        term.scroll_into_view_if_needed()
        page.wait_for_timeout(100)
        term.hover()
        expect(tip).to_be_visible()
        page.mouse.move(0, 0)
        expect(tip).to_have_count(0)
        term.focus()
        expect(tip).to_be_visible()
        page.keyboard.press("Escape")
        expect(tip).to_have_count(0)
        expect(term).to_have_accessible_description(re.compile(meaning))


def test_outcomes_are_in_sight_on_a_phone(short):
    page = short(**PHONE)
    page.locator("#steps").scroll_into_view_if_needed()
    for outcome in page.locator("#steps .result").all():
        box = outcome.bounding_box()
        assert box["width"] > 40
        assert box["x"] >= 0
        assert box["x"] + box["width"] <= 360
    expect(page.get_by_text("u is a random number")).to_be_visible()
    assert_nothing_is_cut_off(page)


def test_live_has_its_button_while_nothing_runs(visit):
    page = visit("live", **PHONE)
    page.get_by_role("link", name="Start a run").click()
    expect(page.get_by_role("button", name="Start and watch")).to_be_visible()


def test_a_run_is_started_from_a_text_with_frozen_tokens_and_a_name(visit):
    page = visit()
    page.get_by_label("Model").select_option("untrained")
    page.get_by_label("Epochs").fill("3")
    page.get_by_role("spinbutton", name="Chains").fill("2")
    page.get_by_text("Name, starting text, prefix").click()
    expect(page.get_by_label("Freeze")).to_be_disabled()
    page.get_by_label("Name", exact=True).fill("From a text")
    page.get_by_label("Starting text").fill("the river is long")
    expect(page.get_by_role("spinbutton", name="Tokens")).to_be_disabled()
    page.get_by_label("Freeze").fill(__file__)
    page.get_by_role("button", name="Start and watch").click()
    expect(page.locator("#refusal")).to_contain_text("not a file")
    page.get_by_label("Freeze").fill("re:riv.r")
    page.get_by_role("button", name="Start and watch").click()
    page.wait_for_url("**/live")
    expect(page.locator("h1")).to_have_text("From a text")
    expect(page.locator("#state")).to_have_text("Finished", timeout=PATIENCE)
    for text in page.locator("#chains .text").all_inner_texts():
        assert "river" in text
    expect(page.get_by_role("link", name="Start a run")).to_be_visible()


def test_similar_samples_are_one_row_that_opens(short, runs):
    page = short()
    rows = page.locator("#found tr")
    every = len(Run.open(runs / "short").samples)
    expect(page.locator("#count")).to_have_text(re.compile(rf"^{every} of {every} samples in \d+"))
    grouped = rows.count()
    assert grouped < every
    button = page.locator("#found .similar").first
    more = int(re.search(r"\d+", button.inner_text())[0])
    button.click()
    expect(rows).to_have_count(grouped + more)
    expect(button).to_have_attribute("aria-expanded", "true")
    button.click()
    expect(rows).to_have_count(grouped)
    page.get_by_label("Group similar samples").uncheck()
    expect(page.locator("#count")).to_have_text(f"{every} of {every} samples, the first 25 shown")
