"""The study of evidence: its page, and the second verdict on claims by likelihood."""

from __future__ import annotations

import json
import sys

from experiments.paper import claims_page
from experiments.studies import evidence

TEXTS = "felt black last question\nquestion black felt last\n"


def _main(monkeypatch, *words):
    monkeypatch.setattr(sys, "argv", ["evidence", *map(str, words)])
    evidence.main()


def test_text_is_measured_once_and_the_page_has_every_target(tmp_path, monkeypatch):
    texts = tmp_path / "held-out-4.txt"
    texts.write_text(TEXTS)
    monkeypatch.setattr(evidence, "TARGETS", (("norm", 1.0),))
    out = tmp_path / "out"
    ask = ("text", "--model", "untrained", "--texts", texts, "--out", out, "--particles", 4)
    _main(monkeypatch, *ask, "--populations", 2)
    found = (out / "untrained-4.json").read_text()
    _main(monkeypatch, *ask, "--populations", 2)
    assert (out / "untrained-4.json").read_text() == found
    targets = json.loads(found)["targets"]
    assert targets["ordered@1"]["lengths"][0]["log_z"] == 0
    _main(monkeypatch, "page", "--model", "untrained", "--out", out)
    page = (out / "README.md").read_text()
    assert "sentences of 4 tokens" in page
    assert f"{targets['ordered(orders=8)@1']['nats_per_token']:.3f}" in page


def test_likelihood_judges_claims_only_by_values_that_populations_agree_on(tmp_path, monkeypatch):
    monkeypatch.setattr(claims_page, "EVIDENCE", tmp_path)
    assert claims_page._by_likelihood() == []

    def said(raw, agree):
        one = {"error": 0.1, "lengths": [{"length": 5}], "temperature": 1.0}
        targets = {
            "raw@1": {"nats_per_token": raw, "agree": False, **one},
            "norm@1": {"nats_per_token": 4.7, "agree": agree, **one},
            "norm@2": {"nats_per_token": 9.9, "agree": True, **one},
        }
        (tmp_path / "wiki-small-5.json").write_text(json.dumps({"targets": targets}))
        return "".join(claims_page._by_likelihood())

    assert "**did not hold here**" in said(9.4, True)
    assert "against it so far" in said(9.4, False)
    assert "**not settled**" in said(4.8, True)
