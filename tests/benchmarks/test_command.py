"""The command `bench`, whole, on a tiny model."""

from __future__ import annotations

import json
import re
import subprocess
from dataclasses import replace
from functools import partial

import pytest

import tiny_models
from maskov.benchmarks import Options, jobs, run
from maskov.benchmarks.models import load_model
from maskov.benchmarks.scaling import main as scaling
from maskov.benchmarks.scaling import measure_scaling
from maskov.benchmarks.sentences import SENTENCES
from maskov.benchmarks.start_up import seconds_to_answer
from maskov.benchmarks.variants import VARIANTS, reference_variant
from maskov.benchmarks.worker import run_job, run_json_job
from maskov.cli import main
from maskov.errors import InputError

FAST = [
    "--model", "untrained", "--device", "cpu", "--chains", "3", "--length", "4",
    "--epochs", "7", "--burn-in", "2", "--seconds", "0.05",
]  # fmt: skip
OPTIONS = Options(
    model="untrained", device="cpu", chains=2, length=(2, 2), epochs=2, burn_in=1, seconds=0.05
)


@pytest.fixture
def call(capfd):
    """Run the command; return its exit code, output and errors."""

    def command(*words: str):
        capfd.readouterr()
        with pytest.raises(SystemExit) as ended:
            main([str(word) for word in words])
        out, err = capfd.readouterr()
        return ended.value.code or 0, out, err

    return command


@pytest.fixture
def here(monkeypatch):
    """Measure in this process, since starting one for each row takes seconds."""
    monkeypatch.setattr("maskov.benchmarks.run", partial(run, run_job=run_job))
    monkeypatch.setattr(
        "maskov.benchmarks.side_by_side.seconds_to_answer", lambda: {"--version": 0.25}
    )


def test_the_start_of_the_command_is_measured_in_processes_of_its_own():
    found = seconds_to_answer(times=1)
    assert found.keys() == {"--version", "--help", "sample --help"}
    assert all(0 < seconds < 60 for seconds in found.values())


def test_every_row_in_one_json_object(call, here, tmp_path):
    file = tmp_path / "found.json"
    code, out, err = call("bench", *FAST, "--json", "--quiet", "--out", file)
    assert (code, err) == (0, "")
    found = json.loads(out)
    assert json.loads(file.read_text()) == found
    names = ["algorithm 1", "batched copies", *(variant.name for variant in VARIANTS)]
    assert [row["name"] for row in found["rows"]] == names
    law = next(row for row in found["rows"] if row["name"] == found["reference"])
    for row in found["rows"]:
        _check_rates(row)
        if row["name"] in names[:2]:
            assert row["passes"] == row["steps"] * (2 * 4 + 1)
            assert row["rates_from"] == found["reference"]
            assert row["novel_per_step"] == law["novel_per_step"]
            assert row["novel_per_second"] == pytest.approx(
                law["novel_per_step"] * row["steps"] / row["seconds"]
            )
        else:
            # As many of the three chains as --seconds allows.
            chains = int(re.search(r"chains:(\d+)", row["signature"])[1])
            assert 1 <= chains <= 3
            assert row["steps"] == chains * 4 * (7 - 2)
            assert row["novel_per_step"] == row["novel_seen"] / row["steps"]
            assert "kernel:mh" in row["signature"]
        assert row["share_of_ceiling"] == pytest.approx(
            row["teraflops"] / found["ceiling"]["teraflops"]
        )
    plain, batched = found["rows"][:2]
    for row in found["rows"]:
        for letter, other in (("a", plain), ("b", batched)):
            for key, ratio in row["ratios"][letter].items():
                assert ratio == pytest.approx(row[key] / other[key])
    # What maskov keeps is worth something: fewer passes for the same moves.
    assert law["passes_per_step"] < plain["passes_per_step"]
    assert found["machine"].keys() >= {"device", "processor", "cores", "threads"}
    assert found["versions"].keys() >= {"maskov", "torch", "transformers", "python"}
    assert found["options"]["chains"] == 3
    assert "never trained" in found["model"]["caution"]
    _check_scores(found["score"])
    assert found["seconds_to_answer"] == {"--version": 0.25}


def _check_rates(row):
    steps, passes, seconds = row["steps"], row["passes"], row["seconds"]
    assert row["steps_per_second"] == pytest.approx(steps / seconds)
    assert row["passes_per_step"] == pytest.approx(passes / steps)
    assert row["passes_per_second"] == pytest.approx(passes / seconds)
    assert row["tokens_per_second"] == pytest.approx(passes * (4 + 2) / seconds)
    assert row["novel_per_pass"] == pytest.approx(row["novel_per_step"] * steps / passes)
    assert row["effective_per_second"] == pytest.approx(
        row["effective_per_pass"] * passes / seconds
    )
    assert row["peak_memory_mib"] >= 0


def _check_scores(score):
    ours, theirs = score["rows"]
    assert ours["name"] == "maskov"
    assert ours["sentences_per_second"] > 0
    assert ours["tokens_per_second"] > ours["sentences_per_second"]
    if "missing" in theirs:
        assert score["agree"] is None
    else:
        assert score["agree"] is True
        assert score["largest_difference"] < 1e-3


def test_scorers_that_differ_are_found_out():
    def wrong(job):
        found = run_job(job)
        if job.get("scorer") == "minicons":
            found = {"name": "minicons", "energies": [12.0] * 4, "sentences_per_second": 1.0}
        return found

    found = run(replace(OPTIONS, rows=("score",)), run_job=wrong)
    assert found["rows"] == []
    assert found["score"]["agree"] is False
    assert found["score"]["largest_difference"] > 1


