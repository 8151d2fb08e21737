"""Whatever a run folder holds: it is read, or refused in one sentence, and nothing else happens."""

from __future__ import annotations

import json
import os
import pickle
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from maskov import MaskovError, Metropolis, Norm, Run, RunError, Schedule, resume, sample
from maskov.config import to_json
from maskov.errors import Interrupted
from maskov.runs import state
from maskov.runs.checkpoint import START, seal
from mutations import changed, damaged, examples, or_refused
from small import tiny_bert

MODEL = tiny_bert("red green blue white", torch.float32)


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    """A run that was stopped on its way, with two groups."""
    path = tmp_path_factory.mktemp("runs") / "stopped"
    begun = path / "samples.jsonl"
    with pytest.raises(Interrupted):
        sample(
            MODEL, Metropolis(Norm()), Schedule(epochs=5), chains=4, length=(3, 5), seed=1, thin=1,
            resident=2, out=path, stop=lambda: begun.exists() and begun.stat().st_size > 0,
            checkpoint_every=0,
        )  # fmt: skip
    return path


@pytest.fixture
def copy(folder, tmp_path) -> Path:
    shutil.copytree(folder, tmp_path / "copy")
    return tmp_path / "copy"


def _read_all(path: Path) -> None:
    """What is read is what the files hold."""
    run = Run.open(path)
    written = json.loads((path / "manifest.json").read_bytes())
    assert json.loads(json.dumps(to_json(run.manifest))) == written
    assert run.summary().chains == run.manifest.chains
    with open(path / "samples.jsonl", encoding="utf-8") as lines:
        kept = [json.loads(sample.to_json()) for sample in run.samples]
        assert kept == [json.loads(line) for line in lines]
    assert run.finished is False


def test_an_unchanged_copy_is_read_and_finished(copy):
    _read_all(copy)
    assert _is_whole(resume(copy, MODEL))


def _is_whole(run: Run) -> bool:
    allowed = all(not MODEL.forbidden[token] for kept in run.samples for token in kept.ids)
    return run.finished and allowed and bool((run.traces["steps"] > 0).all())


def _again(folder: Path, copy: Path) -> None:
    shutil.rmtree(copy)
    shutil.copytree(folder, copy)


def _entries(before: dict, after: dict) -> list[str]:
    """Return the names of the innermost entries that differ."""
    names = []
    for name, value in before.items():
        other = after.get(name)
        if isinstance(value, dict) and isinstance(other, dict):
            names += _entries(value, other)
        elif value != other:
            names.append(name)
    return names


def _any_manifest(data, folder, copy):
    manifest = json.loads((folder / "manifest.json").read_text())
    other = data.draw(changed(manifest))
    _again(folder, copy)
    (copy / "manifest.json").write_text(json.dumps(other))
    # A wrong entry can show in another: with another seed, the lengths do not fit.
    with or_refused(MaskovError, naming=[copy, *_entries(manifest, other), "'inputs'"]):
        _read_all(copy)
        assert _is_whole(resume(copy, MODEL))


@examples(30)
@given(data=st.data())
def test_any_manifest_is_read_or_refused(data, folder, copy):
    """Also going on with it: no entry makes it allocate, hang or write anywhere else."""
    _any_manifest(data, folder, copy)


@pytest.mark.slow
@examples(300)
@given(data=st.data())
def test_many_manifests_are_read_or_refused(data, folder, copy):
    _any_manifest(data, folder, copy)


@examples(40)
@given(data=st.data())
def test_bytes_that_are_no_manifest_are_refused(data, folder, copy):
    content = data.draw(damaged((folder / "manifest.json").read_bytes()))
    (copy / "manifest.json").write_bytes(content)
    with or_refused(RunError, naming=[copy]):
        _read_all(copy)


def test_a_manifest_of_brackets_is_refused(copy):
    (copy / "manifest.json").write_text("[" * 200_000)
    with pytest.raises(RunError):
        Run.open(copy)


