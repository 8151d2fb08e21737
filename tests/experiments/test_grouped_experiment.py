"""The experiment on grouped energies, on a model that takes no time."""

from __future__ import annotations

import json

import pytest

from experiments import grouped


@pytest.mark.slow
def test_rows_are_measured_at_equal_passes(tmp_path):
    words = "--points 1 2 --model untrained --chains 2 --lengths 6 --groups 2 --energies norm --out"
    grouped.main([*words.split(), str(tmp_path)])
    content = json.loads((tmp_path / "grouped.json").read_text())
    assert [(row["target"], row["burn_in_energy"]) for row in content["rows"]] == [
        ("norm", None),
        ("norm", None),
        ("norm(groups=2)", None),
        ("norm(groups=2)", None),
        ("norm", "norm(groups=2)"),
    ]
    for row in content["rows"]:
        assert all(float(point["passes"]) >= int(key) for key, point in row["quality"].items())
        assert row["quality"]["12"]["energy_norm"]["mean"] > 0