def test_the_table_has_a_column_for_each_row(call, here):
    code, out, _ = call("bench", *FAST, "--rows", "a,b", "--length", "3:5", "--energy", "norm")
    assert code == 0
    header, first = out.splitlines()[:2]
    assert header.split() == ["algorithm", "1", "batched", "copies", reference_variant().name]
    assert first.startswith("novel moves/s ")
    assert len(first.split()) == 2 + 3
    # Chains of different lengths have no common effective size.
    assert "ESS" not in out


@pytest.mark.slow
def test_one_row_with_nothing_replaced(call):
    """Jobs go to fresh processes, and the table comes back."""
    code, out, err = call("bench", *FAST, "--rows", VARIANTS[0].name)
    assert code == 0
    assert out.split()[0] == VARIANTS[0].name
    assert "novel moves/s" in out
    assert "measuring the ceiling" in err
    assert "never trained" in err


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        ("--energy heat", "unknown energy 'heat'"),
        ("--energy raw+norm", "unknown energy"),
        ("--precision int4", "unknown precision 'int4'"),
        ("--precision tf32", "tf32 is for CUDA devices"),
        ("--rows a,d", "unknown row 'd'"),
        ("--rows ,", "names no row"),
        ("--chains 0", "at least one chain"),
        ("--length 5:x", "no number or range"),
        ("--length 9:5", "no range"),
        ("--length 0", "no range"),
        ("--length 5000", "out of range"),
        ("--burn-in 0", "burn-in"),
        ("--burn-in 7", "burn-in"),
        ("--seconds 0", "--seconds"),
        ("--seconds nan", "--seconds"),
        ("--seed -1", "seed"),
        ("--device abacus", "'abacus' is not available"),
        ("--model counterexample", "not a Hugging Face model"),
        ("--model ./nowhere", "no masked language model"),
        ("--model bert-2x100-shaped", "steps of 64"),
        ("--out .", "already exists"),
        ("--out nowhere/x.json", "folder 'nowhere' not found"),
    ],
)
def test_bad_options_are_refused_in_one_sentence(call, here, monkeypatch, tmp_path, words, reason):
    monkeypatch.chdir(tmp_path)
    code, out, err = call("bench", *FAST, "--quiet", *words.split())
    assert (code, out) == (2, "")
    assert reason in err
    assert err.startswith("maskov: ")
    assert err.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_a_job_in_a_process_of_its_own():
    found = jobs.run_in_subprocess({"task": "ceiling", "options": OPTIONS.to_dict()})
    assert found["teraflops"] > 0
    assert found["model"]["name"] == "untrained"
    # Products of 2048 x 128 numbers were made since the model was loaded, and not much else.
    assert 0.5 < found["peak_memory_mib"] < 500


@pytest.mark.parametrize(
    ("answer", "errors", "reason"),
    [
        (b'{"error": "no such thing."}', b"", "no such thing."),
        (b"", b"Traceback\nValueError: oh", "ValueError: oh"),
        (b"", b"", "ended with code 9"),
    ],
)
def test_a_job_that_fails_elsewhere_is_told_here(monkeypatch, answer, errors, reason):
    done = subprocess.CompletedProcess([], 9, answer, errors)
    monkeypatch.setattr("maskov.benchmarks.jobs.subprocess.run", lambda *_, **__: done)
    with pytest.raises(InputError, match=reason):
        jobs.run_in_subprocess({"task": "ceiling", "options": OPTIONS.to_dict()})


def test_what_the_user_can_mend_is_an_answer():
    job = {"task": "ceiling", "options": OPTIONS.to_dict() | {"device": "abacus"}}
    assert "'abacus' is not available" in run_json_job(json.dumps(job))["error"]


def test_a_folder_is_called_by_its_name_not_its_path(tmp_path):
    folder = tiny_models.build("bert", tmp_path / "my-bert")
    assert load_model(str(folder), "cpu").name == "my-bert"


def test_a_shape_is_what_it_is_called_and_knows_the_sentences():
    model = load_model("bert-1x64-shaped", "cpu")
    config = model.network.config
    assert (config.num_hidden_layers, config.hidden_size) == (1, 64)
    assert model.vocabulary_size == 30522
    assert "random weights" in model.caution
    assert len(set(SENTENCES)) == 256
    unknown = model.tokenizer.unk_token_id
    assert all(unknown not in model.encode(text) for text in SENTENCES)


@pytest.mark.parametrize(
    ("over", "values"), [("chains", ["1", "3"]), ("length", ["2", "5"]), ("size", ["1x64"])]
)
def test_scaling_runs_over_its_grid(over, values):
    *_, found = measure_scaling(OPTIONS, over, values, run_job=run_job)
    assert [point["value"] for point in found["points"]] == values
    length = [int(value) if over == "length" else 2 for value in values]
    chains = [int(value) if over == "chains" else 2 for value in values]
    steps = [point["steps"] for point in found["points"]]
    assert steps == [t * n for t, n in zip(length, chains, strict=True)]
    if over == "size":
        assert found["points"][0]["model"]["name"] == "bert-1x64-shaped"


@pytest.mark.parametrize(
    ("words", "reason"),
    [("--values 1,x", "no number of chains"), ("--variant plain", "unknown row 'plain'")],
)
def test_scaling_refuses_in_one_sentence(capsys, tmp_path, words, reason):
    with pytest.raises(SystemExit) as ended:
        scaling(["--over", "chains", "--out", str(tmp_path / "x.json"), *words.split()])
    assert ended.value.code == 2
    assert reason in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []
