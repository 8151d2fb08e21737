"""Pages that list what there is: every argument, every method, every expert."""

import inspect
import re

import maskov
from doc_examples import ROOT
from maskov.energies import parse_energy
from maskov.energies.registry import NAMES

DOCS = ROOT / "docs" / "how-to"
PAGE = (DOCS / "python.md").read_text(encoding="utf-8")


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
