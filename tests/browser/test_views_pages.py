"""The pages of `maskov serve` in Chromium: chains played, samples filtered, a run watched."""

import json
import math
import re

import pytest
from chromium import Visits
from pages import (
    DESKTOP,
    PHONE,
    as_number,
    assert_colours_follow,
    assert_nothing_is_cut_off,
    assert_tab_reaches_everything,
)
from playwright.sync_api import expect

from maskov import Run, Schedule
from report_runs import EVIL
from view_runs import ServedRuns, make_expert_run, make_run, make_runs

pytestmark = pytest.mark.browser

NAME = "Second <b>try</b> & more"


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    folder = make_runs(tmp_path_factory.mktemp("pages"))
    make_expert_run(folder / "experts")
    make_run(folder / "second-try", name=NAME, schedule=Schedule(epochs=12))
    # Markup wherever a run can hold text.
    make_run(folder / "evil", chains=1)
    file = folder / "evil" / "manifest.json"
    manifest = json.loads(file.read_text())
    file.write_text(json.dumps({**manifest, "signature": EVIL, "notes": [EVIL]}))
    lines = (folder / "evil" / "samples.jsonl").read_text().splitlines()
    evil = [json.dumps({**json.loads(line), "text": EVIL}) for line in lines]
    (folder / "evil" / "samples.jsonl").write_text("\n".join(evil) + "\n")
    return folder


@pytest.fixture(scope="module")
def served(runs, tmp_path_factory):
    with ServedRuns(runs, tmp_path_factory.mktemp("made") / "runs") as server:
        yield server


@pytest.fixture
def visit(browser, served):
    """Open a page of the server; afterwards, hold it to that server and to a clean console."""
    visits = Visits(browser)

    def open_page(path="", **view):
        page = visits.page(**(view or DESKTOP))
        page.emulate_media(reduced_motion="reduce")
        page.goto(served.address + path)
        page.locator("html[data-ready]").wait_for()
        return page

    yield open_page
    visits.close()
    # Two tests are about what is not there and what is refused.
    complaints = [text for text in visits.complaints if not re.search("status of 4[02]", text)]
    assert all(url.startswith((served.address, "blob:", "data:,")) for url in visits.addresses)
    assert complaints == []
    assert len(visits.complaints) <= 1


@pytest.fixture
def play(visit, served):
    """Open a run's page by the run's name, its chain loaded."""

    def open_run(name, place="", **view):
        page = visit("", **view)
        page.locator("#runs-list a", has_text=re.compile(f"^{name}$")).click()
        page.locator("html[data-ready]").wait_for()
        if place:
            # The player may have added its own place to the address.
            page.goto(page.url.partition("&")[0] + place)
            page.locator("html[data-ready]").wait_for()
        replayed(page)
        page.evaluate("document.getElementById('play').scrollIntoView()")
        return page

    return open_run


@pytest.fixture
def short(visit):
    """Open the page of the named run, its chain replayed."""

    def open_run(**view):
        page = visit("", **view)
        page.get_by_role("link", name=NAME).click()
        expect(page.locator("#agreement")).not_to_be_empty()
        return page

    return open_run


def replayed(page):
    expect(page.locator("#agreement")).not_to_be_empty()
    expect(page.locator("#agreement")).to_contain_text("ends in the tokens that were recorded")


def part(page, name):
    """Read a number of the decision as it is shown."""
    return as_number(page.locator(f"#decision [data-part={name}]").first.inner_text())


def at_step(page, number):
    expect(page.locator("#step-said")).to_have_text(re.compile(f"^{number} of"))


