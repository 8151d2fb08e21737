"""`maskov evaluate` as a user calls it: runs, files, standard input, and what is refused."""

import json
import lzma
import sys
from importlib.metadata import version

import pytest

import maskov
import tiny_models
from maskov import shipped
from maskov.evaluation import evaluate, evaluate_run

TEXTS = tiny_models.TEXTS
KEYS = {
    "sentences", "tokens",
    "perplexity_per_sentence", "perplexity_per_sentence_standard_error",
    "perplexity_per_token", "perplexity_per_token_standard_error",
    "nll_per_sentence", "nll_per_sentence_standard_error",
    "distinct_1", "distinct_2", "distinct_3",
    "self_bleu", "self_bleu_standard_error", "copied", "copied_standard_error",
    "length", "length_standard_error", "signature", "run_signature", "notes",
}  # fmt: skip


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "texts.txt"
    path.write_text("\n".join(TEXTS) + "\n")
    return path


@pytest.fixture(scope="module")
def masked(tmp_path_factory):
    """A masked model whose words the judge can spell."""
    return maskov.load(tiny_models.build("bert", tmp_path_factory.mktemp("bert")), "cpu")


def test_a_file_gives_one_json_object(call, file, judge_folder, judge):
    code, out, err = call("evaluate", file, "--judge", judge_folder, "--json")
    assert (code, err) == (0, "")
    found = json.loads(out)
    assert found.keys() == KEYS
    assert found == evaluate(TEXTS, judge).to_dict()
    assert found["sentences"] == 4
    assert found["length"] == (3 + 10 + 4 + 1) / 4
    # "the" is there three times and "dog" twice, every pair of words once.
    assert found["distinct_1"] == 15 / 18
    assert found["distinct_2"] == found["distinct_3"] == 1
    assert found["copied"] is None
    assert found["run_signature"] is None
    assert found["notes"] == []


def test_the_signature_says_how_the_numbers_came_about(judge, judge_folder):
    ((name, fingerprint),) = judge.models().items()
    assert evaluate(TEXTS, judge).signature.split("|") == [
        f"judge:{name}#{fingerprint[:12]}",
        "perplexity:start-token,no-end",
        "distinct:words",
        f"self-bleu:sacrebleu-{version('sacrebleu')},exp,13a,n=4",
        "copied:none",
        f"version:{maskov.__version__}",
    ]


def test_standard_input_and_json_lines_give_the_same(call, file, tmp_path, judge_folder):
    options = ["--judge", judge_folder, "--json"]
    expected = call("evaluate", file, *options)[1]
    assert call("evaluate", "-", *options, stdin=file.read_bytes())[1] == expected
    lines = tmp_path / "texts.jsonl"
    lines.write_text("".join(json.dumps({"id": 1, "text": text}) + "\n" for text in TEXTS))
    assert call("evaluate", lines, *options)[1] == expected


def test_without_json_a_table_is_printed(call, file, judge_folder):
    code, out, _ = call("evaluate", file, "--judge", judge_folder)
    assert code == 0
    assert "perplexity per token" in out
    assert " ± " in out
    assert f"judge:{judge_folder}#" in out
    assert "copied  " not in out


def test_copies_are_looked_for_in_a_training_text(call, file, tmp_path, judge_folder):
    training = tmp_path / "training.xz"
    training.write_bytes(lzma.compress(b"The cat sat\nthe bird\n"))
    words = ["evaluate", file, "--judge", judge_folder, "--training", training, "--json"]
    found = json.loads(call(*words)[1])
    assert found["copied"] == 1 / 4
    assert found["copied_standard_error"] == pytest.approx(1 / 4)
    assert "|copied:lower,no-space,training#" in found["signature"]


def test_a_run_is_evaluated_by_its_samples(call, masked, tmp_path, judge, judge_folder):
    run = maskov.sample(masked, chains=3, length=4, out=tmp_path / "run",
                        schedule=maskov.Schedule(epochs=2))  # fmt: skip
    code, out, _ = call("evaluate", tmp_path / "run", "--judge", judge_folder, "--json")
    assert code == 0
    found = json.loads(out)
    assert found.keys() == KEYS
    assert found["sentences"] == 3
    assert found["run_signature"] == run.signature
    assert found["notes"] == []
    alone = evaluate([sample.text for sample in run.samples], judge)
    assert found["perplexity_per_token"] == alone.perplexity_per_token


def test_a_run_says_what_is_not_so(masked, judge):
    kernel = maskov.Gibbs()
    run = maskov.sample(masked, kernel, maskov.Schedule(epochs=2), chains=2, length=4, thin=1)
    notes = evaluate_run(run, judge).notes
    assert len(notes) == 2
    assert "gibbs leaves no target invariant" in notes[0]
    assert "same chain" in notes[1]


def test_a_single_sentence_has_no_standard_errors(judge):
    found = evaluate(["the cat sat"], judge).to_dict()
    assert all(found[name] is None for name in KEYS if name.endswith("_standard_error"))
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


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "is empty"),
        (b"the cat\n\nthe dog\n", "sentence 2 is empty"),
        (b"the cat\n \t\n", "sentence 2 is empty"),
        (b"a " * 50, "takes at most 24"),
        (b"the cat\n\xff\xfe\n", "not UTF-8 text (line 2)"),
    ],
)
def test_texts_that_cannot_be_judged_are_refused(refused, judge_folder, content, reason):
    assert reason in refused("-", "--judge", judge_folder, "--json", stdin=content)


@pytest.mark.parametrize("line", ["the cat", "[1]", '{"words": "a"}', '{"text": 3}', ""])
def test_json_lines_without_a_text_are_refused(refused, tmp_path, judge_folder, line):
    (tmp_path / "t.jsonl").write_text(f'{{"text": "a cat"}}\n{line}\n')
    assert "line 2 of '" in refused(tmp_path / "t.jsonl", "--judge", judge_folder)


def test_what_is_not_there_is_named(refused, file, tmp_path, judge_folder):
    judged = ["--judge", judge_folder]
    assert "cannot read 'nowhere'" in refused("nowhere", *judged)
    assert "not a run folder" in refused(tmp_path, *judged)
    assert "cannot read 'nowhere'" in refused(file, *judged, "--training", "nowhere")
    assert "no causal language model" in refused(file, "--judge", "./nowhere")
    assert "not available" in refused(file, *judged, "--device", "abacus")
    assert "at least 1, not 0" in refused(file, *judged, "--token-budget", "0")


def test_a_run_without_samples_or_with_half_of_one_is_refused(
    refused, masked, tmp_path, judge_folder
):
    maskov.sample(masked, maskov.Gibbs(), chains=2, length=3, out=tmp_path / "run")
    samples = tmp_path / "run" / "samples.jsonl"
    samples.write_text(samples.read_text()[:-20])
    assert "are damaged" in refused(tmp_path / "run", "--judge", judge_folder)
    samples.write_text("")
    assert "no samples yet" in refused(tmp_path / "run", "--judge", judge_folder)


def test_without_a_judge_one_is_asked_for(refused, file, tmp_path, monkeypatch):
    monkeypatch.setattr(shipped, "ROOT", tmp_path / "nothing")
    assert "give --judge" in refused(file)
    assert "'untrained' is a masked model" in refused(file, "--judge", "untrained")
