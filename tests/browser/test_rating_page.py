"""The rating page in Chromium: whole studies, by keyboard and on a phone, through a crash."""

from __future__ import annotations

import pytest
from pages import DESKTOP, PHONE, assert_nothing_is_cut_off, ground
from playwright.sync_api import expect

from maskov.ui.ratings import load
from rating_server import CONDITIONS, ForkedServer

pytestmark = pytest.mark.browser


def shown(page, number):
    """Wait for the number-th sentence; return its text."""
    expect(page.locator("#heading")).to_have_text(f"Sentence {number} of 9")
    return page.locator("#sentence").text_content()


def tap(page, scale, point):
    page.locator(f"#{scale} .point").nth(point - 1).tap()


def by_keys(page, number, answers):
    """Rate one sentence by keyboard alone, in one of the ways there are."""
    text = shown(page, number)
    coherence, fluency = 1 + number % 4, 1 + number % 3
    keys = [str(coherence), str(fluency) if number % 2 else "qwer"[fluency - 1]]
    for key in keys:
        page.keyboard.press(key)
    comment = f"<b>{number}</b> 1 2 c" if number == 2 else ""
    if comment:
        page.keyboard.press("c")
        page.keyboard.type(comment)
        page.keyboard.press("Escape")
    page.keyboard.press("Enter" if number % 2 else "ArrowRight")
    answers["anna", text] = (coherence, fluency, comment)


def by_taps(page, number, answers):
    text = shown(page, number)
    coherence, fluency = 1 + number % 3, 1 + number % 4
    tap(page, "fluency", fluency)
    tap(page, "coherence", coherence)
    page.get_by_role("button", name="Next").tap()
    answers["ben", text] = (coherence, fluency, "")


def test_two_raters_rate_a_whole_study_though_the_server_is_killed(study, server, visit):
    anna, ben = visit("anna", **DESKTOP), visit("ben", **PHONE)
    answers = {}
    for number in (1, 2, 3, 4):
        by_keys(anna, number, answers)
        by_taps(ben, number, answers)
    shown(anna, 5)
    shown(ben, 5)
    server.kill()
    with study.store() as store:
        assert len(store.answers()) == 8

    # Both answer a server that is not there: they are told, stay where they are, and lose nothing.
    by_keys(anna, 5, answers)
    by_taps(ben, 5, answers)
    for page in (anna, ben):
        expect(page.locator("#status")).to_contain_text("Not saved yet")
        expect(page.locator("#count")).to_have_text("4 of 9 rated")
        shown(page, 5)
    with ForkedServer(study.path, server.port):
        shown(anna, 6)  # the pages try again by themselves
        shown(ben, 6)
        ben.reload()
        expect(ben.locator("#count")).to_have_text("5 of 9 rated")
        for number in (6, 7, 8, 9):
            by_keys(anna, number, answers)
            by_taps(ben, number, answers)
        for page in (anna, ben):
            expect(page.get_by_text("Thank you")).to_be_visible()
            expect(page.locator("#count")).to_have_text("9 of 9 rated")
            page.reload()
            expect(page.get_by_text("Thank you")).to_be_visible()
    found = load(study.path)
    assert {
        (row["rater"], row["text"]): (row["coherence"], row["fluency"], row["comment"])
        for row in found.rows
    } == answers
    assert [condition.ratings for condition in found.conditions] == [6, 6, 6]


def test_going_back_and_changing_ones_mind(study, visit):
    page = visit("anna", **DESKTOP)
    first = shown(page, 1)
    page.keyboard.type("14")
    page.keyboard.press("Enter")
    shown(page, 2)
    page.keyboard.press("ArrowLeft")
    assert shown(page, 1) == first
    expect(page.get_by_role("radio", name="No sense")).to_be_checked()
    expect(page.get_by_role("radio", name="Flawless")).to_be_checked()
    page.keyboard.press("3")  # the first again
    page.keyboard.press("2")
    page.keyboard.press("1")  # and the second twice
    page.keyboard.press("Backspace")
    page.keyboard.press("4")
    page.keyboard.press("Enter")
    shown(page, 2)
    (row,) = load(study.path).rows
    assert (row["coherence"], row["fluency"]) == (4, 1)


