"""A browser for all tests here, and pages that must not complain or call anybody else."""

from pathlib import Path

import pytest
from chromium import launch
from playwright.sync_api import expect, sync_playwright

AXE = Path(__file__).resolve().parents[2] / "build" / "axe" / "axe.min.js"


@pytest.fixture(scope="session")
def browser():
    expect.set_options(timeout=90_000)  # on a busy machine, too
    with sync_playwright() as playwright:
        browser = launch(playwright)
        yield browser
        browser.close()


@pytest.fixture
def accessible():
    """Return a check by axe-core, put in past the page's own policy, as a developer's tools are."""

    def check(page):
        page.evaluate(AXE.read_text(encoding="utf-8") + "; undefined")
        found = page.evaluate(
            "axe.run({runOnly: ['wcag2a', 'wcag2aa', 'wcag21a', 'wcag21aa', 'best-practice']})"
        )
        assert len(found["passes"]) > 10
        return [
            (each["id"], [(node["html"], node["failureSummary"]) for node in each["nodes"]])
            for each in found["violations"]
        ]

    return check
