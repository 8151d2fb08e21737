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
from maskov.ui.detokenise import spelled
from report_runs import EVIL
from tiny_translation import SOURCES
from view_runs import ServedRuns, make_expert_run, make_run, make_runs

pytestmark = pytest.mark.browser

PATIENCE = 90_000
NAME = "Second <b>try</b> & more"
NARROW = PHONE | {"viewport": {"width": 360, "height": 740}}


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
        page.locator("html[data-ready]").wait_for(timeout=PATIENCE)
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
        page.locator("html[data-ready]").wait_for(timeout=PATIENCE)
        if place:
            # The player may have added its own place to the address.
            page.goto(page.url.partition("&")[0] + place)
            page.locator("html[data-ready]").wait_for(timeout=PATIENCE)
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
        expect(page.locator("#agreement")).not_to_be_empty(timeout=PATIENCE)
        return page

    return open_run


def replayed(page):
    expect(page.locator("#agreement")).not_to_be_empty(timeout=PATIENCE)
    expect(page.locator("#agreement")).to_contain_text("ends in the tokens that were recorded")


def part(page, name):
    """Read a number of the decision as it is shown."""
    return as_number(page.locator(f"#decision [data-part={name}]").first.inner_text())


def sentence(page):
    """Read the sequence as it is shown, with what stands where a step is looked at."""
    return page.locator("#sentence").evaluate(
        "(one) => [...one.childNodes].map((part) => (part.querySelector?.('.old') ?? part)"
        ".textContent).join('')"
    )


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


def test_what_is_shown_is_what_was_recorded(play, runs):
    """Through two epochs step by step: an accepted word stays, a rejected one goes."""
    model = {}
    page = play("mh", "&epoch=1")
    tokens = Run.open(runs / "mh").traces["tokens"][:, 0]
    for one in Run.open(runs / "mh").samples:
        model |= dict(zip(one.ids, one.tokens, strict=True))
    for epoch, last in ((1, 8), (2, 8), (3, 1)):
        for step in range(1, last + 1):
            page.keyboard.press("ArrowRight")
            expect(page.locator("#epoch-said")).to_have_text(f"{epoch} of 6")
            at_step(page, step)
            replayed(page)
    # The first step of an epoch is shown upon the sequence that the epoch before ended with.
    words = [model[token] for token in tokens[1].tolist()]
    assert sentence(page) == "".join(spelled(words))


def test_playing_goes_on_by_itself_through_epochs_and_pauses(play):
    page = play("mh", "&epoch=1")
    page.locator("#speed").select_option("8")
    page.get_by_role("button", name="Play", exact=True).click()
    expect(page.locator("#epoch-said")).to_have_text("2 of 6", timeout=PATIENCE)
    page.get_by_role("button", name="Pause").click()
    expect(page.get_by_role("button", name="Play", exact=True)).to_be_visible()
    replayed(page)  # the next epoch may have been on its way
    page.wait_for_timeout(300)
    stood = page.locator("#step-said").inner_text()
    page.wait_for_timeout(600)
    assert page.locator("#step-said").inner_text() == stood
    page = play("mh", "&epoch=6&step=6")
    page.locator("#speed").select_option("8")
    page.locator("body").press(" ")
    at_step(page, 8)
    expect(page.locator("#toggle")).to_have_attribute("aria-label", "Play")
    expect(page.locator("#forward")).to_be_disabled()
    expect(page.locator("#next")).to_be_disabled()


def test_scrubbing_shows_the_record_at_once_and_then_its_steps(play, runs):
    page = play("mh", "&epoch=1")
    page.locator("#epoch").focus()
    for _ in range(3):
        page.keyboard.press("ArrowRight")
    expect(page.locator("#epoch-said")).to_have_text("4 of 6")
    replayed(page)
    at_step(page, 0)
    assert "epoch=4" in page.url
    page.locator("#step").focus()
    page.keyboard.press("End")
    at_step(page, 8)
    page.locator("#chain").fill("2")
    page.locator("#chain").press("Enter")
    expect(page).to_have_url(re.compile("chain=2"), timeout=PATIENCE)
    replayed(page)
    page.reload()
    replayed(page)
    expect(page.locator("#chain")).to_have_value("2")
    expect(page.locator("#epoch-said")).to_have_text("4 of 6")


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


def test_gibbs_and_translations_are_played_too(play):
    page = play("gibbs", "&epoch=1")
    page.keyboard.press("ArrowRight")
    text = page.locator("#decision").inner_text()
    assert "accepts everything" in text or "nothing to decide" in text
    page = play("translated", "&epoch=3")
    expect(page.locator("#source")).to_have_text(f"Source: {SOURCES[0]}")
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


