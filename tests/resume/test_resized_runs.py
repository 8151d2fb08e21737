"""Runs whose chains change their lengths: whole, stopped, by workers, replayed and forged."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load, save

import maskov
from maskov import Metropolis, Mixture, Norm, Schedule, Workers
from maskov.errors import Interrupted
from maskov.moves import Resize, Site, Span
from maskov.replay import Replayer
from maskov.runs.checkpoint import START, read_header, seal
from maskov.runs.coordinator import Coordinator
from maskov.runs.rebuild import rebuild
from maskov.runs.store import Store
from maskov.tuning.tune import tuned
from maskov.ui.report import build, to_html, to_json, to_markdown
from odd_workers import files, oddly
from small import tiny_bert

MODEL = tiny_bert("red green blue white", dtype=torch.float32, initializer_range=0.05)
KERNEL = Mixture(tuple(Metropolis(Norm(), move) for move in (Site(), Span(), Resize())))
COMMON = {"schedule": Schedule(2), "chains": 3, "thin": 1, "seed": 4, "resident": 2}
# With "flat" weights a run finds them first, by chains that a stop may fall into, too.
RUNS = {
    "a range": {"length": (3, 8), "length_prior": "none"},
    "blanks": {"templates": ["red [MASK*] blue [MASK{2,3}]"], "length_prior": "flat"},
    "frozen": {
        "texts": ["red green blue white green white green"],
        "freeze": "re:^red|blue",
        "length_prior": "none",
    },
}
# The fewest and the most positions of each region, and the tokens that stay.
BOUNDS = {
    "a range": ([(3, 8)], 0),
    "blanks": ([(1, 8), (2, 3)], 2),
    "frozen": ([(1, 2), (1, 8)], 2),
}


class Breaker:
    """Asks to stop when the engine looks for the n-th time."""

    def __init__(self, at: int) -> None:
        self.left = at

    def __call__(self) -> bool:
        self.left -= 1
        return self.left < 0


def _sample(name: str, folder: Path, **settings) -> maskov.Run:
    return maskov.sample(MODEL, KERNEL, out=folder, **COMMON, **RUNS[name], **settings)


@pytest.fixture(scope="module", autouse=True)
def _few_discarded_chains():
    """Weights of lengths need not be good here."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("maskov.tuning.tune._LENGTH_CHAINS", 3)
        patch.setattr("maskov.tuning.tune._LENGTH_STEPS", 8)
        patch.setattr("maskov.tuning.lengths._MEASURED", 4)
        yield


@pytest.fixture(scope="module", params=RUNS)
def whole(request, tmp_path_factory) -> tuple[str, maskov.Run]:
    """A run from its beginning to its end."""
    return request.param, _sample(request.param, tmp_path_factory.mktemp("whole") / "run")


@pytest.fixture(scope="module")
def stopped(whole, tmp_path_factory) -> Path:
    """The run, stopped in its midst with two checkpoints of each group."""
    name, _ = whole
    folder = tmp_path_factory.mktemp("stopped") / "run"
    samples = folder / "samples.jsonl"
    with pytest.raises(Interrupted):
        _sample(name, folder, stop=lambda: samples.stat().st_size > 0, checkpoint_every=0)
    return folder


def test_stopped_and_resumed_is_the_same_to_the_byte(whole, stopped, tmp_path):
    name, run = whole
    early, late = tmp_path / "early", shutil.copytree(stopped, tmp_path / "late")
    with pytest.raises(Interrupted):
        _sample(name, early, stop=Breaker(5))
    # Where weights of lengths are to be found, that was among the chains that find them.
    assert (maskov.Run.open(early).manifest.tuning is None) == (name == "blanks")
    with pytest.raises(Interrupted):  # once more on the way
        maskov.resume(late, MODEL, stop=Breaker(2))
    for folder in (early, late):
        resumed = maskov.resume(folder, MODEL)
        assert not resumed.damaged
        assert files(folder) == files(run.store.path)
        assert resumed.manifest.tuning == run.manifest.tuning


def test_workers_that_lose_tasks_come_to_the_same_bytes(whole, tmp_path, monkeypatch):
    name, run = whole
    made = oddly(monkeypatch, count=2, seed=1)
    _sample(name, tmp_path / "there", workers=Workers(2))
    assert made[0].losses > 0
    assert files(tmp_path / "there") == files(run.store.path)


