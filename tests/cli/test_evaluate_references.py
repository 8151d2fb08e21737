"""`maskov evaluate --references` as a user calls it: what is read, printed and refused."""

from __future__ import annotations

import json
import sys

import pytest

import tiny_models
import tiny_tokenizers
from maskov import Autoregressive, energies
from maskov.evaluation import compare, evaluate

REFERENCES = ["the cat sat in the house", "a big red dog ran", "the old bird ate and ran", "dog"]
TRANSLATIONS = ["the big cat sat in the house", "", "the old bird ate the cat", "a dog"]
# What a judge can read too.
WORDS = [text or "dog" for text in TRANSLATIONS]


def plain(texts) -> str:
    return "".join(text + "\n" for text in texts)


def lines(texts, **more) -> str:
    return "".join(json.dumps({"text": text} | more) + "\n" for text in texts)


@pytest.fixture
def call(call, monkeypatch, tmp_path):
    """Run `maskov evaluate` among the files; return its exit code, output and errors."""
    (tmp_path / "t.txt").write_text(plain(TRANSLATIONS))
    (tmp_path / "t.jsonl").write_text(lines(TRANSLATIONS, chain=0))
    (tmp_path / "words.txt").write_text(plain(WORDS))
    (tmp_path / "r.txt").write_text(plain(REFERENCES))
    monkeypatch.chdir(tmp_path)

    def run(*words, stdin: str = ""):
        return call("evaluate", *words, stdin=stdin.encode())

    return run


@pytest.fixture
def _no_judge(monkeypatch):
    def load(*_, **__):
        raise AssertionError("a judge was loaded")

    monkeypatch.setattr(energies, "Autoregressive", load)


@pytest.fixture(scope="module")
def judge(tmp_path_factory):
    return tiny_models.build_gpt2(tmp_path_factory.mktemp("judge"), tiny_tokenizers.gpt2())


@pytest.mark.usefixtures("_no_judge")
def test_translations_give_one_json_object_and_need_no_judge(call):
    code, out, err = call("t.txt", "--references", "r.txt", "--json")
    assert (code, err) == (0, "")
    assert json.loads(out) == compare(TRANSLATIONS, REFERENCES).to_dict()
    assert json.loads(out)["sentences"] == 4


@pytest.mark.usefixtures("_no_judge")
@pytest.mark.parametrize(
    ("source", "stdin"),
    [
        ("t.jsonl", ""),
        ("-", plain(TRANSLATIONS)),
        ("-", lines(TRANSLATIONS)),
        ("-", "\ufeff" + plain(TRANSLATIONS).replace("\n", "\r\n")),
    ],
)
def test_json_lines_and_standard_input_give_the_same(call, source, stdin):
    expected = call("t.txt", "--references", "r.txt", "--json")
    assert call(source, "--references", "r.txt", "--json", stdin=stdin) == expected


@pytest.mark.usefixtures("_no_judge")
def test_without_json_a_table_is_printed(call):
    code, out, err = call("t.txt", "--references", "r.txt")
    assert (code, err) == (0, "")
    found = compare(TRANSLATIONS, REFERENCES)
    assert [" ".join(line.split()) for line in out.splitlines()] == [
        "sentences 4",
        f"bleu {found.bleu:.6g} ± {found.bleu_interval:.2g} (95 %)",
        f"bleu signature {found.bleu_signature}",
        f"brevity penalty {found.brevity_penalty:.6g}",
        f"length ratio {found.length_ratio:.6g}",
        f"chrf {found.chrf:.6g} ± {found.chrf_interval:.2g} (95 %)",
        f"chrf signature {found.chrf_signature}",
    ]


@pytest.mark.usefixtures("_no_judge")
@pytest.mark.parametrize("texts", [["", "b b"], ["b b", ""], ["", ""]])
def test_empty_lines_are_kept_wherever_they_stand(call, tmp_path, texts):
    (tmp_path / "two.txt").write_text("a a\nb b\n")
    _, out, _ = call("-", "--references", "two.txt", "--json", stdin=plain(texts))
    assert json.loads(out) == compare(texts, ["a a", "b b"]).to_dict()


@pytest.mark.usefixtures("_no_judge")
def test_a_lone_empty_line_is_a_translation_and_no_line_is_none(call, refused, tmp_path):
    (tmp_path / "one.txt").write_text("the cat\n")
    code, out, _ = call("-", "--references", "one.txt", "--json", stdin="\n")
    assert code == 0
    assert json.loads(out)["bleu"] == 0
    assert "'-' is empty" in refused("-", "--references", "one.txt")


