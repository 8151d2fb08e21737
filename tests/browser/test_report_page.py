"""The report in Chromium, from a file: charts, samples, themes, keys, no calls to anywhere."""

import pytest
from chromium import Visits
from pages import (
    DESKTOP,
    PHONE,
    as_number,
    assert_colours_follow,
    assert_nothing_is_cut_off,
    assert_tab_reaches_everything,
    ground,
)
from playwright.sync_api import expect

import maskov
from maskov import Record
from maskov.config import LinearSchedule, Schedule
from maskov.ui.report import build, to_html
from report_runs import EVIL, evil_run, small_run
from tiny_proteins import spaced_model

pytestmark = pytest.mark.browser

FIRST = ".chart >> nth=0"


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """Write a page of one annealed and shaded run, and one that compares three."""
    folder = tmp_path_factory.mktemp("pages")
    annealed = Schedule(24, 4, target_temperature=LinearSchedule(1.0, rate=0.02, floor=0.8))
    kernel = maskov.Metropolis(maskov.Raw())
    run = maskov.sample(maskov.load("untrained"), kernel, annealed, chains=6, length=6, thin=2)
    pages = {
        "one": build([run], terms=True),
        "many": build([small_run(4, 30, thin=3), small_run(4, 30, seed=1), evil_run()]),
        "least": build([small_run(1, 1)], samples=0),
        "proteins": build([protein_run(tmp_path_factory.mktemp("proteins"))]),
        "populations": build([population_run()]),
    }
    for name, report in pages.items():
        (folder / f"{name}.html").write_text(to_html(report), encoding="utf-8")
    return folder


def population_run():
    """Return two small populations."""
    settings = {"energy": "0.5*ordered+0.5*norm", "particles": 6, "populations": 2, "length": 4}
    return maskov.sample(model="untrained", **settings)


def protein_run(folder):
    """Return a run from FASTA, with a name that tries to be more than text."""
    parents = [Record(EVIL, "EVQLVESGGG" * 5), Record("light", "DIQMTQ")]
    schedule = Schedule(epochs=4, burn_in=1)
    model = spaced_model(folder / "bert")
    return maskov.sample(model, schedule=schedule, chains=4, texts=parents, thin=1)


@pytest.fixture
def visit(browser, files):
    """Open a page; afterwards, hold it to its own file and to a clean console."""
    visits = Visits(browser)

    def open_page(name: str, **view):
        page = visits.page(**(view or DESKTOP))
        page.goto(f"file://{files / name}.html")
        page.locator("html[data-ready]").wait_for()
        page.locator(".plot[data-range]").last.wait_for()
        return page

    yield open_page
    visits.close()
    assert all(url.startswith((f"file://{files}/", "data:,")) for url in visits.addresses)
    assert visits.complaints == []


def axis(page):
    return page.locator(f"{FIRST} >> .plot").get_attribute("data-range")


def drag(page, along=(0.3, 0.6), down=(0.5, 0.5)):
    page.locator(f"{FIRST} >> .plot").scroll_into_view_if_needed()
    box = page.locator(f"{FIRST} >> .plot").bounding_box()
    at = [
        (box["x"] + x * box["width"], box["y"] + y * box["height"])
        for x, y in zip(along, down, strict=True)
    ]
    page.mouse.move(*at[0])
    page.mouse.down()
    page.mouse.move(*at[1], steps=4)
    page.mouse.up()


def test_charts_are_drawn(visit):
    page = visit("one")
    titles = page.locator("figcaption").all_text_contents()
    assert titles[:3] == ["E_raw by epoch", "E_norm by epoch", "Accepted and novel by epoch"]
    assert "Accepted and novel by position" in titles
    first = page.locator(FIRST)
    assert first.locator(".thin").count() == 6
    assert first.locator(".band").count() == 1
    assert first.locator(".shade").count() == 1
    name, shade = (first.locator(one).bounding_box() for one in (".shade-name", ".shade"))
    assert name["y"] + name["height"] <= shade["y"] + 2  # no line covers it
    assert "target temperature" in first.locator("svg text").all_text_contents()
    for path in first.locator(".series path").all():
        assert "NaN" not in path.get_attribute("d")


def test_a_click_in_the_legend_hides_a_series_and_another_shows_it(visit):
    page = visit("one")
    button = page.locator(f"{FIRST} >> .legend button >> nth=0")
    lines = page.locator(f"{FIRST} >> .thin")
    button.click()
    expect(button).to_have_attribute("aria-pressed", "false")
    expect(lines).to_have_count(0)
    button.click()
    expect(lines).to_have_count(6)
    button.click(modifiers=["Shift"])
    expect(page.locator(f"{FIRST} >> .legend [aria-pressed=true]")).to_have_count(1)


