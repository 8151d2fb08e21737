"""Take the pictures of the rating page that the documentation shows.

python tests/browser/rating_pictures.py        # writes docs/pictures/rating*.png
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from chromium import launch
from pages import PICTURES
from playwright.sync_api import sync_playwright

from maskov.ui.ratings import make
from rating_server import Server

# Drawn by wiki-small; they stand in the README.
SENTENCES = [
    "los angeles in 2004 has grown to 100 - 40 % of the wessex - speaking world.",
    "rebellions were widespread during his father ' s death and futility in historia d ' iv.",
    'since 1960 " college of technology " has served as the center for conservation literacy '
    "amongst university students.",
    "the knees were slightly reinforced in saddle ' s neck and were unhobeen.",
]
VIEWS = {
    "rating": {"viewport": {"width": 1000, "height": 800}},
    "rating-phone": {
        "viewport": {"width": 390, "height": 844},
        "device_scale_factor": 2,
        "is_mobile": True,
        "has_touch": True,
        "color_scheme": "dark",
    },
}


def take(folder: Path) -> None:
    """Make a small study, rate half of it and take a picture in each view."""
    (folder / "texts.txt").write_text("\n".join(SENTENCES))
    study = make(folder / "study", [folder / "texts.txt"], len(SENTENCES), seed=0)
    with study.store() as store:
        tokens = {name: store.add_rater(name)[0] for name in ("Anna", "Ben")}
    PICTURES.mkdir(exist_ok=True)
    with Server(study.path) as server, sync_playwright() as playwright:
        browser = launch(playwright)
        for (name, view), token in zip(VIEWS.items(), tokens.values(), strict=True):
            page = browser.new_page(**view)
            page.goto(f"http://127.0.0.1:{server.port}/r/{token}/")
            page.get_by_text("Sentence 1 of 4").wait_for()
            for place in (1, 2):
                page.keyboard.type("23")
                page.keyboard.press("Enter")
                page.get_by_text(f"Sentence {place + 1} of 4").wait_for()
            page.keyboard.press("2")
            page.screenshot(path=PICTURES / f"{name}.png")
        browser.close()


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        take(Path(folder))
