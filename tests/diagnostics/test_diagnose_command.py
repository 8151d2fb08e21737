"""`maskov diagnose` as a user calls it: the verdict first, all it said before, and strict JSON."""

import json
import subprocess
import sys

import pytest

import maskov
from maskov import Schedule
from small import tiny_bert

MODEL = tiny_bert()

BEFORE = {
    "signature", "model", "kernel", "energy", "leaves_invariant", "notes", "chains", "epochs",
    "epochs_done", "burn_in", "steps", "acceptance_rate", "novel_rate", "proposed_novel_rate",
    "passes_per_step", "energy_raw_mean", "energy_raw_standard_error", "energy_norm_mean",
    "energy_norm_standard_error",
}  # fmt: skip


@pytest.fixture
def call(call):
    def run(*words):
        code, out, err = call(*words)
        assert code == 0
        return out, err

    return run


def strict(text: str):
    def refuse(name: str):
        raise AssertionError(f"{name} is no JSON")

    return json.loads(text, parse_constant=refuse)


def sampled(call, folder, *words):
    call(
        "sample",
        "--model",
        "untrained",
        "--chains",
        3,
        "--length",
        3,
        "-q",
        "--out",
        folder,
        *words,
    )
    return folder


def test_the_swaps_of_replicas_are_told(call, tmp_path):
    folder = sampled(call, tmp_path / "run", "--epochs", 6, "--replicas", "1,0.9,0.8")
    out, _ = call("diagnose", folder)
    figures = strict(call("diagnose", folder, "--json")[0])["diagnosis"]["exchange"]
    assert figures["ladder"] == [1.0, 0.9, 0.8]
    rows = [line.split() for line in out.splitlines()]
    assert f"swaps, β 1 and 0.9 {figures['swap_rates'][0]:.3f}".split() in rows
    assert "round trips per 1,000 epochs" in out
    found = sampled(call, tmp_path / "found", "--epochs", 2, "--replicas", 2)
    assert "exchange" in strict(call("diagnose", found, "--json")[0])["diagnosis"]
    assert json.loads((found / "manifest.json").read_text())["ladder"][0] == 1.0


def test_the_verdict_comes_first_and_nothing_is_lost(call, tmp_path):
    folder = sampled(call, tmp_path / "run", "--epochs", 24, "--burn-in", 3)
    out, err = call("diagnose", folder)
    assert err == ""
    found = strict(call("diagnose", folder, "--json")[0])
    assert found.keys() == BEFORE | {"diagnosis"}
    verdict = found["diagnosis"]["verdict"]
    lines = out.splitlines()
    assert lines[0] == f"{verdict['state']}: {verdict['reason']}"
    table = next(line.split() for line in lines if line.startswith("E_raw"))
    energy = found["diagnosis"]["energies"]["E_raw"]
    assert table[1] == f"{energy['r_hat']:.3f}"
    assert table[3] == f"{energy['ess_bulk']:.0f}"
    assert "tokens" in out
    for name in BEFORE:
        assert name.replace("_", " ") in out


def test_tokens_are_spelled_also_those_that_no_sample_has(call, tmp_path):
    """Of a run without --thin, the samples are those of the last epoch alone."""
    folder = sampled(call, tmp_path / "run", "--epochs", 60)
    run = maskov.Run.open(folder)
    numbers = {int(token) for token in run.traces["tokens"].ravel()}
    assert numbers > {token for one in run.samples for token in one.ids}
    assert run.store.spellings().keys() == numbers
    texts = run.store.spellings()
    assert all([texts[number] for number in one.ids] == one.tokens for one in run.samples)
    names = [one.name for one in run.diagnose().tokens.statistics]
    assert len(names) > 5
    assert all("'" in name or name == "the choice of tokens" for name in names)
    (folder / "tokens.json").write_text('{"1": ')
    assert maskov.Run.open(folder).diagnose().verdict == run.diagnose().verdict


@pytest.mark.parametrize(
    "words",
    [
        ["--epochs", 1],
        ["--epochs", 21, "--target-temperature", "1:0.01:0.1"],
        ["--epochs", 21, "--target-temperature", "1e-9"],
        ["--epochs", 21, "--length", "3:4"],
    ],
)
def test_whatever_was_run_gives_strict_json_and_no_warning(call, tmp_path, words):
    folder = sampled(call, tmp_path / "run", *words)
    out, err = call("diagnose", folder, "--json")
    assert err == ""
    assert strict(out)["diagnosis"]["verdict"]["reason"]
    assert call("diagnose", folder)[1] == ""


def test_the_command_starts_without_arviz():
    """It takes a second to import."""
    words = [sys.executable, "-X", "importtime", "-m", "maskov", "--version"]
    done = subprocess.run(words, capture_output=True, check=True, text=True)
    assert done.stdout == f"maskov {maskov.__version__}\n"
    assert "| maskov.version" in " ".join(done.stderr.split())
    assert "| arviz_" not in " ".join(done.stderr.split())


def test_damaged_samples_do_not_stand_in_the_way_of_traces(call, tmp_path):
    words = ["--epochs", 21, "--length", "3:4", "--kernel", "gibbs", "--moves", "site(block=2)"]
    folder = sampled(call, tmp_path / "run", *words)
    whole = strict(call("diagnose", folder, "--json")[0])["diagnosis"]
    assert (whole["groups"], whole["single_groups"]) == (2, 1)
    (folder / "samples.jsonl").write_text("{")
    found = strict(call("diagnose", folder, "--json")[0])["diagnosis"]
    for told in ("groups", "single_groups", "verdict", "energies"):
        assert found[told] == whole[told]


def test_a_run_that_has_only_begun_says_so(tmp_path, call):
    class Impatient:
        def begun(self, model):
            raise TimeoutError

        def __getattr__(self, name):
            return lambda *_: None

    words = {"chains": 2, "out": tmp_path / "run", "listener": Impatient()}
    with pytest.raises(TimeoutError):
        maskov.sample(MODEL, schedule=Schedule(epochs=30), length=(3, 5), **words)
    found = strict(call("diagnose", tmp_path / "run", "--json")[0])
    assert found["epochs_done"] == 0
    assert found["diagnosis"]["verdict"]["state"] == "too short to tell"
    assert found["diagnosis"]["energies"]["E_raw"]["mean"] is None
    assert "too short to tell: 0 traced epochs" in call("diagnose", tmp_path / "run")[0]
    assert maskov.Run.open(tmp_path / "run").to_arviz()["posterior"].sizes["draw"] == 0
