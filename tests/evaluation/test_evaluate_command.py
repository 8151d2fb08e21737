"""`maskov evaluate` as a user calls it: runs, files, standard input, and what is refused."""

import json
import lzma
import sys
from dataclasses import asdict
from importlib.metadata import version
from unittest.mock import Mock

import pytest

import maskov
import tiny_models
from maskov.evaluation import compare, evaluate, evaluate_run

TEXTS = tiny_models.TEXTS


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "texts.txt"
    path.write_text("\n".join(TEXTS) + "\n")
    return path


@pytest.fixture(scope="module")
def masked(tmp_path_factory):
    """A masked model whose words the judge can spell."""
    return maskov.load(tiny_models.build("bert", tmp_path_factory.mktemp("bert")), "cpu")


def test_a_file_standard_input_and_json_lines_give_one_json_object(
    call, file, tmp_path, judge_folder, judge
):
    options = ["--judge", judge_folder, "--json"]
    code, out, err = call("evaluate", file, *options)
    assert (code, err) == (0, "")
    found = json.loads(out)
    assert found == asdict(evaluate(TEXTS, judge))
    assert found["sentences"] == 4
    assert found["length"] == (3 + 10 + 4 + 1) / 4
    # "the" is there three times and "dog" twice, every pair of words once.
    assert found["distinct_1"] == 15 / 18
    assert found["distinct_2"] == found["distinct_3"] == 1
    assert found["copied"] is found["run_signature"] is None
    assert found["notes"] == []
    ((name, fingerprint),) = judge.models().items()
    assert found["signature"].split("|") == [
        f"judge:{name}#{fingerprint[:12]}",
        "perplexity:start-token,no-end",
        "distinct:words",
        f"self-bleu:sacrebleu-{version('sacrebleu')},exp,13a,n=4",
        "copied:none",
        f"version:{maskov.__version__}",
    ]
    assert call("evaluate", "-", *options, stdin=file.read_bytes())[1] == out
    lines = tmp_path / "texts.jsonl"
    lines.write_text("".join(json.dumps({"id": 1, "text": text}) + "\n" for text in TEXTS))
    assert call("evaluate", lines, *options)[1] == out
    table = call("evaluate", file, *options[:2])[1]
    assert "perplexity per token" in table
    assert " ± " in table
    assert "copied  " not in table


def test_copies_are_looked_for_in_a_training_text(call, file, tmp_path, judge_folder):
    training = tmp_path / "training.xz"
    training.write_bytes(lzma.compress(b"The cat sat\nthe bird\n"))
    words = ["evaluate", file, "--judge", judge_folder, "--training", training, "--json"]
    found = json.loads(call(*words)[1])
    assert found["copied"] == 1 / 4
    assert found["copied_standard_error"] == pytest.approx(1 / 4)
    assert "|copied:lower,no-space,training#" in found["signature"]


def test_a_run_is_evaluated_by_its_samples_and_says_what_is_not_so(masked, tmp_path, judge):
    schedule = maskov.Schedule(epochs=2)
    run = maskov.sample(masked, chains=3, length=4, schedule=schedule)
    found = evaluate_run(run, judge)
    assert (found.sentences, found.run_signature, found.notes) == (3, run.signature, [])
    alone = evaluate([sample.text for sample in run.samples], judge)
    assert found.perplexity_per_token == alone.perplexity_per_token
    run = maskov.sample(masked, maskov.Gibbs(), schedule, chains=2, length=4, thin=1)
    notes = evaluate_run(run, judge).notes
    assert len(notes) == 2
    assert "gibbs leaves no target invariant" in notes[0]
    assert "same chain" in notes[1]


def test_a_single_sentence_has_no_standard_errors(judge):
    found = asdict(evaluate(["the cat sat"], judge))
    assert {value for name, value in found.items() if name.endswith("_standard_error")} == {None}
    assert found["self_bleu"] is None
    assert "self-BLEU needs at least two sentences" in found["notes"][0]


def test_without_sacrebleu_the_rest_is_there(judge, monkeypatch):
    for name in ("sacrebleu", "sacrebleu.metrics.bleu"):
        monkeypatch.setitem(sys.modules, name, None)
    found = evaluate(TEXTS, judge)
    assert found.self_bleu is None
    assert found.self_bleu_standard_error is None
    assert "pip install '.[evaluate]'" in found.notes[0]
    assert "|self-bleu:none|" in found.signature
    assert found.distinct_1 is not None


def test_a_run_without_samples_or_with_half_of_one_is_refused(
    refused, masked, tmp_path, judge_folder
):
    maskov.sample(masked, maskov.Gibbs(), chains=2, length=3, out=tmp_path / "run")
    samples = tmp_path / "run" / "samples.jsonl"
    for content, reason in ((samples.read_text()[:-20], "are damaged"), ("", "no samples yet")):
        samples.write_text(content)
        assert reason in refused("evaluate", tmp_path / "run", "--judge", judge_folder)


REFERENCES = ["the cat sat in the house", "a big red dog ran", "the old bird ate and ran", "dog"]
TRANSLATIONS = ["the big cat sat in the house", "", "the old bird ate the cat", "a dog"]


def test_translations_are_compared_and_need_no_judge(call, file, tmp_path, monkeypatch):
    monkeypatch.setattr("maskov.energies.Autoregressive", Mock(side_effect=OSError("a judge")))
    plain, *lines = (
        "".join(form(chain, text) + "\n" for chain, text in enumerate(TRANSLATIONS))
        for form in (
            lambda chain, text: text,
            lambda chain, text: json.dumps({"text": text}),
            lambda chain, text: json.dumps({"text": text, "chain": 0}),
            lambda chain, text: json.dumps({"text": text, "chain": chain}),
        )
    )
    references = tmp_path / "r"
    references.write_text("".join(text + "\n" for text in REFERENCES))
    found = compare(TRANSLATIONS, REFERENCES)
    for content in (plain, "\ufeff" + plain.replace("\n", "\r\n"), *lines):
        translations = tmp_path / ("t.jsonl" if content in lines else "t.txt")
        translations.write_bytes(content.encode())
        for source in (translations, "-"):
            words = ("evaluate", source, "--references", references, "--json")
            assert json.loads(call(*words, stdin=content.encode())[1]) == asdict(found)
    shown = call("evaluate", translations, "--references", references)[1]
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
    call("evaluate", file)
    maskov.energies.Autoregressive.assert_called()
