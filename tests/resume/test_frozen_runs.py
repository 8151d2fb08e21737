"""Runs from texts with frozen tokens, at fixed lengths: whole, stopped, replayed and reported."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch

import maskov
from maskov import Metropolis, Norm, Schedule, Workers
from maskov.energies import parse_energy
from maskov.errors import Interrupted, MaskovError
from maskov.moves import Site, Span
from maskov.replay import Replayer
from maskov.rewriting import Rewriter
from maskov.ui.report import build, to_html, to_json, to_markdown
from odd_workers import files, oddly
from small import tiny_bert

MODEL = tiny_bert("red green blue white", dtype=torch.float32, initializer_range=0.05)
TEXTS = ["red green blue white green", "white red green red"]
# Asynchronous, and in lock-step.
MOVES = {"sites": Site(), "spans": Span()}
FROZEN = [[0, 2], [1, 3]]


def _sample(name: str, folder: Path, **settings) -> maskov.Run:
    return maskov.sample(
        MODEL, Metropolis(Norm(), MOVES[name]), Schedule(8), texts=TEXTS, freeze="red, blue",
        chains=3, thin=1, seed=4, resident=4, out=folder, **settings,
    )  # fmt: skip


@pytest.fixture(scope="module", params=MOVES)
def whole(request, tmp_path_factory) -> tuple[str, maskov.Run]:
    """A run from its beginning to its end."""
    return request.param, _sample(request.param, tmp_path_factory.mktemp("whole") / "run")


def test_stopped_and_resumed_is_the_same_to_the_byte(whole, tmp_path, monkeypatch):
    name, run = whole
    folder, looks = tmp_path / "run", iter(range(10**6))
    with pytest.raises(Interrupted):
        _sample(name, folder, stop=lambda: next(looks) > 8, checkpoint_every=0)
    maskov.resume(folder, MODEL)
    assert files(folder) == files(run.store.path)
    oddly(monkeypatch, count=2, seed=1)
    _sample(name, tmp_path / "there", workers=Workers(2))
    assert files(tmp_path / "there") == files(run.store.path)


def test_frozen_tokens_stay_and_are_recorded(whole):
    _, run = whole
    assert [list(places) for places in run.manifest.inputs.frozen] == FROZEN
    assert "|frozen:#" in run.signature
    tokens, rejected = run.traces["tokens"], run.traces["rejected"]
    for chain in range(6):
        held = FROZEN[chain // 3]
        given = MODEL.encode(TEXTS[chain // 3])
        assert (tokens[:, chain, held] == np.array(given)[held]).all()
        assert not rejected[:, chain, held].any()
    assert (tokens[:, :, 1:] != tokens[:1, :, 1:]).any()


@pytest.mark.slow
def test_every_epoch_is_replayed(whole):
    _, run = whole
    replayer = Replayer(run, MODEL)
    for chain in range(6):
        held = FROZEN[chain // 3]
        assert [at for at, free in enumerate(replayer.free(chain)) if not free] == held
        assert all(replayer.epoch(chain, epoch).agrees for epoch in range(8))


def test_diagnoses_and_reports(whole):
    """Each text has a target of its own, and figures of its free positions alone."""
    name, run = whole
    found = run.diagnose()
    assert (found.groups, found.single_groups) == (2, 0)
    report = build([run])
    (told,) = json.loads(to_json(report))["runs"]
    assert "4 of their tokens frozen" in to_markdown(report)
    assert run.samples[-1].text in to_html(report)
    assert len(told["samples"]) > 0
    if name == "sites":
        shown = [figures.positions for figures in found.tokens.positions]
        assert shown == [[1, 3, 4], [0, 2]]


@pytest.mark.parametrize("frozen", [[[0, 9], [1, 3]], [[0, 1, 2, 3, 4], [1]], [[0]], None])
def test_a_manifest_with_other_frozen_tokens_is_refused(frozen, whole, tmp_path):
    name, _ = whole
    folder, looks = tmp_path / "run", iter(range(10**6))
    with pytest.raises(Interrupted):
        _sample(name, folder, stop=lambda: next(looks) > 8, checkpoint_every=0)
    file = folder / "manifest.json"
    data = json.loads(file.read_text())
    data["config"]["inputs"]["frozen"] = frozen
    file.write_text(json.dumps(data))
    with pytest.raises(MaskovError, match="frozen"):
        maskov.resume(folder, MODEL)


def test_rewritings_keep_frozen_words(tmp_path):
    toward = parse_energy("contains('white')")
    lines = ["red green blue", "green green green", "blue red green red"]
    rewriter = Rewriter(toward, chains=2, epochs=3)

    def rewrite(folder, **options):
        return list(rewriter.rewrite(MODEL, lines, batch=2, out=folder, **options))

    found = rewrite(tmp_path / "out", freeze="red")
    for one in found:
        assert one.text.split().count("red") >= one.source.split().count("red")
    assert found[0].text.startswith("red")
    assert found[2].text.endswith("red")
    assert rewrite(tmp_path / "out", freeze="red") == found
    with pytest.raises(MaskovError, match="another frozen"):
        rewrite(tmp_path / "out", freeze="blue")
    with pytest.raises(MaskovError, match="occurs in no text"):
        rewrite(tmp_path / "other", freeze="white")
