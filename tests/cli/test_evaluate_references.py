"""`maskov evaluate --references` as a user calls it: what is read and printed."""

import json
from dataclasses import asdict

import pytest

from maskov import energies
from maskov.evaluation import compare

REFERENCES = ["the cat sat in the house", "a big red dog ran", "the old bird ate and ran", "dog"]
TRANSLATIONS = ["the big cat sat in the house", "", "the old bird ate the cat", "a dog"]
WORDS = [text or "dog" for text in TRANSLATIONS]  # what a judge can read, too
AGAINST = "--references r.txt"


def plain(texts) -> str:
    return "".join(text + "\n" for text in texts)


def lines(texts, **more) -> str:
    return "".join(json.dumps({"text": text} | more) + "\n" for text in texts)


@pytest.fixture(autouse=True)
def _files(tmp_path):
    (tmp_path / "t.txt").write_text(plain(TRANSLATIONS))
    (tmp_path / "t.jsonl").write_text(lines(TRANSLATIONS, chain=0))
    (tmp_path / "words.txt").write_text(plain(WORDS))
    (tmp_path / "r.txt").write_text(plain(REFERENCES))


@pytest.fixture
def _no_judge(monkeypatch):
    def load(*_, **__):
        raise AssertionError("a judge was loaded")

    monkeypatch.setattr(energies, "Autoregressive", load)


@pytest.mark.usefixtures("_no_judge")
def test_translations_are_compared_and_need_no_judge(call, printed):
    found = compare(TRANSLATIONS, REFERENCES)
    each = "".join(lines([text], chain=chain) for chain, text in enumerate(TRANSLATIONS))
    for source, stdin in (
        ("t.txt", ""), ("t.jsonl", ""), ("-", plain(TRANSLATIONS)), ("-", lines(TRANSLATIONS)),
        ("-", "\ufeff" + plain(TRANSLATIONS).replace("\n", "\r\n")), ("-", each),
    ):  # fmt: skip
        assert json.loads(printed(f"evaluate {source} {AGAINST} --json", stdin=stdin)) == (
            asdict(found)
        )
    shown = printed(f"evaluate t.txt {AGAINST}")
    assert [" ".join(line.split()) for line in shown.splitlines()] == [
        "sentences 4",
        f"bleu {found.bleu:.6g} ± {found.bleu_interval:.2g} (95 %)",
        f"bleu signature {found.bleu_signature}",
        f"brevity penalty {found.brevity_penalty:.6g}",
        f"length ratio {found.length_ratio:.6g}",
        f"chrf {found.chrf:.6g} ± {found.chrf_interval:.2g} (95 %)",
        f"chrf signature {found.chrf_signature}",
    ]
    # The stand-in for the judge must be able to fail, or this shows nothing.
    with pytest.raises(AssertionError, match="a judge was loaded"):
        call("evaluate words.txt")