def test_lengths_change_within_their_bounds_and_fixed_words_stay(whole):
    name, run = whole
    bounds, fixed = BOUNDS[name]
    sizes, lengths = run.traces["sizes"], run.traces["lengths"]
    assert (lengths != lengths[:1]).any()
    assert ((sizes >= np.array(bounds)[:, 0]) & (sizes <= np.array(bounds)[:, 1])).all()
    assert (sizes.sum(2) + fixed == lengths).all()
    for one in run.samples:
        assert len(one.ids) == len(one.tokens) == lengths[one.epoch, one.chain]
        if name != "a range":
            assert one.tokens[0] == "red"
            assert one.tokens[1 + sizes[one.epoch, one.chain, 0]] == "blue"


def test_every_epoch_is_replayed(whole):
    _, run = whole
    replayer = Replayer(run, MODEL)
    lengths = run.traces["lengths"]
    for chain in range(run.manifest.chains):
        for epoch in range(replayer.epochs):
            replay = replayer.epoch(chain, epoch)
            assert replay.agrees
            assert len(replay.after) == lengths[epoch, chain]


def test_diagnoses_and_reports(whole):
    """Chains that change their lengths share a target, so that they are one group."""
    _, run = whole
    found = run.diagnose()
    assert (found.groups, found.single_groups) == (1, 0)
    report = build([run])
    (told,) = json.loads(to_json(report))["runs"]
    assert len(told["samples"]) > 0
    assert run.samples[-1].text in to_html(report)
    assert run.samples[-1].text in to_markdown(report)


# Forged checkpoints.


def _cut(tensors: dict[str, torch.Tensor], by: int) -> None:
    """Take positions from the end of the first chain, which is in its last region."""
    length = int(tensors["chains.lengths"][0]) - by
    tensors["chains.lengths"][0] = length
    tensors["chains.free"][0, length:] = False
    tensors["chains.region"][0, length:] = -1


def _grow(tensors: dict[str, torch.Tensor], by: int) -> None:
    """Add copies of the last token of the first chain to its last region, as far as they fit."""
    length = int(tensors["chains.lengths"][0])
    for part in ("tokens", "free", "region"):
        row = tensors[f"chains.{part}"][0]
        row[length : length + by] = row[length - 1].clone()
    tensors["chains.lengths"][0] = length + by


def _split(tensors: dict[str, torch.Tensor], by: int) -> None:
    """Put the position before the last outside every region, though it is free."""
    tensors["chains.region"][0, int(tensors["chains.lengths"][0]) - 2] = -1


def _leave(tensors: dict[str, torch.Tensor], by: int) -> None:
    """Put the last position outside every region, so that the region could grow beyond it."""
    tensors["chains.region"][0, int(tensors["chains.lengths"][0]) - 1] = -1


def _passed_over(copy: Path, file: Path) -> bool:
    """Whether a run that goes on would leave this checkpoint alone; nothing is run."""
    folder = Store.open(copy)
    parts = rebuild(folder.manifest, MODEL)
    kernel = tuned(parts.kernel, folder.manifest.tuning)
    Coordinator(parts.layout, kernel, MODEL, folder)
    return file in folder.damaged


@pytest.mark.parametrize("change", [_cut, _grow, _split, _leave])
def test_a_checkpoint_whose_regions_leave_their_bounds_is_passed_over(
    change, whole, stopped, tmp_path
):
    name, run = whole
    copy = shutil.copytree(stopped, tmp_path / "copy")
    file = sorted((copy / "checkpoints").glob("00000-*"))[-1]
    texts = {key: json.dumps(value) for key, value in read_header(file).metadata.items()}
    original = load(file.read_bytes()[START:])
    fewest, most = BOUNDS[name][0][-1]
    size = int((original["chains.region"][0] == len(BOUNDS[name][0]) - 1).sum())
    limit = {_cut: size - fewest, _grow: most - size}.get(change, -1)
    for by in (limit, limit + 1):
        tensors = {name: value.clone() for name, value in original.items()}
        if by >= 0:
            change(tensors, by)
        file.write_bytes(seal(save(tensors, texts)))
        # What is within its bounds is taken: nothing else about the file is wrong.
        assert _passed_over(copy, file) == (by > limit)
    assert file in maskov.resume(copy, MODEL).damaged
    assert files(copy) == files(run.store.path)