def test_samples_are_filtered_sorted_and_played(play):
    """The sample browser is that of a report, with a button to play."""
    page = play("mh")
    page.get_by_label("Group similar samples").uncheck()
    rows, samples = page.locator(".samples tbody tr"), page.locator("#samples")
    expect(rows).to_have_count(18)
    shown = [as_number(text) for text in rows.locator("td:nth-child(1)").all_inner_texts()]
    assert shown == sorted(shown)
    samples.get_by_role("spinbutton", name="Chain").fill("2")
    expect(rows).to_have_count(6)
    expect(page.locator(".count")).to_contain_text("6 found among 18")
    samples.get_by_label("Energy from").fill("1e9")
    expect(rows).to_have_count(0)
    samples.get_by_label("Energy from").fill("")
    samples.get_by_role("spinbutton", name="to", exact=True).fill("1e9")
    expect(rows).to_have_count(6)
    row = rows.nth(2)
    epoch = row.locator("td").nth(3).inner_text()
    row.get_by_role("button", name="Play").click()
    expect(page.locator("#epoch-said")).to_have_text(f"{epoch} of 6")
    expect(page.locator("#chain")).to_have_value("2")
    at_step(page, 8)


def test_a_run_is_started_watched_and_opened(visit):
    page = visit()
    page.get_by_label("Model").select_option("untrained")
    page.get_by_label("Epochs").fill("12")
    page.get_by_role("spinbutton", name="Chains").fill("3")
    page.get_by_role("button", name="Start and watch").click()
    page.wait_for_url("**/live")
    texts = page.locator("#chains .text")
    expect(texts).to_have_count(3, timeout=PATIENCE)
    seen = set()
    finished = page.get_by_role("link", name="Open the run")
    for _ in range(200):
        seen.add(tuple(texts.all_inner_texts()))
        if finished.is_visible():
            break
        page.wait_for_timeout(50)
    assert len(seen) > 1  # they changed while they were watched
    expect(page.locator("#state")).to_have_text("Finished")
    expect(page.locator("#figures")).to_contain_text("12 / 12")
    expect(page.locator(".chart svg .line").first).to_be_attached()
    last = texts.first.inner_text()
    finished.click()
    replayed(page)
    page.get_by_label("Group similar samples").uncheck()
    page.locator("#samples").get_by_role("spinbutton", name="Chain").fill("0")
    row = page.locator(".samples tbody tr", has=page.get_by_text("12", exact=True))
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
        expect(card.locator(".pill.wears")).to_have_text(found.state, timeout=PATIENCE)
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


def test_a_run_and_its_report_tell_the_rule_from_the_run(short, runs):
    page, said = short(), Run.open(runs / "second-try").diagnose().verdict.headline
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
    assert "##" not in page.locator("#play").inner_text()
    novel = Run.open(runs / "second-try").traces["novel"][:, 0]
    first = next(epoch for epoch, count in enumerate(novel) if count)
    expect(page.locator("#epoch-said")).to_have_text(f"{first + 1} of 12")
    expect(page.locator("#decision [data-part=outcome]")).to_have_text("✓ accepted")
    expect(page.locator("#sentence ins")).to_have_count(1)
    shown = int(re.match(r"\d+", page.locator("#step-said").inner_text())[0])
    before = page.locator("#steps tr .result").all_inner_texts()[: shown - 1]
    assert "✓ accepted" not in before


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
    page = short(**NARROW)
    page.locator("#steps").scroll_into_view_if_needed()
    for outcome in page.locator("#steps .result").all():
        box = outcome.bounding_box()
        assert box["width"] > 40
        assert box["x"] >= 0
        assert box["x"] + box["width"] <= 360
    expect(page.get_by_text("u is a random number")).to_be_visible()
    assert_nothing_is_cut_off(page)


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


@pytest.mark.parametrize("path", ["", "live"])
def test_colours_follow_the_system_and_nothing_is_wider_than_a_phone(visit, path):
    assert_colours_follow(visit(path), visit(path, **DESKTOP, color_scheme="dark"))
    assert_nothing_is_cut_off(visit(path, **PHONE))


@pytest.mark.parametrize("name", ["mh", "experts"])
def test_a_chain_is_played_on_a_phone(play, name):
    page = play(name, "&epoch=1", **PHONE)
    page.locator("#forward").tap()
    at_step(page, 1)
    assert_nothing_is_cut_off(page)


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