@examples(40)
@given(data=st.data())
def test_any_samples_are_read_or_refused(data, folder, copy):
    content = data.draw(damaged((folder / "samples.jsonl").read_bytes()))
    (copy / "samples.jsonl").write_bytes(content)
    with or_refused(RunError, naming=[copy]):
        _read_all(copy)


@examples(40)
@given(data=st.data(), name=st.sampled_from(["steps", "energy_raw", "tokens"]))
def test_any_traces_are_read_or_refused(data, name, folder, copy):
    file = Path("traces") / f"{name}.npy"
    (copy / file).write_bytes(data.draw(damaged((folder / file).read_bytes())))
    with or_refused(RunError, naming=[copy]):
        values = Run.open(copy).traces[name]
        assert values.shape[:2] == (5, 4)
        assert values.tobytes() == np.load(copy / file).tobytes()
    shutil.copy(folder / file, copy / file)


def test_traces_that_promise_more_than_there_is_are_refused(copy):
    header = {"descr": "<i8", "fortran_order": False, "shape": (5, 2**50)}
    with open(copy / "traces" / "steps.npy", "wb") as file:
        np.lib.format.write_array_header_1_0(file, header)
    with pytest.raises(RunError, match="cannot be read"):
        resume(copy, MODEL)


class Evil:
    """Pickled, it would run a command when it is read."""

    def __init__(self, mark: Path) -> None:
        self.mark = mark

    def __reduce__(self):
        return os.system, (f"touch {self.mark}",)


def test_traces_with_code_in_them_are_refused_and_it_is_not_run(copy, tmp_path):
    mark = tmp_path / "run by somebody"
    np.save(copy / "traces" / "steps.npy", np.array([Evil(mark)], dtype=object), allow_pickle=True)
    with pytest.raises(RunError):
        Run.open(copy).summary()
    (copy / "traces" / "steps.npy").write_bytes(pickle.dumps(Evil(mark)))
    with pytest.raises(RunError):
        Run.open(copy).summary()
    assert not mark.exists()


@examples(80)
@given(data=st.data())
def test_checkpoints_that_prove_themselves_whole_and_are_not_are_passed_over(data, folder, copy):
    """With a right hash over wrong bytes, as only somebody who means harm would write it."""
    file = sorted((folder / "checkpoints").iterdir())[-1]
    body = data.draw(damaged(file.read_bytes()[START:]))
    (copy / "checkpoints" / file.name).write_bytes(seal(body))
    assert Run.open(copy).store.closed in range(6)
    with or_refused(ValueError, naming=[""]):
        found = state.unpack(body)
        assert state.unpack(state.pack(found)).epoch == found.epoch


@pytest.mark.parametrize("name", ["traces/steps.npy", "samples.jsonl", "checkpoints", "lock"])
def test_a_link_out_of_the_folder_is_not_followed(name, copy, tmp_path):
    outside = tmp_path / "outside"
    if (copy / name).is_dir():
        shutil.move(copy / name, outside)
    else:
        outside.write_bytes((copy / name).read_bytes())
        (copy / name).unlink()
    before = outside.read_bytes() if outside.is_file() else sorted(outside.iterdir())
    (copy / name).symlink_to(outside)
    with pytest.raises(RunError, match="link"):
        resume(copy, MODEL)
    assert before == (outside.read_bytes() if outside.is_file() else sorted(outside.iterdir()))


def test_code_of_a_model_is_not_trusted_on_a_manifest_s_word(copy, tmp_path):
    """Neither by the command nor by Python; the folder it names is not even opened."""
    manifest = json.loads((copy / "manifest.json").read_text())
    manifest["config"]["model"]["source"] |= {
        "name": str(tmp_path / "evil"),
        "trust_remote_code": True,
    }
    (copy / "manifest.json").write_text(json.dumps(manifest))
    # A folder without checkpoints, since these would tell that the manifest is another.
    shutil.rmtree(copy / "checkpoints")
    with pytest.raises(RunError, match="--trust-remote-code"):
        resume(copy)