def test_an_answer_is_saved_as_soon_as_it_is_whole(study, visit):
    """Nobody has to press Next for the last thing he said to count."""
    page = visit("anna", **DESKTOP)
    shown(page, 1)
    page.keyboard.press("Enter")
    expect(page.locator("#status")).to_have_text("Choose one for coherence first.")
    page.keyboard.press("2")
    page.keyboard.press("Enter")
    expect(page.locator("#status")).to_have_text("Choose one for fluency first.")
    assert load(study.path).rows == []
    page.keyboard.press("3")
    expect(page.locator("#status")).to_have_text("Saved")
    assert len(load(study.path).rows) == 1


def test_the_tab_key_reaches_everything_and_shows_where_it_is(visit):
    page = visit("anna", **DESKTOP)
    shown(page, 1)
    reached = []
    for _ in range(6):
        page.keyboard.press("Tab")
        name, visible = page.evaluate(
            """() => {
                const at = document.activeElement;
                const seen = at.closest(".point") || at;
                const style = getComputedStyle(seen);
                return [at.name || at.id || at.textContent.trim().split(" ")[0],
                        style.outlineStyle === "solid" && parseFloat(style.outlineWidth) >= 2];
            }"""
        )
        assert visible, name
        reached.append(name)
        if name in ("coherence", "fluency"):
            page.keyboard.press("Space")
    assert reached == ["coherence", "fluency", "Add", "next", "Keys", "keys"]
    expect(page.locator("#status")).to_have_text("Saved")


def test_single_keys_can_be_turned_off(study, visit):
    """They get in the way of those who speak to their computer (WCAG 2.1.4)."""
    page = visit("anna", **DESKTOP)
    shown(page, 1)
    page.get_by_label("Use these keys").uncheck()
    page.locator("#sentence").focus()
    page.keyboard.type("12")
    assert page.locator("#scales input:checked").count() == 0
    page.get_by_label("Use these keys").check()
    page.keyboard.type("12")
    expect(page.locator("#status")).to_have_text("Saved")


@pytest.mark.parametrize("width", [320, 390, 768])
def test_nothing_is_cut_off_on_small_screens(visit, width):
    page = visit("anna", viewport={"width": width, "height": 700}, is_mobile=True, has_touch=True)
    shown(page, 1)
    assert_nothing_is_cut_off(page)
    for place in page.locator(".point, button:visible").all():
        assert place.bounding_box()["height"] >= 44  # a thumb's width
    # The way on is in sight without scrolling, and covers nothing that cannot be scrolled away.
    expect(page.get_by_role("button", name="Next")).to_be_in_viewport()
    page.evaluate("window.scrollTo(0, document.body.scrollHeight)")
    last, bar = page.locator("footer summary").bounding_box(), page.locator("nav").bounding_box()
    if width < 640:
        assert last["y"] + last["height"] <= bar["y"]


def test_markup_is_shown_as_it_stands_and_conditions_not_at_all(study, visit):
    evil = "<img src=x onerror=alert(1)><script>alert(2)</script>"
    items = study.path / "items.json"
    items.write_text(items.read_text().replace("sentence ", evil.replace('"', "'") + " "))
    # The server read the texts at its start; another one reads these.
    with ForkedServer(study.path) as other:
        page = visit("anna", **DESKTOP)
        page.goto(page.url.replace(page.url.split("/")[2], f"127.0.0.1:{other.port}"))
        assert shown(page, 1).startswith(evil)
        page.keyboard.type("11c")
        page.keyboard.type(evil)
        page.keyboard.press("Control+Enter")
        shown(page, 2)
        page.keyboard.press("ArrowLeft")
        shown(page, 1)
        expect(page.locator("#comment")).to_have_value(evil)
        assert page.locator("main img, main script").count() == 0
        assert not any(name in page.content() for name in (*CONDITIONS, "zebra"))
        page.goto("about:blank")


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("view", [DESKTOP, PHONE], ids=["desktop", "phone"])
def test_no_violations_of_accessibility(visit, accessible, view, scheme):
    page = visit("anna", color_scheme=scheme, **view)
    shown(page, 1)
    assert accessible(page) == []
    assert (ground(page) == "rgb(20, 22, 27)") == (scheme == "dark")
    page.keyboard.press("Enter")  # a warning
    assert accessible(page) == []
    page.keyboard.type("23c")
    page.keyboard.type("a comment")
    page.locator("#help").evaluate("details => details.open = true")
    expect(page.locator("#status")).to_have_text("Saved")
    assert accessible(page) == []
    for number in range(1, 10):
        page.keyboard.press("Escape")
        page.keyboard.type("23")
        page.keyboard.press("Enter")
        if number < 9:
            shown(page, number + 1)
    expect(page.get_by_text("Thank you")).to_be_visible()
    assert accessible(page) == []
