"""Pages that list what there is: every argument, every method, every expert."""

import inspect
import re
from typing import Any

import pytest

import maskov
from doc_examples import ROOT
from maskov.energies import parse_energy
from maskov.energies.registry import NAMES

DOCS = ROOT / "docs" / "how-to"
PAGE = (DOCS / "python.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```python\n(.*?)^```", PAGE, re.M | re.S)


def test_pages_have_blocks_that_can_be_read():
    assert len(BLOCKS) == 5
    for block in BLOCKS:
        compile(block, "how-to/python.md", "exec")
    assert len(BLOCKS[0].split("\n\n", 1)[1].splitlines()) <= 6


@pytest.mark.slow
def test_what_the_page_says_is_so(tmp_path, monkeypatch, capfd):
    """Its blocks run as they stand, and what its prose claims of them holds."""
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {}
    for number, block in enumerate(BLOCKS, 1):
        exec(compile(block, f"how-to/python.md, block {number}", "exec"), names)
    shown = capfd.readouterr().out
    assert shown.startswith("<Run of wiki-small: 4 samples, 4 chains, 12 epochs, energy norm>")
    assert re.search(r"<Run of wiki-small: 0 samples, 2 chains, \d+ of 10 epochs", shown)
    assert (tmp_path / "run.html").is_file()
    assert (tmp_path / "run.png").is_file()
    for one in names["kept"]:
        assert {"town", "1900"} <= set(one.tokens)
    for one in names["same"]:
        kept = [one.tokens[place] for place in (0, 2, 3, 5, 6, 7)]
        assert kept == ["the", "town", "was", "in", "1900", "."]
    whole = maskov.sample("wiki-small", **names["options"])
    assert names["run"].samples == whole.samples


def test_every_option_is_in_the_table():
    table = PAGE.partition("## Arguments and options")[2].partition("What Python writes")[0]
    named = set(re.findall(r"`([a-z_]+)`", table)) - {"sample", "infill"}
    taken = set(inspect.signature(maskov.sample).parameters)
    assert named <= taken
    # What the page says in its own words, and what other parts of the package set.
    others = {"kernel", "schedule", "texts", "templates", "listener", "progress", "stop", "source"}
    assert taken - named <= others | {"lengths", "trace"}


def test_every_method_of_a_run_is_in_the_table():
    table = PAGE.partition("## What a run offers")[2].partition("A notebook shows")[0]
    public = {name for name in vars(maskov.Run) if not name.startswith("_")} - {"of"}
    inherited = {"traces", "manifest", "signature", "summary", "diagnose", "to_arviz", "open"}
    for name in (public | inherited) - {"damaged", "recovered"}:
        assert name in table, name


def _experts() -> list[list[str]]:
    page = (DOCS / "rewrite.md").read_text(encoding="utf-8")
    table = page.partition("| expert | its energy |")[2].partition("\n\n")[0]
    return [re.split(r"(?<!\\)\|", line)[1:4] for line in table.splitlines()[2:]]


def test_every_expert_is_listed_and_its_example_is_an_energy():
    listed = {name for row in _experts() for name in re.findall(r"`([a-z_]+)", row[0])}
    assert set(NAMES) - {"length_prior"} <= listed
    for row in _experts():
        example = row[2].strip().strip("`")
        if "my_module" not in example:
            assert parse_energy(str(parse_energy(example))) is not None
