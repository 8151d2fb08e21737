"""A run ends with the verdict of `diagnose`, and with what to try next by name of option."""

from __future__ import annotations

import pytest

from maskov import Run

WORDS = ["sample", "--model", "counterexample", "--length", "2", "--workers", "0"]


@pytest.fixture
def said(call):
    """Run a command that must succeed; return the lines of its errors."""

    def run(*words):
        code, _, err = call(*words)
        assert code == 0, err
        return err.splitlines()

    return run


@pytest.mark.parametrize(
    ("options", "verdict", "advice"),
    [
        ("-n 12", "too short to tell: 6 traced epochs", "--epochs 24, or --until converged"),
        ("-n 40 -c 1", "one chain: ", "--chains 8"),
        ("-n 40 -k gibbs", "no target: ", "--kernel mh"),
        ("-n 40 --target-temperature 1:0.01", "annealed: ", "a fixed --target-temperature"),
        ("-n 40 --force-accept 20", "forced: ", "--burn-in 20 or more"),
        ("-n 40 -c 2", "not converged: ", "--epochs "),
        ("-n 120 -c 40", "converged: nested R-hat 1.0", None),
    ],
)  # fmt: skip
def test_the_last_lines_are_a_verdict_and_advice(options, verdict, advice, said):
    lines = said(*WORDS, *options.split())
    assert lines[-1].startswith("model:counterexample")
    if advice is None:
        assert lines[-2].startswith(verdict)
        assert not any("try next" in line for line in lines)
    else:
        assert lines[-3].startswith(verdict)
        assert lines[-2].startswith(f"try next: {advice}")


def test_the_advice_is_enough_epochs_by_the_verdict(tmp_path, said):
    """Burn-in stays, and the epochs after it are as many times more as the verdict asks for."""
    lines = said(*WORDS, "-n", "40", "-c", "2", "--out", tmp_path / "run")
    verdict = Run.open(tmp_path / "run").diagnose().verdict
    factor = verdict.times_longer
    assert verdict.state == "not converged"
    assert lines[-3:-1] == verdict.lines()
    epochs = int(verdict.advice.split("--epochs ")[1].split(",")[0])
    assert 8 + factor * 32 <= epochs <= 1.1 * (8 + factor * 32) + 1


def test_resuming_ends_with_the_same_words(tmp_path, said):
    first = said(*WORDS, "-n", "12", "--out", tmp_path / "run")
    again = said("resume", tmp_path / "run")
    assert first[-3:] == again[-3:]
    assert first[-3].startswith("too short to tell")
