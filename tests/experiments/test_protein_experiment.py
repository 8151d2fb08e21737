"""The experiment on proteins at equal passes, on a model that takes no time."""

import json

import pytest
import torch
from experiments.studies import proteins

SITES, DEFAULT = "single sites", "spans, burn-in with 4 groups (the default)"


def test_distance_is_the_mean_over_pairs_of_chains():
    tokens = torch.tensor([[1, 2, 3, 4], [1, 2, 3, 5], [1, 2, 6, 4]])
    assert proteins.distance(tokens) == pytest.approx((1 + 1 + 2) / 3 / 4)


def test_rows_are_measured_at_equal_passes(tmp_path):
    words = f"--model untrained --chains 2 --length 9 --points 20 60 --out {tmp_path} --rows"
    proteins.main([*words.split(), SITES, "target of 4 groups, spans"])
    proteins.main([*words.split(), DEFAULT])
    content = json.loads((tmp_path / "proteins.json").read_text())
    rows = content["rows"]
    assert [row["row"] for row in rows] == [SITES, DEFAULT, "target of 4 groups, spans"]
    for row in rows:
        spent = [point["passes"] for point in row["points"]]
        assert spent[0] >= 20
        assert spent[-1] >= 60
        assert all(point["energy"] > 0 for point in row["points"])
    assert rows[0]["points"][0]["passes"] <= 20 + 2 * 9
    assert f"| {DEFAULT} |" in (tmp_path / "README.md").read_text()
    with pytest.raises(SystemExit, match="other settings"):
        proteins.main([*words.split(), SITES, "--seed", "1"])
