"""Run folders that somebody made: they cost no memory, write nowhere, run and fetch nothing."""

import json
import os
import resource
import shutil
import socket
from pathlib import Path

import pytest
import torch
from hypothesis import given, strategies as st
from safetensors.torch import load, save

import maskov
from json_files import edited
from maskov import MaskovError, Run, RunError, resume
from maskov.errors import ModelError
from maskov.runs.state import START, seal
from mutations import examples, or_refused
from odd_workers import files
from stopped_runs import CHAINS, EPOCHS, MODEL, header_of, run

# Checkpoints with a right hash that no run has written.

NUMBER = st.sampled_from([
    -(2**63), -(2**31), -2, -1, 0, 1, 2, 3, 5, 7, 2**20, 2**31, 2**62, 2**63 - 1, 10**30, 1.5,
    True, None, "1", [], {},
])  # fmt: skip


def _again(folder: Path, copy: Path) -> Path:
    shutil.rmtree(copy, ignore_errors=True)
    return Path(shutil.copytree(folder, copy))


def _newest(folder: Path, group: int = 0) -> Path:
    return sorted((folder / "checkpoints").glob(f"{group:05d}-*"))[-1]


def _open(file: Path) -> tuple[dict[str, torch.Tensor], dict]:
    return load(file.read_bytes()[START:]), header_of(file)


def _forge(file: Path, tensors: dict[str, torch.Tensor], numbers: dict) -> None:
    content = {name: value.clone().contiguous() for name, value in tensors.items()}
    file.write_bytes(seal(save(content, {"group": json.dumps(numbers)})))


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
    kinds = [torch.int64, torch.int32, torch.float64, torch.float32, torch.bool]
    others = {
        "kind": value.to(draw(st.sampled_from([one for one in kinds if one != value.dtype]))),
        "longer": torch.cat([value.reshape(-1), value.new_zeros(1)]),
        "deeper": value[None],
    }
    act = draw(st.sampled_from(["gone", "new", *others]))
    if act == "gone":
        del tensors[name]
    elif act == "new":
        tensors[draw(st.sampled_from(["x", "chains.x", "buffers.x"]))] = value
    else:
        tensors[name] = others[act]


@examples(12)
@given(data=st.data())
def test_tensors_of_other_shapes_and_kinds_are_passed_over(data, runs, tmp_path):
    copy = _again(runs["stopped"], tmp_path / "copy")
    file = _newest(copy, data.draw(st.integers(0, 1)))
    tensors, numbers = _open(file)
    _misshapen(data.draw, tensors)
    _forge(file, tensors, numbers)
    assert file.name in " ".join(_goes_on(copy).recovered)
    assert files(copy) == files(runs["whole"])


@examples(12)
@given(data=st.data())
def test_any_numbers_beside_the_tensors_are_gone_on_from_or_passed_over(data, runs, tmp_path):
    """No number leads out of a tensor, keeps the run from ending, or gives a forbidden token."""
    copy = _again(runs["stopped"], tmp_path / "copy")
    file = _newest(copy, data.draw(st.integers(0, 1)))
    tensors, numbers = _open(file)
    numbers[data.draw(st.sampled_from([*sorted(numbers), "new"]))] = data.draw(NUMBER)
    _forge(file, tensors, numbers)
    with or_refused(MaskovError, naming=[copy, f"'{MODEL.name}'"]):
        ended = _goes_on(copy)
        if ended.recovered:
            assert files(copy) == files(runs["whole"])
        assert len(ended.samples) == (EPOCHS - 1) * CHAINS
        assert (ended.traces["steps"] > 0).all()
        assert not any(MODEL.forbidden[token] for one in ended.samples for token in one.ids)


@pytest.mark.parametrize("epoch", [EPOCHS, 10**9, -1])
def test_a_run_is_not_over_because_its_checkpoints_say_so(epoch, runs, tmp_path):
    copy = _again(runs["stopped"], tmp_path / "copy")
    for file in copy.glob("checkpoints/*.checkpoint"):
        tensors, numbers = _open(file)
        # As at the end of an epoch, when no proposal is under way.
        tensors = {name: one for name, one in tensors.items() if not name.startswith("buffers.")}
        numbers |= {"epoch": epoch}
        _forge(file, tensors, numbers)
    assert not Run.open(copy).finished
    assert _goes_on(copy).recovered
    assert files(copy) == files(runs["whole"])


def test_a_checkpoint_that_promises_more_than_memory_holds_is_not_read(copy, runs):
    """Hundreds of GiB, all but the beginning a hole, with shapes to match."""
    file = _newest(copy)
    tensors, numbers = _open(file)
    names = {
        name: {"dtype": "I64", "shape": [2**32], "data_offsets": [0, 2**35]} for name in tensors
    }
    names["__metadata__"] = {"group": json.dumps(numbers)}
    text = json.dumps(names).encode()
    with open(file, "wb") as forged:
        forged.write(seal(len(text).to_bytes(8, "little") + text))
        forged.truncate(START + 8 + len(text) + len(tensors) * 2**35)
    assert header_of(file) is not None
    assert file.name in " ".join(_goes_on(copy).recovered)
    assert files(copy) == files(runs["whole"])


@pytest.fixture
def _little_memory():
    """So that a file which is read whole is a failure, and not the end of the machine."""
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    before = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (used + 2**29, before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_AS, before)


