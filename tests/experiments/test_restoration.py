"""The study of restored gaps, on a model that was never trained."""

from __future__ import annotations

import json
import sys

import pytest
from experiments.studies import restoration
from experiments.studies.restoration import BEAM, FILL_MASK, INFILL, MASK_PREDICT, SMALL, SOUND


def test_every_method_is_measured_and_the_page_is_written(tmp_path, monkeypatch):
    words = "the old man and the old house and the man sat in the city"
    (tmp_path / "texts").write_text(f"= title =\n{words} . {words} . {words} .\n")
    common = ["--out", str(tmp_path / "out"), "--model", "untrained"]

    def call(*action):
        monkeypatch.setattr(sys, "argv", ["restoration", *action, *common])
        restoration.main()

    for number in (1, 2):
        call("measure", str(tmp_path / "texts"), "--gaps", f"1:{number},2:{number},0:{number}")
        lines = (tmp_path / "out" / "untrained.jsonl").read_text().splitlines()
        gaps = [json.loads(line) for line in lines]
        # The second call goes on after the gaps of the first.
        assert [(one["kind"], one["number"]) for one in gaps] == [
            (kind, n) for n in range(number) for kind in (0, 1, 2)
        ]
    unknown, one, two = (gap["methods"] for gap in gaps[:3])
    assert list(unknown) == [FILL_MASK, BEAM, INFILL]
    assert list(two) == [FILL_MASK, BEAM, MASK_PREDICT, SOUND, SMALL, INFILL]
    assert one[INFILL]["log_p"] == pytest.approx(one[FILL_MASK]["log_p"], abs=2e-4)
    # One of the two orders of the mixture is that of the beam.
    assert two[INFILL]["log_p"] > two[BEAM]["log_p"] - 2.1
    for row in (row for each in (unknown, one, two) for row in each.values()):
        assert row["passes"] > 0
        assert row.get("log_p", -1) <= 0
        assert 0 <= row.get("above", 0) <= 1.001
    call("page")
    page = (tmp_path / "out" / "README.md").read_text()
    assert "2 of 1 token, 2 of 2 tokens, 2 of unknown length" in page
    assert f"| 2 | {MASK_PREDICT} | 2 |" in page
    assert (tmp_path / "out" / "reliability.png").exists()
