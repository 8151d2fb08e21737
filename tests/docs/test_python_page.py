"""docs/how-to/python.md: its Python runs as it stands, and it names every argument."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

import maskov
from maskov.options import hints_of

DOCS = Path(__file__).parents[2] / "docs"


def blocks(page: str) -> list[str]:
    """Return the blocks of Python of a page."""
    return re.findall(r"^```python\n(.*?)^```", (DOCS / page).read_text(), re.M | re.S)


def run_page(page: str) -> dict[str, Any]:
    """Run the blocks one after the other, and return the names that they leave behind."""
    names: dict[str, Any] = {}
    for number, block in enumerate(blocks(page), 1):
        exec(compile(block, f"{page}, block {number}", "exec"), names)
    return names


def test_pages_have_blocks_that_can_be_read():
    found = blocks("how-to/python.md")
    assert len(found) == 5
    for block in found:
        compile(block, "how-to/python.md", "exec")
    assert len(found[0].split("\n\n", 1)[1].splitlines()) <= 6


@pytest.mark.slow
def test_what_the_page_says_is_so(tmp_path, monkeypatch, capfd):
    """Its blocks run as they stand, and what its prose claims of them holds."""
    monkeypatch.chdir(tmp_path)
    names = run_page("how-to/python.md")
    shown = capfd.readouterr().out
    assert shown.startswith("<Run of wiki-small: 4 samples, 4 chains, 12 epochs, energy norm>")
    assert re.search(r"<Run of wiki-small: 0 samples, 2 chains, \d+ of 10 epochs", shown)
    assert (tmp_path / "run.html").is_file()
    assert (tmp_path / "run.png").is_file()
    for one in names["kept"]:
        assert {"town", "1900"} <= set(one.tokens)
    for one in names["same"]:
        assert [one.tokens[place] for place in (0, 2, 3, 5, 6, 7)] == [
            "the", "town", "was", "in", "1900", ".",
        ]  # fmt: skip
    whole = maskov.sample("wiki-small", **names["options"])
    assert names["run"].samples == whole.samples


def test_every_option_is_in_the_table():
    page = (DOCS / "how-to/python.md").read_text()
    table = page.partition("## Arguments and options")[2].partition("What Python writes")[0]
    named = set(re.findall(r"`([a-z_]+)`", table)) - {"sample", "infill"}
    hints = hints_of(maskov.sample)
    assert named == {name for name, kind in hints.items() if hasattr(kind, "__metadata__")}


def test_every_method_of_a_run_is_in_the_table():
    page = (DOCS / "how-to/python.md").read_text().partition("## What a run offers")[2]
    public = {name for name in vars(maskov.Run) if not name.startswith("_")}
    inherited = {"traces", "manifest", "signature", "summary", "diagnose", "to_arviz", "open"}
    for name in (public | inherited) - {"damaged", "recovered"}:
        assert f"{name}" in page.partition("A notebook shows")[0], name
