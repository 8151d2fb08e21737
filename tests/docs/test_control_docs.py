"""docs/how-to/rewrite.md: every expert is listed, and every example is read as it stands."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from maskov.energies import parse_energy
from maskov.energies.registry import NAMES

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "rewrite.md"


def _rows():
    table = PAGE.read_text().partition("| expert | its energy |")[2].partition("\n\n")[0]
    return [re.split(r"(?<!\\)\|", line)[1:4] for line in table.splitlines()[2:]]


def test_every_expert_is_listed():
    listed = {name for row in _rows() for name in re.findall(r"`([a-z_]+)", row[0])}
    assert set(NAMES) - {"length_prior"} <= listed


@pytest.mark.parametrize("example", [row[2].strip().strip("`") for row in _rows()])
def test_examples_are_energies(example):
    if "my_module" not in example:
        assert parse_energy(str(parse_energy(example))) is not None
