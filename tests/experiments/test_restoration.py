"""The study of restored gaps, on a model that was never trained."""

from __future__ import annotations

import json
import sys

from experiments.studies import restoration


def test_every_method_is_measured_and_the_page_is_written(tmp_path, monkeypatch):
    words = "the old man and the old house and the man sat in the city"
    (tmp_path / "texts").write_text(f"= title =\n{words} . {words} . {words} .\n")
    common = ["restoration", "--out", str(tmp_path / "out"), "--model", "untrained"]
    asked = ["--gaps", "1:1,2:1", "--unknown", "1", "--energies", "norm"]
    for action in (["measure", str(tmp_path / "texts"), *asked], ["page"]):
        monkeypatch.setattr(sys, "argv", [common[0], *action[:2], *common[1:], *action[2:]])
        restoration.main()
    rows = json.loads((tmp_path / "out" / "untrained-gaps.json").read_text())["rows"]
    assert len(rows) == 2 * 6 + 1
    for row in rows:
        assert row["passes"] > 0
        if "log_p" in row:
            assert row["log_p"] <= 1e-9
            assert 0 <= row["above"] <= 1.001
    one = {row["method"]: row["log_p"] for row in rows[:6] if "log_p" in row}
    assert abs(one["fill-mask (independent blanks)"] - one["beam from left to right"]) < 1e-4
    page = (tmp_path / "out" / "README.md").read_text()
    assert "mask-predict" in page
    assert (tmp_path / "out" / "reliability.png").exists()
