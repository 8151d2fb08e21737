"""The commands as a user calls them: what they print, where, and with which exit code."""

from __future__ import annotations

import json

import pytest

from maskov import Run

FAST = ["--epochs", "2", "--chains", "2", "--length", "5"]


def test_sample_prints_json_lines_on_standard_output_and_progress_on_standard_error(call):
    code, out, err = call("sample", *FAST, "--json")
    assert code == 0
    lines = [json.loads(line) for line in out.splitlines()]
    assert [line["chain"] for line in lines] == [0, 1]
    for line in lines:
        assert {"chain", "text", "tokens", "ids", "energy_raw", "energy_norm"} <= line.keys()
        assert len(line["ids"]) == len(line["tokens"]) == 5
    assert "epoch 2/2" in err
    assert "never trained" in err


def test_quiet_says_nothing_beside_the_samples(call):
    code, out, err = call("sample", *FAST, "--json", "--quiet")
    assert (code, err) == (0, "")
    assert len(out.splitlines()) == 2


def test_the_same_seed_gives_the_same_bytes_and_another_does_not(call):
    first = call("sample", *FAST, "--json", "-q", "--seed", "5")[1]
    assert call("sample", *FAST, "--json", "-q", "--seed", "5")[1] == first
    assert call("sample", *FAST, "--json", "-q", "--seed", "6")[1] != first


def test_without_json_a_table_is_printed(call):
    code, out, _ = call("sample", *FAST)
    assert code == 0
    assert out.split()[:4] == ["chain", "E_raw", "E_norm", "text"]


@pytest.mark.parametrize(
    ("kernel", "words"),
    [
        ("mh", ["--moves", "site"]),
        ("mh", ["--moves", "site", "--energy", "norm"]),
        ("gibbs", []),
        ("mask-predict", []),
    ],
)
def test_a_run_folder_diagnoses_itself(call, tmp_path, kernel, words):
    folder = tmp_path / "run"
    words = ["--kernel", kernel, *words, "--out", folder, "--json", "-q"]
    code, out, _ = call("sample", *FAST, *words)
    assert code == 0
    assert (folder / "samples.jsonl").read_text() == out
    code, out, _ = call("diagnose", folder, "--json")
    assert code == 0
    found = json.loads(out)
    assert found["kernel"] == kernel
    assert found["leaves_invariant"] is (kernel == "mh")
    assert found["chains"] == 2
    assert 0 <= found["novel_rate"] <= found["acceptance_rate"] <= 1
    assert found["steps"] == (4 if kernel == "mask-predict" else 20)
    for name in ("proposed_novel_rate", "passes_per_step", "energy_raw_mean", "energy_norm_mean",
                 "energy_raw_standard_error", "energy_norm_standard_error"):  # fmt: skip
        assert isinstance(found[name], float)
    assert "acceptance rate" in call("diagnose", folder)[1]


def test_resume_of_a_finished_run_prints_its_samples(call, tmp_path):
    first = call("sample", *FAST, "--out", tmp_path / "run", "--json", "-q")[1]
    assert call("resume", tmp_path / "run", "--json", "-q")[:2] == (0, first)


def test_every_schedule_can_be_asked_for(call):
    words = (
        "--moves site(block=3,block_anneal=1,order=left-to-right) --force-accept 1 --burn-in 1 "
        "--thin 1 --proposal epsilon=0.1,top_p=0.9,top_k=20,temperature=0.8 "
        "--target-temperature 1.2:0.2:0.5 --start greedy"
    )
    code, out, err = call("sample", "--epochs", "4", "--chains", "2", "--length", "6", "--json",
                          *words.split())  # fmt: skip
    assert code == 0
    assert len(out.splitlines()) == 2 * 3
    assert "block:3-1/epoch>=1" in err
    assert "T:1.2-0.2/epoch>=0.5" in err
    assert "invariant: no" in err


@pytest.mark.parametrize("words", ["--moves site(block=2)", "--moves site"])
def test_early_tests_go_with_blocks_and_sites(call, tmp_path, words):
    """Early tests change which proposals are accepted, and the signature says so."""
    ask = ["sample", *FAST, "--json", "-q", "-n", "6", *words.split()]
    code, out, _ = call(*ask, "--delayed", "2", "--out", tmp_path / "run")
    assert code == 0
    run = Run.open(tmp_path / "run")
    assert "delayed:2" in run.signature
    assert run.finished
    assert call(*ask, "--delayed", "2")[1] == out
    assert call(*ask, "--delayed", "0")[1] != out


def test_infill_keeps_the_given_words(call, tmp_path):
    code, out, _ = call("infill", "the [MASK] [MASK] on the mat .", "-n", "2", "--json", "-q")
    assert code == 0
    for line in map(json.loads, out.splitlines()):
        assert line["tokens"][0] == "the"
        assert line["tokens"][3:] == ["on", "the", "mat", "."]
        assert "[MASK]" not in line["tokens"]
    file = tmp_path / "templates.txt"
    file.write_text("the [MASK] sat\nno [MASK] [MASK]\n")
    for words, stdin in (([file], b""), (["-"], file.read_bytes())):
        code, out, _ = call("infill", *words, "-n", "1", "-c", "3", "--json", "-q", stdin=stdin)
        assert code == 0
        assert [json.loads(line)["template"] for line in out.splitlines()] == [0, 0, 0, 1, 1, 1]


def test_score_reads_files_and_standard_input(call, tmp_path):
    file = tmp_path / "texts.txt"
    file.write_text("the cat sat on the mat .\nthe dog\n")
    code, out, _ = call("score", file, "--energy", "norm", "--json")
    assert code == 0
    lines = [json.loads(line) for line in out.splitlines()]
    assert [line["text"] for line in lines] == ["the cat sat on the mat .", "the dog"]
    for line in lines:
        assert line["energy"] == pytest.approx(sum(line["terms"]))
        assert len(line["tokens"]) == len(line["terms"])
    assert call("score", "-", "--energy", "norm", "--json", stdin=file.read_bytes())[1] == out
    assert call("score", file)[1].split()[:2] == ["E_raw", "E_norm"]


def test_the_shipped_judge_scores_where_no_causal_model_is_named(call):
    def energy(*words):
        return json.loads(call(*words, "--json", stdin=b"the cat sat on the mat .")[1])["energy"]

    named = energy("score", "-", "-e", "autoregressive(wiki-judge)")
    assert energy("score", "-", "-e", "autoregressive", "-m", "wiki-small") == named
    assert energy("score", "-", "-e", "autoregressive", "-m", "wiki-judge") == named
    # The two share their vocabulary, so the sum has a term for each token.
    both = energy("score", "-", "-e", "norm+autoregressive", "-m", "wiki-small")
    assert both == pytest.approx(named + energy("score", "-", "-e", "norm", "-m", "wiki-small"))


def test_sums_of_energies_add_up(call):
    def energies(name):
        out = call("score", "-", "--energy", name, "--json", stdin=b"the cat sat")[1]
        return json.loads(out)["energy"]

    mixed = energies("0.5*raw+2*norm")
    assert mixed == pytest.approx(0.5 * energies("raw") + 2 * energies("norm"), abs=1e-4)


def test_chains_can_start_from_texts(call, tmp_path):
    file = tmp_path / "texts.txt"
    file.write_text("the cat sat\nthe dog ran on\n")
    code, out, _ = call("sample", "--start-text", file, "-n", "1", "-c", "2", "--json", "-q")
    assert code == 0
    assert [len(json.loads(line)["ids"]) for line in out.splitlines()] == [3, 3, 4, 4]


def test_the_counterexample_can_be_sampled_and_verified(call):
    code, out, _ = call("sample", "-m", "counterexample", "-n", "3", "-c", "2", "--json", "-q")
    assert code == 0
    assert all(len(json.loads(line)["ids"]) == 2 for line in out.splitlines())
    code, out, _ = call("verify", "--json")
    found = [json.loads(line) for line in out.splitlines()]
    assert code == 0
    for one in found:
        exact = one["invariance_error"] < 1e-10
        assert exact is one["claims_invariance"]


def test_the_version_is_printed(call):
    assert call("--version")[1].startswith("maskov ")