def test_a_chain_is_played_and_every_decision_follows_from_what_is_shown(play):
    page = play("mh", "&epoch=3&chain=1")
    decided, outcomes = 0, set()
    steps = page.locator("#steps tr").count()
    assert steps == 8
    for number in range(1, steps + 1):
        page.keyboard.press("ArrowRight")
        at_step(page, number)
        outcome = page.locator("#decision [data-part=outcome]").inner_text().split()[-1]
        outcomes.add(outcome)
        row = page.locator("#steps tr").nth(number - 1)
        expect(row).to_have_attribute("aria-current", "step")
        expect(row).to_contain_text(outcome)
        if outcome == "unchanged":
            continue
        decided += 1
        fall = part(page, "energy-old") - part(page, "energy-new")
        assert part(page, "fall") == pytest.approx(fall, abs=2e-4)
        ratio = part(page, "fall") + part(page, "q-reverse") - part(page, "q-forward")
        assert part(page, "log-ratio") == pytest.approx(ratio, abs=2e-4)
        tests = page.locator("#decision .test").all()
        for test in tests:
            u = float(test.locator("[data-part=u]").inner_text())
            log_u = as_number(test.locator("[data-part=log-u]").inner_text())
            below = float(test.locator("[data-part=threshold]").get_attribute("data-value"))
            if u > 0.01:  # of a tiny u too few digits are shown
                assert log_u == pytest.approx(math.log(u), abs=1e-2)
            assert (test.get_attribute("data-passed") == "true") == (log_u < below)
        passed = all(test.get_attribute("data-passed") == "true" for test in tests)
        assert outcome == ("accepted" if passed else "rejected")
        if len(tests) == 2:
            last = tests[1].locator("[data-part=threshold]")
            first = float(tests[0].locator("[data-part=threshold]").get_attribute("data-value"))
            rest = float(last.get_attribute("data-value"))
            assert first + rest == pytest.approx(part(page, "log-ratio"), abs=2e-4)
    assert decided
    assert outcomes >= {"rejected", "unchanged"} or "accepted" in outcomes


def test_each_expert_shows_its_share_of_a_decision(play):
    page = play("experts", "&epoch=2")
    expect(page.locator("#ended")).to_contain_text("edit")
    expect(page.locator("#charts")).to_contain_text("contains('river', 'bridge') by epoch")
    decided = 0
    for number in range(1, page.locator("#steps tr").count() + 1):
        page.keyboard.press("ArrowRight")
        at_step(page, number)
        if page.locator("#decision [data-part=outcome]").inner_text().endswith("unchanged"):
            continue
        decided += 1
        shares = page.locator("#decision .shares dt")
        assert [text.partition(" (")[0] for text in shares.all_inner_texts()] == [
            "norm", "2 · edit", "3 · contains('river', 'bridge')",
        ]  # fmt: skip
        expect(page.locator("#decision .test").first).to_contain_text("test, by edit")
    assert decided


def test_keys_alone_do_everything(play):
    page = play("mh", "&epoch=1")
    assert_tab_reaches_everything(page)
    page.locator("#sentence").click()
    page.keyboard.press("End")
    at_step(page, 8)
    page.keyboard.press("ArrowLeft")
    at_step(page, 7)
    page.keyboard.press("Shift+ArrowRight")
    expect(page.locator("#epoch-said")).to_have_text("2 of 6")
    replayed(page)
    page.keyboard.press("ArrowLeft")
    expect(page.locator("#epoch-said")).to_have_text("1 of 6")
    at_step(page, 8)
    page.keyboard.press("Home")
    at_step(page, 0)
    page.keyboard.press(" ")
    expect(page.locator("#toggle")).to_have_attribute("aria-label", "Pause")
    page.keyboard.press(" ")
    expect(page.locator("#toggle")).to_have_attribute("aria-label", "Play")
    page.keyboard.press("Home")
    page.keyboard.press("ArrowRight")
    expect(page.locator("#spoken")).to_contain_text("Step 1 of 8: position")
    # Out of sight the player leaves the keys to the page.
    page.evaluate("document.getElementById('about').scrollIntoView()")
    page.keyboard.press("ArrowRight")
    at_step(page, 1)


def test_a_run_that_cannot_be_played_says_why_and_shows_the_rest(visit):
    page = visit()
    page.get_by_role("link", name="untraced").click()
    expect(page.locator("#play-said")).to_contain_text("tokens were not traced")
    expect(page.locator("#player")).to_be_hidden()
    page.get_by_label("Group similar samples").uncheck()
    expect(page.locator(".samples tbody tr")).to_have_count(18)
    expect(page.locator(".chart svg .line").first).to_be_attached()
    page = visit("run?id=nobody")
    expect(page.locator("h1")).to_have_text("No such run")


def test_a_run_is_started_watched_and_opened(visit):
    page = visit()
    page.get_by_label("Model").select_option("untrained")
    page.get_by_label("Epochs").fill("30")
    page.get_by_role("spinbutton", name="Chains").fill("3")
    page.get_by_role("button", name="Start and watch").click()
    page.wait_for_url("**/live")
    texts = page.locator("#chains .text")
    expect(texts).to_have_count(3)
    begun = texts.all_inner_texts()
    finished = page.get_by_role("link", name="Open the run")
    expect(finished).to_be_visible()
    assert texts.all_inner_texts() != begun  # they changed while they were watched
    expect(page.locator("#state")).to_have_text("Finished")
    expect(page.locator("#figures")).to_contain_text("30 / 30")
    expect(page.locator(".chart svg .line").first).to_be_attached()
    last = texts.first.inner_text()
    finished.click()
    replayed(page)
    page.get_by_label("Group similar samples").uncheck()
    page.locator("#samples").get_by_role("spinbutton", name="Chain").fill("0")
    row = page.locator(".samples tbody tr", has=page.get_by_text("30", exact=True))
    shown = row.locator(".text").first.inner_text()
    assert re.sub(r"\W+", "", shown) == re.sub(r"\W+", "", last)


def test_the_form_says_what_is_wrong(visit):
    page = visit()
    page.get_by_role("spinbutton", name="Chains").fill("99")
    page.get_by_role("button", name="Start and watch").click()
    expect(page.locator("#refusal")).to_contain_text("Chains")
    expect(page.get_by_role("spinbutton", name="Chains")).to_be_focused()
    page.get_by_label("Method").select_option("gibbs")
    expect(page.get_by_label("Energy")).to_be_disabled()


def test_markup_in_a_run_does_nothing(play):
    page = play("evil")
    assert page.evaluate("window.hacked") is None
    assert page.locator("img").count() == 0
    expect(page.locator("#signature")).to_contain_text("<script>window.hacked=1</script>")
    expect(page.locator(".samples .text").first).to_contain_text("<script>window.hacked=1</script>")


def test_cards_wear_the_verdict_and_the_name(visit, runs):
    page = visit()
    for folder in ("second-try", "gibbs"):
        found = Run.open(runs / folder).diagnose().verdict
        card = page.locator("#runs-list li", has_text=folder)
        expect(card.locator(".pill.wears")).to_have_text(found.state)
        expect(card.locator(".pill.wears")).to_have_attribute("title", found.reason)
    named = page.locator("#runs-list li", has_text="second-try")
    expect(named.locator("h3")).to_have_text(NAME)
    said = Run.open(runs / "second-try").diagnose().verdict.headline
    assert said.startswith("The rule is exact;")
    expect(named.locator(".said-of-it")).to_contain_text(said)
    expect(named.locator(".bad")).to_have_count(0)
    other = page.locator("#runs-list li", has_text="gibbs")
    expect(other.locator(".said-of-it")).to_contain_text("The rule is not exact")
    page.get_by_label("Find").fill("second")
    expect(page.locator("#runs-list li")).to_have_count(1)
    page.get_by_label("Find").fill("broken")
    expect(page.locator("#runs-list")).to_contain_text("no readable manifest")
    expect(page.locator("#runs-list a")).to_have_count(0)


def test_the_player_opens_at_the_first_accepted_change(short, runs):
    page = short()
    assert "##" not in page.locator("#play").inner_text()
    novel = Run.open(runs / "second-try").traces["novel"][:, 0]
    first = next(epoch for epoch, count in enumerate(novel) if count)
    expect(page.locator("#epoch-said")).to_have_text(f"{first + 1} of 12")
    expect(page.locator("#decision [data-part=outcome]")).to_have_text("✓ accepted")
    expect(page.locator("#sentence ins")).to_have_count(1)
    shown = int(re.match(r"\d+", page.locator("#step-said").inner_text())[0])
    before = page.locator("#steps tr .result").all_inner_texts()[: shown - 1]
    assert "✓ accepted" not in before


@pytest.mark.parametrize("path", ["", "live"])
def test_colours_follow_the_system_and_nothing_is_wider_than_a_phone(visit, path):
    assert_colours_follow(visit(path), visit(path, **DESKTOP, color_scheme="dark"))
    assert_nothing_is_cut_off(visit(path, **PHONE))


@pytest.mark.parametrize("view", [
    DESKTOP | {"color_scheme": "light"}, DESKTOP | {"color_scheme": "dark"}, PHONE,
    PHONE | {"color_scheme": "dark"},
], ids=["light", "dark", "phone", "phone-dark"])  # fmt: skip
@pytest.mark.parametrize("name", ["runs", "mh", "experts", "translated", "live"])
def test_axe_finds_nothing(visit, play, accessible, name, view):
    if name in ("runs", "live"):
        page = visit("" if name == "runs" else "live", **view)
        if name == "runs":
            expect(page.locator("#runs-list li").first).to_be_visible()
    else:
        page = play(name, "&epoch=3", **view)
        for _ in range(3):
            page.locator("#forward").click()
    assert accessible(page) == []
