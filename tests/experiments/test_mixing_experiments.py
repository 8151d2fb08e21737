"""The experiments on mixing and on effective samples, on a model that takes no time."""

import json

import numpy as np
import pytest
from experiments.studies import effective, mixing

FIRST, SPANS = mixing.FIRST_DEFAULT, "spans of 1 to 3"


def _row(name: str, energies: list[float], length: int = 20) -> dict[str, object]:
    passes = [100.0 * (epoch + 1) for epoch in range(len(energies))]
    return {
        "row": name, "energy": "raw", "length": length, "passes": passes, "mean_energy": energies,
    }  # fmt: skip


def test_rows_reach_the_energy_of_the_first_default_after_the_reference():
    rows = [_row(FIRST, [0.0, -1.0, -2.0, -9.0]), _row(SPANS, [-1.0, -2.0, -3.0, -4.0])]
    mixing.compare(rows, 300)
    assert [row["reached"] for row in rows] == [300.0, 200.0]


def test_added_rows_take_the_place_of_older_ones(tmp_path):
    old, new = tmp_path / "old", tmp_path / "new"
    for folder, rows in (
        (old, [_row(FIRST, [0.0]), _row(SPANS, [-1.0])]),
        (new, [_row(SPANS, [-2.0]), _row(SPANS, [-3.0], 6)]),
    ):
        (folder / "traces").mkdir(parents=True)
        content = {"settings": {"passes": folder.name}, "rows": rows}
        (folder / "mixing.json").write_text(json.dumps(content))
    np.savez(new / "traces" / "raw-6-6.npz", energy=np.zeros(1))
    mixing.add_rows(old, new)
    found = json.loads((old / "mixing.json").read_text())
    assert found["settings"] == {"passes": "old"}
    assert [(row["length"], row["row"], row["mean_energy"]) for row in found["rows"]] == [
        (6, SPANS, [-3.0]),
        (20, FIRST, [0.0]),
        (20, SPANS, [-2.0]),
    ]
    assert (old / "traces" / "raw-6-6.npz").exists()


@pytest.mark.slow
def test_the_page_has_a_line_for_each_target(tmp_path):
    words = ["--out", str(tmp_path), "--model", "untrained", "--chains", "3", "--epochs", "60"]
    target = ["--targets", "free, 5 tokens", "--energies", "norm"]
    effective.main(["sample", *words, *target])
    effective.main(["page", *words])
    table = json.loads((tmp_path / "effective.json").read_text())["table"]
    assert [(line["energy"], line["target"]) for line in table] == [("norm", "free, 5 tokens")]
    assert "| E_norm, free, 5 tokens | 1 |" in (tmp_path / "README.md").read_text()
