"""Checkpoints with a right hash that no run has written: passed over, and nothing else happens."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors.torch import load, save

from maskov import (
    DelayedAcceptance,
    Gibbs,
    MaskovError,
    Metropolis,
    Norm,
    Raw,
    Run,
    Schedule,
    Sweep,
    mask_predict,
    resume,
    sample,
)
from maskov.errors import Interrupted
from maskov.moves import Site
from maskov.runs.checkpoint import START, read_header, seal
from maskov.runs.coordinator import Coordinator
from maskov.runs.rebuild import rebuild
from maskov.runs.store import Store
from mutations import examples, or_refused
from odd_workers import files
from small import tiny_bert

MODEL = tiny_bert("red green blue white", torch.float32)
KERNELS = {
    "sites": Metropolis(Norm()),
    "early tests": Metropolis(Raw(), delayed=DelayedAcceptance(1)),
    "blocks": Metropolis(Norm(), Site(positions=Sweep("random", 2))),
    "gibbs": Gibbs(),
    "mask-predict": mask_predict(6),
}
SETTINGS = {"chains": 4, "length": (3, 5), "seed": 1, "thin": 1, "resident": 2}
ODD = [-(2**63), -(2**31), -2, -1, 0, 1, 2, 3, 5, 7, 2**20, 2**31, 2**40, 2**62, 2**63 - 1]
NUMBER = st.sampled_from([*ODD, 10**30, 1.5, True, None, "1", [], {}])


SLOW = [pytest.param(name, marks=pytest.mark.slow) for name in ("early tests", "blocks", "gibbs")]


@pytest.fixture(scope="module", params=["sites", "mask-predict", *SLOW])
def runs(request, tmp_path_factory) -> tuple[Path, Path]:
    """A run that was stopped on its way, with two groups, and the same run to its end."""
    home = tmp_path_factory.mktemp("runs")
    # Mask-predict looks less often; no group may be at its end.
    on_its_way = 12 if request.param == "mask-predict" else 22
    for name, looks in (("stopped", on_its_way), ("whole", 10**9)):
        left = iter(range(10**9))
        try:
            sample(
                MODEL, KERNELS[request.param], Schedule(epochs=6), out=home / name,
                stop=lambda left=left, looks=looks: next(left) > looks, checkpoint_every=0,
                **SETTINGS,
            )  # fmt: skip
        except Interrupted:
            assert name == "stopped"
    assert not Run.open(home / "stopped").traces["steps"][-1].any()
    return home / "stopped", home / "whole"


def _newest(folder: Path, group: int = 0) -> Path:
    return sorted((folder / "checkpoints").glob(f"{group:05d}-*"))[-1]


def _open(file: Path) -> tuple[dict[str, torch.Tensor], dict[str, dict]]:
    header = read_header(file)
    assert header is not None
    return load(file.read_bytes()[START:]), header.metadata


def _forge(file: Path, tensors: dict[str, torch.Tensor], numbers: dict[str, dict]) -> None:
    texts = {name: json.dumps(value) for name, value in numbers.items()}
    content = {name: value.clone().contiguous() for name, value in tensors.items()}
    file.write_bytes(seal(save(content, texts)))


def _again(folder: Path, copy: Path) -> Path:
    shutil.rmtree(copy, ignore_errors=True)
    shutil.copytree(folder, copy)
    return copy


def _passed_over(copy: Path, file: Path) -> bool:
    """Whether a run that goes on would leave this checkpoint alone; nothing is run."""
    folder = Store.open(copy)
    parts = rebuild(folder.manifest, MODEL)
    coordinator = Coordinator(parts.layout, parts.kernel, MODEL, folder)
    assert coordinator.closed <= folder.manifest.epochs
    return file in folder.damaged


def _goes_on(copy: Path) -> Run:
    """Go on to the end; who goes on for ever is stopped, and that is a failure."""
    looks = iter(range(5000))

    def stop() -> bool:
        assert next(looks, None) is not None, "it never ends"
        return False

    return resume(copy, MODEL, stop=stop)


def _misshapen(draw, tensors: dict[str, torch.Tensor]) -> None:
    """Take a tensor away, add one, or change the kind or the shape of one."""
    name = draw(st.sampled_from(sorted(tensors)))
    value = tensors[name]
    act = draw(st.sampled_from(["gone", "new", "kind", "longer", "shorter", "flat", "deeper"]))
    if act == "gone":
        del tensors[name]
    elif act == "new":
        tensors[draw(st.sampled_from(["x", "chains.x", "buffers.x"]))] = value
    elif act == "kind":
        others = [torch.int64, torch.int32, torch.float64, torch.float32, torch.bool, torch.uint8]
        kind = draw(st.sampled_from([one for one in others if one != value.dtype]))
        tensors[name] = value.to(kind)
    elif act == "longer":
        tensors[name] = torch.cat([value.reshape(-1), value.new_zeros(1)])
    elif act == "shorter" and value.dim() and len(value):
        tensors[name] = value[:-1]
    elif act == "flat" and value.dim() > 1:
        tensors[name] = value.flatten()
    else:
        tensors[name] = value[None]


def test_tensors_of_other_shapes_and_kinds_lead_to_the_checkpoint_before(runs, tmp_path):
    stopped, whole = runs
    copy = _again(stopped, tmp_path / "copy")
    for file in (_newest(copy, 0), _newest(copy, 1)):
        tensors, numbers = _open(file)
        _forge(file, tensors | {"chains.tokens": tensors["chains.tokens"][:-1]}, numbers)
    run = _goes_on(copy)
    assert {_newest(stopped, 0).name, _newest(stopped, 1).name} <= {one.name for one in run.damaged}
    assert files(copy) == files(whole)


@examples(20)
@given(data=st.data())
def test_tensors_of_other_shapes_and_kinds_are_passed_over(data, runs, tmp_path):
    stopped, _ = runs
    copy = _again(stopped, tmp_path / "copy")
    file = _newest(copy, data.draw(st.integers(0, 1)))
    assert not _passed_over(copy, file)
    tensors, numbers = _open(file)
    _misshapen(data.draw, tensors)
    _forge(file, tensors, numbers)
    assert _passed_over(copy, file)


def _any_numbers(data, runs, tmp_path):
    stopped, _ = runs
    copy = _again(stopped, tmp_path / "copy")
    file = _newest(copy, data.draw(st.integers(0, 1)))
    tensors, numbers = _open(file)
    part = numbers[data.draw(st.sampled_from(sorted(numbers)))]
    if data.draw(st.integers(0, 9)) == 0:
        part.pop(data.draw(st.sampled_from(sorted(part))))
    else:
        part[data.draw(st.sampled_from([*sorted(part), "new"]))] = data.draw(NUMBER)
    _forge(file, tensors, numbers)
    _ends_well(copy, file)


def _ends_well(copy: Path, file: Path) -> None:
    """A checkpoint that is not passed over leads to a whole run, or to one sentence."""
    if _passed_over(copy, file):
        return
    with or_refused(MaskovError, naming=[copy, f"'{MODEL.name}'"]):
        run = _goes_on(copy)
        assert len(run.samples) == 6 * 4
        assert (run.traces["steps"] > 0).all()
        assert not any(MODEL.forbidden[token] for one in run.samples for token in one.ids)


@examples(10)
@given(data=st.data())
def test_any_numbers_are_gone_on_from_or_passed_over(data, runs, tmp_path):
    """Those beside the tensors: epochs, steps, and how far the run as a whole has come."""
    _any_numbers(data, runs, tmp_path)


@pytest.mark.slow
@examples(200)
@given(data=st.data())
def test_many_numbers_are_gone_on_from_or_passed_over(data, runs, tmp_path):
    _any_numbers(data, runs, tmp_path)


@pytest.mark.parametrize("epoch", [6, 10**9, -1])
def test_a_run_is_not_over_because_its_checkpoints_say_so(epoch, runs, tmp_path):
    """The traces must have those epochs: otherwise they are passed over."""
    stopped, whole = runs
    copy = _again(stopped, tmp_path / "copy")
    for file in (copy / "checkpoints").iterdir():
        tensors, numbers = _open(file)
        # As at the end of an epoch, when no proposal is under way.
        tensors = {name: one for name, one in tensors.items() if not name.startswith("buffers.")}
        numbers["group"] |= {"epoch": epoch}
        _forge(file, tensors, numbers)
    assert not Run.open(copy).finished
    run = _goes_on(copy)
    assert set((copy / "checkpoints").iterdir()) & set(run.damaged)
    assert files(copy) == files(whole)


@pytest.mark.parametrize(
    "content",
    [
        b"",
        bytes(START) + (2**63).to_bytes(8, "little") + b"{}",
        seal((2**20).to_bytes(8, "little") + b"{" * 2**20),
        seal((200_000).to_bytes(8, "little") + b"[" * 200_000),
    ],
    ids=["nothing", "a header without an end", "brackets", "more brackets"],
)
def test_what_is_no_header_is_none(content, tmp_path):
    (tmp_path / "file").write_bytes(content)
    assert read_header(tmp_path / "file") is None


def test_a_checkpoint_that_promises_more_than_memory_holds_is_not_read(runs, tmp_path):
    """Hundreds of GiB, all but the beginning a hole, with shapes to match."""
    stopped, whole = runs
    copy = _again(stopped, tmp_path / "copy")
    file = _newest(copy)
    tensors, numbers = _open(file)
    names: dict[str, object] = {
        "__metadata__": {name: json.dumps(value) for name, value in numbers.items()}
    }
    for name in tensors:
        names[name] = {"dtype": "I64", "shape": [2**32], "data_offsets": [0, 2**35]}
    text = json.dumps(names).encode()
    with open(file, "wb") as forged:
        forged.write(seal(len(text).to_bytes(8, "little") + text))
        forged.truncate(START + 8 + len(text) + len(tensors) * 2**35)
    assert read_header(file) is not None
    run = _goes_on(copy)
    assert file in run.damaged
    assert files(copy) == files(whole)