def test_dragging_zooms_and_a_double_click_or_the_button_resets(visit):
    page = visit("one")
    whole = axis(page)
    drag(page)
    zoomed = axis(page)
    (low, high, *_), (least, most, *_) = (map(float, text.split()) for text in (zoomed, whole))
    assert least < low < high < most
    page.locator(f"{FIRST} >> .plot").dblclick()
    assert axis(page) == whole
    drag(page, down=(0.3, 0.6))
    assert axis(page).split()[2:] != whole.split()[2:]
    page.get_by_role("button", name="Reset the zoom: E_raw by epoch", exact=True).click()
    assert axis(page) == whole
    page.get_by_role("button", name="Zoom in: E_raw by epoch", exact=True).click()
    assert axis(page) != whole


def test_keys_read_and_zoom_a_chart(visit):
    page = visit("one")
    page.locator(f"{FIRST} >> .plot").focus()
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowRight")
    expect(page.locator(f"{FIRST} >> [aria-live]")).to_contain_text("epoch 2: median")
    whole = axis(page)
    page.keyboard.press("+")
    assert axis(page) != whole
    before = axis(page)
    page.keyboard.press("Shift+ArrowRight")
    assert axis(page) != before
    page.keyboard.press("0")
    assert axis(page) == whole
    assert_tab_reaches_everything(page)


def test_colours_follow_the_system_and_the_button(visit):
    line = "getComputedStyle(document.querySelector('.series .line')).stroke"
    light, dark = visit("one"), visit("one", **DESKTOP, color_scheme="dark")
    strokes = [page.evaluate(line) for page in (light, dark)]
    assert strokes[0] != strokes[1]
    assert_colours_follow(light, dark)
    # The dark page has light colours now, by its button.
    assert [page.evaluate(line) for page in (dark, light)] == [strokes[0]] * 2
    dark.get_by_role("button", name="Change to dark colours").click()
    assert dark.evaluate(line) == strokes[1]
    dark.emulate_media(media="print")
    assert ground(dark) == "rgb(255, 255, 255)"
    expect(dark.locator(".bar")).to_be_hidden()
    expect(dark.locator(f"{FIRST} >> svg >> nth=0")).to_be_visible()


def energies(page, column=0):
    cells = page.locator(f".samples tbody tr td:nth-child({column + 1})").all_text_contents()
    return [as_number(text) for text in cells]


def test_samples_are_sorted_searched_and_shown_in_portions(visit):
    page = visit("one")
    page.get_by_label("Group similar samples").uncheck()
    rows = page.locator(".samples tbody tr")
    expect(rows).to_have_count(50)
    assert energies(page) == sorted(energies(page))
    page.get_by_role("button", name="Show all").click()
    expect(rows).to_have_count(60)
    page.get_by_label("Sort by").select_option("E_norm")
    page.get_by_label("Order").select_option("highest first")
    found = energies(page, 1)
    assert found == sorted(found, reverse=True)
    word = rows.last.locator(".token").first.inner_text()
    page.get_by_label("Search").fill(word.upper())
    expect(page.locator(".count")).to_contain_text("found among 60")
    for row in rows.all():
        assert word in row.locator(".text").inner_text()
    page.get_by_label("Search").fill("no such words anywhere")
    expect(rows).to_have_count(0)


def test_tokens_are_shaded_and_told_by_pointer_and_by_keys(visit):
    page = visit("one")
    token = page.locator(".samples .token")
    tip = page.get_by_role("tooltip")
    token.first.hover()
    expect(tip).to_contain_text("E_norm")
    shades = {one.evaluate("(one) => getComputedStyle(one).backgroundColor") for one in token.all()}
    assert len(shades) > 10
    page.mouse.move(0, 0)
    token.first.focus()
    first = tip.text_content()
    page.keyboard.press("ArrowRight")
    expect(tip).not_to_have_text(first)
    expect(token.nth(1)).to_be_focused()
    before = [one.get_attribute("style") for one in token.all()[:12]]
    page.get_by_label("Shade by").select_option("E_raw terms")
    assert [one.get_attribute("style") for one in token.all()[:12]] != before
    page.get_by_label("Shade by").select_option("nothing")
    expect(token).to_have_count(0)


