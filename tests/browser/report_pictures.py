"""Take the pictures of a report that the documentation shows.

maskov report runs/raw runs/norm runs/gibbs --terms --out report.html
python tests/browser/report_pictures.py report.html        # writes docs/pictures/report*.png
"""

import sys
from pathlib import Path

from chromium import launch
from pages import PICTURES
from playwright.sync_api import sync_playwright

DESKTOP = {"viewport": {"width": 1280, "height": 1130}}
# Each with the part of the page at its top, and a chart that is being read.
VIEWS = {
    "report": (DESKTOP | {"color_scheme": "light"}, "top", 0),
    "report-dark": (DESKTOP | {"color_scheme": "dark"}, "run-0", 6),
}


def take(file: Path) -> None:
    """Take a picture in each view."""
    with sync_playwright() as playwright:
        browser = launch(playwright)
        for name, (view, part, chart) in VIEWS.items():
            page = browser.new_page(**view)
            page.emulate_media(reduced_motion="reduce")
            page.goto(file.resolve().as_uri())
            page.locator("html[data-ready]").wait_for()
            page.evaluate("(part) => document.getElementById(part)?.scrollIntoView()", part)
            if chart is not None:
                box = page.locator(".plot").nth(chart).bounding_box()
                page.mouse.move(box["x"] + 0.62 * box["width"], box["y"] + 0.55 * box["height"])
            page.screenshot(path=PICTURES / f"{name}.png")
        browser.close()


if __name__ == "__main__":
    take(Path(sys.argv[1]))
