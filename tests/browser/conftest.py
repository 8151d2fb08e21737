"""A browser for all tests here, and pages that must not complain or call anybody else."""

from __future__ import annotations

from pathlib import Path

import pytest
from chromium import Visits, launch
from playwright.sync_api import sync_playwright

from rating_server import ForkedServer, make_study

AXE = Path(__file__).resolve().parents[2] / "build" / "axe" / "axe.min.js"


@pytest.fixture(scope="session")
def browser():
    with sync_playwright() as playwright:
        browser = launch(playwright)
        yield browser
        browser.close()


@pytest.fixture
def study(tmp_path):
    return make_study(tmp_path, per_run=3)


@pytest.fixture
def link(study):
    """Return a rater's path."""

    def path(name: str) -> str:
        with study.store() as store:
            return f"/r/{store.add_rater(name)[0]}/"

    return path


@pytest.fixture
def server(study):
    with ForkedServer(study.path) as server:
        yield server


@pytest.fixture
def visit(browser, server, link):
    """Open a rater's page; afterwards, hold it to its own server and to a clean console."""
    visits = Visits(browser)

    def open_page(name: str, **view):
        page = visits.page(**view)
        page.goto(f"http://127.0.0.1:{server.port}{link(name)}")
        page.locator("#item, #done").locator("visible=true").wait_for()
        return page

    yield open_page
    visits.close()
    assert all(url.startswith(("http://127.0.0.1:", "about:")) for url in visits.addresses)
    # A server that was killed is what some tests are about.
    assert [text for text in visits.complaints if "ERR_CONNECTION" not in text] == []


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