def test_the_signature_is_copied(visit):
    page = visit("one")
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    page.get_by_role("button", name="Copy").click()
    expect(page.get_by_role("button", name="Copied")).to_be_visible()
    copied = page.evaluate("navigator.clipboard.readText()")
    assert copied == page.locator("#signature-0").text_content()


def test_a_chart_is_saved(visit, tmp_path):
    page, texts = visit("one"), []
    for kind in ("SVG", "CSV"):
        with page.expect_download() as waiting:
            page.locator(f"{FIRST} >> button:text('{kind}')").click()
        assert waiting.value.suggested_filename == f"e-raw-by-epoch.{kind.lower()}"
        waiting.value.save_as(tmp_path / kind)
        texts.append((tmp_path / kind).read_text(encoding="utf-8"))
    assert ("rgb(" in texts[0], "var(" in texts[0]) == (True, False)
    head, *lines = texts[1].splitlines()
    assert head.startswith('"epoch","chain 0","chain 1"')
    assert len(lines) == 24


def test_runs_stand_side_by_side_and_markup_in_them_does_nothing(visit):
    page = visit("many")
    assert page.evaluate("window.hacked") is None
    assert page.locator("img").count() == 0
    assert page.locator(f"{FIRST} >> .legend button").count() == 3
    strokes = page.locator(f"{FIRST} >> .series .line").evaluate_all(
        "(all) => all.map((one) => "
        "[getComputedStyle(one).stroke, one.getAttribute('stroke-dasharray')])"
    )
    assert len({colour for colour, _ in strokes}) == len({dash for _, dash in strokes}) == 3
    page.locator(".controls label", has_text="all runs").locator("select").select_option(
        "mh-raw (3)"
    )
    page.get_by_label("Group similar samples").uncheck()
    expect(page.locator(".samples tbody tr")).to_have_count(3)
    expect(page.locator(".samples .text").first).to_contain_text("<script>window.hacked=1</script>")
    expect(page.locator(".samples .source").first).to_contain_text("<img src=x")


@pytest.mark.parametrize("name", ["one", "many"])
def test_nothing_is_wider_than_a_phone(visit, name):
    page = visit(name, **PHONE)
    assert_nothing_is_cut_off(page)
    page.locator(f"{FIRST} >> .plot").tap()
    expect(page.locator(f"{FIRST} >> .bubble")).to_be_visible()


DARK = {"color_scheme": "dark"}


@pytest.mark.parametrize(
    ("name", "view"),
    [
        *(("one", view) for view in (DESKTOP, DESKTOP | DARK, PHONE, PHONE | DARK)),
        ("many", DESKTOP), ("many", DESKTOP | DARK), ("proteins", DESKTOP), ("proteins", DARK),
        ("least", DESKTOP), ("populations", PHONE | DARK),
    ],
)  # fmt: skip
def test_axe_finds_nothing(visit, accessible, name, view):
    page = visit(name, **view)
    assert accessible(page) == []
    if name == "least":
        assert page.locator(f"{FIRST} >> .mark").count() >= 1
        expect(page.locator("#sample-browser")).to_contain_text("No samples were asked for")


@pytest.mark.parametrize("view", [DESKTOP, PHONE], ids=["desktop", "phone"])
def test_parents_have_logos_charts_and_mutations(visit, view):
    page = visit("proteins", **view)
    expect(page.locator("svg.logo")).to_have_count(2)
    expect(page.locator("[data-family] .chart")).to_have_count(6)
    expect(page.locator("svg.logo >> nth=0").locator("g")).to_have_count(50)
    first = page.locator("[data-family='1'] .chart >> nth=0")
    expect(first).to_contain_text("Mutation frequency by position: light")
    expect(page.locator("table.samples thead")).to_contain_text("parent and mutations")
    assert page.evaluate("window.hacked") is None
    assert_nothing_is_cut_off(page)


def test_similar_samples_are_one_row_that_opens(visit):
    page = visit("many")
    page.locator(".controls label", has_text="all runs").locator("select").select_option(
        "mh-raw (1)"
    )
    rows = page.locator(".samples tbody tr")
    grouped = rows.count()
    page.get_by_label("Group similar samples").uncheck()
    every = rows.count()
    page.get_by_label("Group similar samples").check()
    expect(rows).to_have_count(grouped)
    assert 0 < grouped < every
    before = page.locator(".samples .similar").count()
    for number in range(before):
        button = page.locator(".samples .similar").nth(number)
        button.focus()
        page.keyboard.press("Enter")
        expect(button).to_have_attribute("aria-expanded", "true")
        expect(button).to_be_focused()
    expect(rows).to_have_count(every)
