"""Texts with frozen tokens, and chains that change their lengths: reports and forgeries."""

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load, save

import maskov
from maskov import Metropolis, Mixture, Norm, Schedule
from maskov.errors import Interrupted
from maskov.moves import Resize, Site, Span
from maskov.runs.coordinator import Coordinator
from maskov.runs.preparation import rebuild
from maskov.runs.state import START, seal
from maskov.runs.store import Store
from maskov.tuning import tuned
from maskov.ui.report import build, to_html, to_markdown
from odd_workers import files
from small import tiny_bert
from stopped_runs import header_of

MODEL = tiny_bert("red green blue white", dtype=torch.float32, initializer_range=0.05)
TEXTS = ["red green blue white green", "white red green red"]
RESIZING = Mixture(tuple(Metropolis(Norm(), move) for move in (Site(), Span(), Resize())))
LONG = ["red green blue white green white green"]
# The groups of chains with one target, and the bounds of the last region where lengths change.
RUNS = {
    "sites": (Metropolis(Norm()), {"texts": TEXTS, "freeze": "red, blue"}, 2, None),
    "spans": (Metropolis(Norm(), Span()), {"texts": TEXTS, "freeze": "red, blue"}, 2, None),
    "a range": (RESIZING, {"length": (3, 8)}, 1, (3, 8)),
    "frozen": (RESIZING, {"texts": LONG, "freeze": "re:^red|blue"}, 1, (1, 8)),
}
RESIZED = ["a range", "frozen"]


def _sample(name: str, folder: Path, **more) -> maskov.Run:
    kernel, inputs, _, bounds = RUNS[name]
    prior = {} if bounds is None else {"length_prior": "none"}
    return maskov.sample(
        MODEL, kernel, Schedule(3), chains=3, thin=1, seed=4, resident=2, out=folder, **inputs,
        **prior, **more,
    )  # fmt: skip


def _stopped(name: str, folder: Path) -> None:
    samples = folder / "samples.jsonl"
    with pytest.raises(Interrupted):
        _sample(name, folder, stop=lambda: samples.stat().st_size > 0, checkpoint_every=0)


@pytest.mark.parametrize("name", RUNS)
def test_diagnoses_and_reports(name, tmp_path):
    """Texts with frozen tokens have a target each; chains that change their lengths share one."""
    run = _sample(name, tmp_path / "run")
    found, report = run.diagnose(), build([run])
    assert (found.groups, found.single_groups) == (RUNS[name][2], 0)
    assert run.samples[-1].text in to_html(report)
    assert ("4 of their tokens frozen" in to_markdown(report)) == (name in ("sites", "spans"))
    if name == "sites":
        shown = [figures.positions for figures in found.tokens.positions]
        assert shown == [[1, 3, 4], [0, 2]]


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
    kernel, layout = rebuild(folder.manifest, MODEL)
    Coordinator(layout, tuned(kernel, folder.manifest.tuning), MODEL, folder)
    return file.name in " ".join(folder.recovered)


@pytest.mark.parametrize("change", [_cut, _grow, _split, _leave])
@pytest.mark.parametrize("name", RESIZED)
def test_a_checkpoint_whose_regions_leave_their_bounds_is_passed_over(name, change, tmp_path):
    copy = tmp_path / "run"
    _stopped(name, copy)
    _sample(name, tmp_path / "whole")
    file = sorted((copy / "checkpoints").glob("00000-*"))[-1]
    texts = {"group": json.dumps(header_of(file))}
    original = load(file.read_bytes()[START:])
    fewest, most = RUNS[name][3]
    size = int((original["chains.region"][0] == original["chains.region"][0].max()).sum())
    limit = {_cut: size - fewest, _grow: most - size}.get(change, -1)
    for by in (limit, limit + 1):
        tensors = {name: value.clone() for name, value in original.items()}
        if by >= 0:
            change(tensors, by)
        file.write_bytes(seal(save(tensors, texts)))
        # What is within its bounds is taken: nothing else about the file is wrong.
        assert _passed_over(copy, file) == (by > limit)
    assert file.name in " ".join(maskov.resume(copy, MODEL).recovered)
    assert files(copy) == files(tmp_path / "whole")
