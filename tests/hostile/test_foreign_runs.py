"""Run folders of somebody else: they keep nobody waiting, write nothing to the terminal, and make
nothing be downloaded."""

from __future__ import annotations

import json
import os
import resource
import shutil
import signal
import socket
from functools import partial
from pathlib import Path

import pytest
import torch

import maskov
from maskov import Metropolis, Norm, Run, RunError, Schedule, resume, sample
from maskov.cli import main
from maskov.config import ModelSource
from maskov.errors import Interrupted, ModelError
from maskov.runs.rebuild import load_model
from maskov.ui.escaping import json_printable, printable
from small import tiny_bert

MODEL = tiny_bert("red green blue white", torch.float32)
FILES = ["manifest.json", "samples.jsonl", "traces/steps.npy", "traces/tokens.npy", "checkpoint"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    """A run that was stopped on its way, when it had samples."""
    path = tmp_path_factory.mktemp("runs") / "stopped"
    with pytest.raises(Interrupted):
        sample(
            MODEL, Metropolis(Norm()), Schedule(epochs=5), chains=4, length=(3, 5), thin=1,
            resident=2, out=path, stop=lambda: (path / "samples.jsonl").stat().st_size > 0,
            checkpoint_every=0, source=ModelSource("untrained"),
        )  # fmt: skip
    return path


@pytest.fixture
def copy(folder, tmp_path) -> Path:
    return shutil.copytree(folder, tmp_path / "copy")


@pytest.fixture(autouse=True)
def _bounded():
    """Whatever waits for ever fails its test instead."""

    def late(*_):
        raise TimeoutError("it hangs")

    before = signal.signal(signal.SIGALRM, late)
    signal.alarm(30)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


def _file(copy: Path, name: str) -> Path:
    return sorted((copy / "checkpoints").iterdir())[-1] if name == "checkpoint" else copy / name


def _pipe(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


def _socket(path: Path) -> None:
    path.unlink()
    before = os.getcwd()
    os.chdir(path.parent)  # the path of a socket may not be long
    try:
        with socket.socket(socket.AF_UNIX) as made:
            made.bind(path.name)
    finally:
        os.chdir(before)


def _device(path: Path) -> None:
    path.unlink()
    path.symlink_to("/dev/zero")


@pytest.mark.parametrize("replace", [_pipe, _socket, _device], ids=["pipe", "socket", "device"])
@pytest.mark.parametrize("name", FILES)
def test_only_regular_files_are_opened(name, replace, copy):
    path = _file(copy, name)
    replace(path)
    with pytest.raises(RunError, match=r"no regular file|is a link"):
        resume(copy, MODEL)
    if name in ("samples.jsonl", "checkpoint"):
        with pytest.raises(RunError, match="no regular file"):
            _ = (Run.open(copy).samples, Run.open(copy).finished)


# A diagnosis does without samples, and an evaluation without traces.
UNREAD = [("diagnose", "samples.jsonl"), ("evaluate", "traces/energy_raw.npy")]


@pytest.mark.parametrize("command", ["resume", "diagnose", "report", "evaluate"])
@pytest.mark.parametrize("name", ["samples.jsonl", "manifest.json", "traces/energy_raw.npy"])
def test_no_command_waits_for_a_pipe(command, name, copy, tmp_path, capfd):
    _pipe(copy / name)
    out = ["--out", str(tmp_path / "page.html")] if command == "report" else []
    with pytest.raises(SystemExit) as ended:
        main([command, str(copy), *out])
    _, err = capfd.readouterr()
    if (command, name) in UNREAD:
        return
    assert ended.value.code == 2
    assert f"'{copy / name}' is no regular file but a named pipe" in err


def test_a_pipe_as_lock_is_refused(copy):
    (copy / "lock").unlink(missing_ok=True)
    os.mkfifo(copy / "lock")
    with pytest.raises(RunError, match="named pipe"):
        resume(copy, MODEL)


# Files without an end.

HUGE = 20 * 2**30
SMALL = 2**29


@pytest.fixture
def _little_memory():
    """So that a file which is read whole is a failure, and not the end of the machine."""
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    before = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (used + SMALL, before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_AS, before)


def _array(size: int) -> bytes:
    """Return the begin of an array whose header has so many bytes."""
    return b"\x93NUMPY\x02\x00" + size.to_bytes(4, "little")


@pytest.mark.usefixtures("_little_memory")
@pytest.mark.parametrize(
    ("name", "start", "told"),
    [
        ("manifest.json", b"", "more than 256 MiB"),
        ("samples.jsonl", b"", r"damaged \(line 1 has more than 16 MiB\)"),
        ("samples.jsonl", None, r"damaged \(there are more than 20 lines\)"),
        ("traces/steps.npy", b"", "cannot be read"),
        ("traces/steps.npy", _array(2**32 - 1), "cannot be read"),
    ],
)
def test_a_huge_file_is_refused_and_not_read(name, start, told, copy):
    content = (copy / name).read_bytes() * 100 if start is None else start
    (copy / name).write_bytes(content)
    if start is not None:
        os.truncate(copy / name, HUGE)
    with pytest.raises(RunError, match=told) as refused:
        _ = (Run.open(copy).samples, Run.open(copy).traces)
    assert "\n" not in str(refused.value)


@pytest.mark.usefixtures("_little_memory")
@pytest.mark.parametrize("name", ["checksums.npy", "checkpoint"])
def test_a_huge_file_that_can_be_done_without_is_passed_over(name, copy):
    _file(copy, name).write_bytes(_array(2**32 - 1))
    os.truncate(_file(copy, name), HUGE)
    assert resume(copy, MODEL).finished


@pytest.mark.usefixtures("_little_memory")
@pytest.mark.parametrize("name", ["settings.json", "rewritten.jsonl"])
def test_a_folder_of_rewritings_reads_no_huge_file(name, tmp_path):
    again = partial(
        maskov.rewrite, MODEL, ["red green"], "edit", chains=1, epochs=1, out=tmp_path / "out"
    )
    again()
    os.truncate(tmp_path / "out" / name, HUGE)
    with pytest.raises(RunError, match=f"{name}' (is damaged|has more than 256 MiB)"):
        again()


def test_no_manifest_is_written_that_would_not_be_read(tmp_path, monkeypatch):
    monkeypatch.setattr("maskov.runs.store.MOST_BYTES", 1000)
    with pytest.raises(RunError, match="fewer or shorter texts"):
        sample(MODEL, Metropolis(Norm()), Schedule(epochs=2), out=tmp_path / "run")
    assert not (tmp_path / "run").exists()


# Control characters.

EVIL = "\x1b]0;owned\x07\x1b[2J\x9b31m\u202edne"


def _forge(copy: Path, change) -> None:
    """Change the manifest; without checkpoints nothing tells that it is another."""
    manifest = json.loads((copy / "manifest.json").read_text())
    change(manifest)
    (copy / "manifest.json").write_text(json.dumps(manifest))
    shutil.rmtree(copy / "checkpoints")


def json_strings(data) -> str:
    """Return all texts of some JSON, one after the other."""
    if isinstance(data, dict | list):
        return "".join(map(json_strings, data.values() if isinstance(data, dict) else data))
    return str(data)


def _is_clean(text: str) -> bool:
    return not any(sign in text for sign in "\x1b\x07\x9b\u202e")


@pytest.mark.parametrize("words", [["diagnose"], ["diagnose", "--json"], ["report", "--format",
                         "md"], ["report", "--format", "json"]], ids=" ".join)  # fmt: skip
def test_control_characters_of_a_manifest_are_escaped(words, copy, capfd):
    def change(manifest):
        manifest["signature"] = EVIL + "signature"
        manifest["notes"] = [EVIL + "note"]
        manifest["kernel"] = manifest["config"]["model"]["name"] = EVIL
        manifest["versions"]["maskov"] = EVIL

    _forge(copy, change)
    with pytest.raises(SystemExit) as ended:
        main([words[0], str(copy), *words[1:]])
    out, err = capfd.readouterr()
    assert not ended.value.code, err
    assert _is_clean(out + err)
    if "json" in words or "--json" in words:
        assert EVIL in json_strings(json.loads(out))
    else:
        assert "\\x1b" in out


def test_control_characters_in_refusals_and_samples_are_escaped(copy, capfd):
    def change(manifest):
        manifest["config"]["model"]["source"]["name"] = f"no/{EVIL}"

    lines = [json.loads(line) for line in (copy / "samples.jsonl").read_text().splitlines()]
    lines[0]["text"] = EVIL
    _forge(copy, change)
    with pytest.raises(SystemExit):
        main(["resume", str(copy)])
    assert _is_clean(capfd.readouterr().err)
    (copy / "samples.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    with pytest.raises(SystemExit):
        main(["report", str(copy), "--format", "md"])
    assert _is_clean(capfd.readouterr().out)


def test_escapes_are_of_control_characters_only():
    text = "naïve 世界\tשלום\n" + EVIL
    assert printable("naïve 世界\tשלום\n") == "naïve 世界\tשלום\n"
    assert _is_clean(printable(text))
    line = json.dumps({"text": text}, ensure_ascii=False)
    assert json.loads(json_printable(line)) == {"text": text}
    assert _is_clean(json_printable(line))


# Models that a manifest names.


@pytest.fixture
def offline(monkeypatch):
    """Fail whoever opens a connection."""

    def connect(*_):
        pytest.fail("it went to the network")

    monkeypatch.delenv("HF_HUB_OFFLINE", raising=False)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", False)
    monkeypatch.setattr(socket.socket, "connect", connect)
    monkeypatch.setattr(socket, "getaddrinfo", connect)


@pytest.mark.parametrize("field", ["name", "tokenizer"])
def test_a_manifest_does_not_download_a_model(field, copy, offline, tmp_path):
    if field == "tokenizer":
        MODEL.network.save_pretrained(tmp_path / "model")

    def change(manifest):
        source = manifest["config"]["model"]["source"]
        source["name"] = str(tmp_path / "model")
        source[field] = "somebody/unheard-of"

    _forge(copy, change)
    with pytest.raises(ModelError, match=r"'somebody/unheard-of' is not on .*--allow-download"):
        resume(copy)
    with pytest.raises(ModelError, match="--allow-download"):
        load_model(Run.open(copy).manifest)


@pytest.mark.parametrize(
    "energy", ["autoregressive({})", "classifier({}, label=1)", "similar({})", "norm({})"]
)
def test_nor_a_model_of_its_energy(energy, copy, offline):
    def change(manifest):
        manifest["config"]["kernel"]["energy"] = f"raw+{energy.format('somebody/unheard-of')}"

    _forge(copy, change)
    with pytest.raises(ModelError, match=r"'somebody/unheard-of' is not on .*--allow-download"):
        resume(copy, MODEL)


def test_shipped_models_and_folders_need_no_leave(copy, offline, tmp_path):
    MODEL.network.save_pretrained(tmp_path / "model")
    MODEL.tokenizer.save_pretrained(tmp_path / "model")
    for name in ("untrained", str(tmp_path / "model")):
        assert maskov.load(name, "cpu", allow_download=False).vocabulary_size > 4


def test_a_model_in_the_cache_of_the_hub_is_loaded_from_there(offline, tmp_path, monkeypatch):
    snapshot = tmp_path / "models--somebody--known" / "snapshots" / "abc"
    MODEL.network.save_pretrained(snapshot)
    MODEL.tokenizer.save_pretrained(snapshot)
    (snapshot.parents[1] / "refs").mkdir()
    (snapshot.parents[1] / "refs" / "main").write_text("abc")
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))
    loaded = maskov.load("somebody/known", "cpu", allow_download=False)
    assert loaded.name == "somebody/known"
    assert loaded.fingerprint() == maskov.load(snapshot, "cpu").fingerprint()


def test_downloading_can_be_allowed(copy, monkeypatch):
    """The option reaches the loader."""
    asked = []
    monkeypatch.setattr("maskov.runs.rebuild.load", lambda *words: asked.append(words[5]) or MODEL)
    for allow in (False, True):
        load_model(Run.open(copy).manifest, allow_download=allow)
    assert asked == [False, True]


# Endless kernels.


def _deep() -> dict:
    kernel = {"part": "mh", "energy": "raw"}
    for _ in range(200):
        kernel = {"part": "mixture", "kernels": [kernel]}
    return kernel


@pytest.mark.parametrize(
    ("kernel", "message"),
    [
        ({"part": "mh", "energy": "+".join(["raw"] * 200_000)}, "at most 64 terms, not 200,000"),
        (_deep(), "'kernel' has more than"),
        (
            {"part": "mixture", "kernels": [{"part": "mh", "energy": "raw"}] * 9999},
            "'kernel' has more than",
        ),
    ],
    ids=["terms", "deep", "wide"],
)
def test_a_kernel_without_an_end_is_refused(kernel, message, copy):
    _forge(copy, lambda manifest: manifest["config"].update(kernel=kernel))
    with pytest.raises(RunError, match=message):
        resume(copy, MODEL)


def test_an_energy_of_64_terms_is_none_too_many():
    assert len(maskov.parse_energy("+".join(["raw"] * 64)).parts) >= 1
