"""Runs with experts: the same bytes after a stop and by workers, traces, samples, diagnostics."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import maskov
import tiny_models
from maskov import Metropolis, Mixture, Norm, Schedule, Site, Span, Workers, parse_energy
from maskov.energies.stages import DelayedAcceptance
from maskov.errors import Interrupted
from maskov.moves import Resize
from maskov.replay import Replayer
from odd_workers import files, oddly
from small import tiny_bert

WORDS = "red green blue black white ##s"
MODEL = tiny_bert(WORDS)
TEXTS = ["red green blue black", "white white red blue"]
COMMON = {"schedule": Schedule(epochs=4), "chains": 4, "resident": 4, "thin": 1, "texts": TEXTS}


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    root = tmp_path_factory.mktemp("networks")
    tiny_models.build_classifier(root / "classifier", WORDS)
    tiny_models.build_classifier(root / "other", "red green blue black white reds blues")
    tiny_models.build_encoder(root / "encoder", WORDS)
    tiny_models.build_masked(root / "masked", WORDS)
    return root


ENERGIES = {
    "all": "norm+3*classifier(ROOT/classifier, label=positive)+2*edit+4*contains('reds', 'blue')",
    "other words": "raw+2*classifier(ROOT/other, label=0)+similar(ROOT/encoder)+repeats",
    "product": "norm+0.5*norm(ROOT/masked)+edit(unit=words)",
    "no passes": "classifier(ROOT/classifier, label=1)+hamming",
}
KERNELS = {
    "site": lambda energy: Metropolis(energy, Site(), delayed=DelayedAcceptance(0)),
    "rewriting": lambda energy: Mixture(
        (
            Metropolis(energy, Span(sizes=(1, 2)), delayed=DelayedAcceptance(1)),
            Metropolis(energy, Resize(), delayed=DelayedAcceptance(1)),
        ),
        (2.0, 1.0),
    ),
}


def _kernel(energy, kernel, folders):
    return KERNELS[kernel](parse_energy(ENERGIES[energy].replace("ROOT", str(folders))))


def _sample(kernel, folder: Path | None, **settings) -> maskov.Run:
    prior = {"length_prior": "none"} if isinstance(kernel, Mixture) else {}
    return maskov.sample(MODEL, kernel, out=folder, **COMMON, **prior, **settings)


CASES = [
    ("all", "site"),
    ("all", "rewriting"),
    pytest.param("other words", "rewriting", marks=pytest.mark.slow),
    pytest.param("product", "rewriting", marks=pytest.mark.slow),
    ("no passes", "site"),
]


@pytest.mark.parametrize(("energy", "kernel"), CASES)
def test_the_same_bytes_after_a_stop_and_by_workers(energy, kernel, folders, tmp_path, monkeypatch):
    asked: list[int] = []
    run = _sample(_kernel(energy, kernel, folders), tmp_path / "whole",
                  stop=lambda: bool(asked.append(1)))  # fmt: skip
    whole, half = files(tmp_path / "whole"), len(asked) // 2
    stopped, again = tmp_path / "stopped", iter(range(10**6))
    with pytest.raises(Interrupted):
        _sample(_kernel(energy, kernel, folders), stopped, stop=lambda: next(again) > half,
                checkpoint_every=0)  # fmt: skip
    assert files(stopped) != whole
    maskov.resume(stopped, MODEL)
    assert files(stopped) == whole
    oddly(monkeypatch, count=2, seed=1)
    _sample(_kernel(energy, kernel, folders), tmp_path / "there", workers=Workers(2))
    assert files(tmp_path / "there") == whole
    assert all(Replayer(run, MODEL).epoch(chain, 2).agrees for chain in (0, 5))


@pytest.mark.slow
def test_the_same_bytes_by_processes(folders, tmp_path):
    """Real ones, which load the classifier themselves."""
    _sample(_kernel("all", "rewriting", folders), tmp_path / "whole")
    _sample(_kernel("all", "rewriting", folders), tmp_path / "there", workers=Workers(2))
    assert files(tmp_path / "there") == files(tmp_path / "whole")


def test_traces_and_samples_hold_what_the_experts_say(folders):
    kernel = _kernel("all", "rewriting", folders)
    run = _sample(kernel, None)
    traces, names = run.traces, run.manifest.experts
    assert names == tuple(str(part) for _, part in kernel.energy.others)
    assert len(names) == 3
    values, calls = traces["expert_energy"], traces["expert_calls"]
    assert values.shape == calls.shape == (4, 8, 3)
    weights = [weight for weight, _ in kernel.energy.others]
    whole = traces["energy_norm"] + values @ np.array(weights)
    assert np.allclose(whole, traces["energy_target"])
    # Cheap experts see every novel proposal, the classifier only those that pass them.
    novel = traces["proposed_novel"]
    classifier, edit, contains = (calls[:, :, column] for column in range(3))
    assert np.array_equal(np.maximum(edit, contains), novel)
    assert classifier.sum() < novel.sum()
    assert run.manifest.compares
    for sample in run.samples:
        row = values[sample.epoch, sample.chain]
        experts = dict(zip(names, row.tolist(), strict=True))
        target = float(traces["energy_target"][sample.epoch, sample.chain])
        assert sample.energies == {"target": target, **experts}
        assert json.loads(sample.to_json())["energies"] == sample.energies
        assert experts["edit"] == int(experts["edit"])


def test_chains_that_compare_are_diagnosed_line_by_line(folders):
    run = _sample(_kernel("all", "site", folders), None)
    diagnosis = run.diagnose()
    assert diagnosis.groups == len(TEXTS)
    groups = next(iter(diagnosis.energies.values())).groups
    assert [(group.template, group.chains) for group in groups] == [(0, 4), (1, 4)]
    # Without a comparison chains of one length share a target, whatever they started from.
    other = _sample(Metropolis(Norm(), Site(), delayed=DelayedAcceptance(0)), None)
    assert other.diagnose().groups == 1