HEADER = b"\x93NUMPY\x02\x00" + (2**32 - 1).to_bytes(4, "little")


@pytest.mark.usefixtures("_little_memory")
@pytest.mark.parametrize(
    ("name", "start", "told"),
    [
        ("manifest.json", b"", "more than 256 MiB"),
        ("samples.jsonl", b"", r"damaged \('JSON'"),
        ("samples.jsonl", None, r"damaged \(there are more than 20 lines\)"),
        ("traces.npy", b"", "cannot be read"),
        ("tokens.npy", HEADER, "cannot be read"),
        ("checkpoint", HEADER, None),
    ],
)
def test_a_huge_file_is_refused_or_passed_over_and_not_read(name, start, told, copy):
    file = _newest(copy) if name == "checkpoint" else copy / name
    file.write_bytes(file.read_bytes() * 100 if start is None else start)
    if start is not None:
        os.truncate(file, 20 * 2**30)
    if told is None:
        assert resume(copy, MODEL).finished
        return
    with pytest.raises(RunError, match=told):
        _ = Run.open(copy).samples, Run.open(copy).traces


def test_no_manifest_is_written_that_would_not_be_read(tmp_path, monkeypatch):
    monkeypatch.setattr("maskov.runs.store.MOST_BYTES", 1000)
    with pytest.raises(RunError, match="fewer or shorter texts"):
        run(tmp_path / "run")
    assert not (tmp_path / "run").exists()


# Manifests; without checkpoints nothing tells that it is another.


def _change(copy: Path, change) -> None:
    with edited(copy / "manifest.json") as manifest:
        change(manifest)
    shutil.rmtree(copy / "checkpoints")


EVIL = "\x1b]0;owned\x07\x1b[2J\x9b31m\u202edne"


def _is_clean(text: str) -> bool:
    return not any(sign in text for sign in "\x1b\x07\x9b\u202e")


@pytest.mark.parametrize("words", ["diagnose", "diagnose --json", "report --format md",
                                   "report --format json", "resume"])  # fmt: skip
def test_control_characters_are_escaped(words, copy, call):
    def change(manifest):
        manifest["signature"] = manifest["kernel"] = manifest["config"]["model"]["name"] = EVIL
        manifest["config"]["model"]["source"]["name"] = f"no/{EVIL}"
        manifest["notes"], manifest["versions"]["maskov"] = [EVIL], EVIL

    _change(copy, change)
    lines = [json.loads(line) for line in (copy / "samples.jsonl").read_text().splitlines()]
    lines[0]["text"] = EVIL
    (copy / "samples.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    command, *more = words.split()
    code, out, err = call(command, copy, *more)
    assert code == (2 if command == "resume" else 0), err
    assert _is_clean(out + err)
    if "json" in words:
        assert any(EVIL in str(value) for value in _values(json.loads(out)))
    else:
        assert "\\x1b" in out + err


def _values(data) -> list:
    if isinstance(data, dict | list):
        inner = data.values() if isinstance(data, dict) else data
        return [value for one in inner for value in _values(one)]
    return [data]


@pytest.fixture
def _offline(monkeypatch):
    """Fail whoever opens a connection."""
    monkeypatch.delenv("HF_HUB_OFFLINE", raising=False)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", False)
    for name in (socket.socket, "connect"), (socket, "getaddrinfo"):
        monkeypatch.setattr(*name, lambda *_: pytest.fail("it went to the network"))


HUB = "somebody/unheard-of"


@pytest.mark.usefixtures("_offline")
@pytest.mark.parametrize("field", [
    "name", "tokenizer", "autoregressive({})", "classifier({}, label=1)", "similar({})", "norm({})",
])  # fmt: skip
def test_a_manifest_does_not_download_a_model(field, copy, runs):
    def change(manifest):
        if "(" in field:
            manifest["config"]["kernel"]["energy"] = f"raw+{field.format(HUB)}"
        else:
            manifest["config"]["model"]["source"][field] = HUB

    _change(copy, change)
    with pytest.raises(ModelError, match=rf"'{HUB}' is not on .*--allow-download"):
        resume(copy, MODEL if "(" in field else None)


def test_code_of_a_model_is_not_trusted_on_a_manifest_s_word(copy, tmp_path):
    other = {"name": str(tmp_path / "evil"), "trust_remote_code": True}
    _change(copy, lambda manifest: manifest["config"]["model"]["source"].update(other))
    with pytest.raises(RunError, match="--trust-remote-code"):
        resume(copy)


def _deep() -> dict:
    kernel = {"part": "mh", "energy": "raw"}
    for _ in range(60):
        kernel = {"part": "mixture", "kernels": [kernel]}
    return kernel


@pytest.mark.parametrize(
    ("kernel", "message"),
    [
        ({"part": "mh", "energy": "+".join(["raw"] * 20_000)}, "at most 64 terms"),
        (_deep(), "'kernel' has more than"),
        (_deep() | {"kernels": [{"part": "mh", "energy": "raw"}] * 9999}, "'kernel' has more than"),
    ],
    ids=["terms", "deep", "wide"],
)
def test_a_kernel_without_an_end_is_refused(kernel, message, copy):
    _change(copy, lambda manifest: manifest["config"].update(kernel=kernel))
    with pytest.raises(RunError, match=message):
        resume(copy, MODEL)
    assert len(maskov.parse_energy("+".join(["raw"] * 64)).parts) >= 1
