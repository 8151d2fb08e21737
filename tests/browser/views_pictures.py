"""Take the pictures of `maskov serve` that the documentation shows.

maskov sample --chains 6 --epochs 30 --length 14 --seed 3 --thin 3 --out runs/mh-raw
python tests/browser/views_pictures.py runs        # writes docs/pictures/serve*.png
"""

import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from chromium import launch
from pages import PICTURES
from playwright.sync_api import sync_playwright

from view_runs import ServedRuns

DESKTOP = {"viewport": {"width": 1200, "height": 1010}}
PHONE = {"viewport": {"width": 390, "height": 844}, "device_scale_factor": 2, "is_mobile": True}


def pages(browser, address: str):
    """Return a function that opens a page of the server in a view."""

    def open_page(path: str, view: dict):
        page = browser.new_page(**view)
        page.set_default_timeout(120_000)
        page.emulate_media(reduced_motion="reduce")
        page.goto(address + path)
        page.locator("html[data-ready]").wait_for()
        return page

    return open_page


def take_player(visit, run: str, name: str, view: dict) -> None:
    """Take the player where it opens, at the first accepted change."""
    page = visit(f"run?id={run}", view)
    page.locator("#agreement:not(:empty)").wait_for()
    page.evaluate("document.getElementById('play').scrollIntoView()")
    page.screenshot(path=PICTURES / f"{name}.png")


def take_live(visit, name: str) -> None:
    """Start a run and take it half-way."""
    page = visit("", DESKTOP)
    page.get_by_role("spinbutton", name="Epochs").fill("12")
    page.get_by_text("Name, starting text, prefix").click()
    page.get_by_label("Name", exact=True).fill("Sentences, first try")
    page.get_by_role("spinbutton", name="Seed").fill("5")
    page.get_by_role("button", name="Start and watch").click()
    page.locator("#figures", has_text="6 / 12").wait_for()
    page.locator(".word.fresh").first.wait_for()
    page.screenshot(path=PICTURES / f"{name}.png")
    page.get_by_role("button", name="Stop and save").click()
    page.locator("#open:visible").wait_for()


def take(runs: Path, home: Path) -> None:
    """Take every picture."""
    with ServedRuns(runs, home) as server, sync_playwright() as playwright:
        browser = launch(playwright)
        visit = pages(browser, server.address)
        page = visit("", DESKTOP)
        page.locator("#runs-list .pill.wears").last.wait_for()
        page.screenshot(path=PICTURES / "serve-runs.png")
        run = page.locator("#runs-list a", has_text="mh-raw").get_attribute("href").split("=")[1]
        take_player(visit, run, "serve", DESKTOP)
        take_player(visit, run, "serve-phone", PHONE)
        page = visit(f"run?id={run}", DESKTOP)
        page.get_by_label("Search").fill("the")
        page.locator(".count", has_text="found among").wait_for()
        page.locator(".samples .similar").first.click()
        page.locator(".samples .other").first.wait_for()
        page.evaluate("document.getElementById('samples').scrollIntoView()")
        page.screenshot(path=PICTURES / "serve-samples.png")
        take_live(visit, "serve-live")
        browser.close()


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        take(Path(sys.argv[1]), Path(folder) / "made")