def test_with_a_judge_both_kinds_of_numbers_are_there(call, judge, tmp_path):
    (tmp_path / "training.txt").write_text("a dog\n")
    words = ["words.txt", "--references", "r.txt", "--judge", judge, "--training", "training.txt"]
    code, out, err = call(*words, "--json")
    assert (code, err) == (0, "")
    scores = compare(WORDS, REFERENCES).to_dict()
    judged = evaluate(WORDS, Autoregressive(str(judge)), tmp_path / "training.txt").to_dict()
    assert scores.keys() & judged.keys() == {"sentences", "notes"}
    assert json.loads(out) == scores | judged
    assert judged["copied"] == 1 / 4
    table = call(*words)[1]
    assert "(95 %)" in table
    assert "perplexity per token" in table


def test_notes_of_both_kinds_are_joined(call, judge, tmp_path, monkeypatch):
    from maskov.evaluation import translation

    monkeypatch.setattr(translation, "_MANY", 1)
    (tmp_path / "one.txt").write_text("the cat .\n")
    _, out, _ = call("one.txt", "--references", "one.txt", "--judge", judge, "--json")
    notes = json.loads(out)["notes"]
    assert [("tokenised" in note, "self-BLEU" in note) for note in notes] == [
        (True, False),
        (False, True),
    ]


def test_a_judge_cannot_read_an_empty_translation(refused, judge):
    assert "sentence 2 is empty" in refused("t.txt", "--references", "r.txt", "--judge", judge)


@pytest.mark.usefixtures("_no_judge")
def test_counts_that_differ_are_named(refused, tmp_path):
    for source in ("short.txt", "short.jsonl"):
        write = plain if source.endswith("txt") else lines
        (tmp_path / source).write_text(write(TRANSLATIONS[:3]))
        said = refused(source, "--references", "r.txt")
        assert "translations is 3, that of references 4" in said
        assert "chain" not in said


@pytest.mark.usefixtures("_no_judge")
def test_several_chains_for_a_source_are_named(refused, call, tmp_path):
    both = lines(TRANSLATIONS, chain=0) + lines(TRANSLATIONS, chain=1)
    said = refused("-", "--references", "r.txt", stdin=both)
    assert "8 translations from 2 chains for 4 references" in said
    assert "one translation for each source" in said
    # More lines of one chain are only too many, and chains that differ are no fault by themselves.
    again = lines(TRANSLATIONS, chain=0) * 2
    assert "translations is 8" in refused("-", "--references", "r.txt", stdin=again)
    each = "".join(lines([text], chain=chain) for chain, text in enumerate(TRANSLATIONS))
    assert call("-", "--references", "r.txt", stdin=each)[0] == 0


@pytest.mark.usefixtures("_no_judge")
@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "'bad.txt' is empty"),
        (b"\n", "'bad.txt' is empty"),
        (b"\n \n\n\n", "references are empty"),
        (b"a\nb\n\xff\xfe\nd\n", "'bad.txt' is not UTF-8 text (line 3)"),
    ],
)
def test_references_that_cannot_be_used_are_refused(refused, tmp_path, content, reason):
    (tmp_path / "bad.txt").write_bytes(content)
    assert reason in refused("t.txt", "--references", "bad.txt")


@pytest.mark.usefixtures("_no_judge")
def test_what_cannot_be_read_is_named(refused, tmp_path):
    assert "cannot read 'nowhere'" in refused("t.txt", "--references", "nowhere")
    assert "cannot read 'nowhere'" in refused("nowhere", "--references", "r.txt")
    assert "'.' is a folder" in refused(".", "--references", "r.txt")
    assert "both" in refused("-", "--references", "-", stdin="a\n")
    (tmp_path / "bad.jsonl").write_text('{"text": "a"}\n\n')
    assert "line 2 of 'bad.jsonl'" in refused("bad.jsonl", "--references", "r.txt")
    assert "give --judge" in refused("t.txt", "--references", "r.txt", "--training", "r.txt")


@pytest.mark.usefixtures("_no_judge")
def test_without_sacrebleu_the_extra_is_named(refused, monkeypatch):
    for name in ("sacrebleu", "sacrebleu.metrics.bleu"):
        monkeypatch.setitem(sys.modules, name, None)
    assert "pip install '.[evaluate]'" in refused("t.txt", "--references", "r.txt")


@pytest.mark.usefixtures("_no_judge")
def test_without_references_the_judge_is_loaded_as_before(call):
    """The stand-in for the judge must be able to fail, or the tests above show nothing."""
    with pytest.raises(AssertionError, match="a judge was loaded"):
        call("words.txt")
