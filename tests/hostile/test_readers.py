"""Every file that maskov reads, and any options: read correctly, or refused in one sentence."""

import gzip
import hashlib
import io
import json
import lzma
import math
import os
import pickle
import shutil
from collections.abc import Callable, Collection
from dataclasses import asdict
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
import torch
from hypothesis import given, strategies as st
from safetensors.torch import load_file, save_file

import maskov
from maskov import InputError, MaskovError, ModelError, Run, RunError, ratings, shipped
from maskov.cli import main
from maskov.cli.evaluating import read_sentences
from maskov.evaluation import copied
from maskov.fasta import Record
from maskov.options import read_lines
from maskov.runs.state import START, pack, seal, unpack
from mutations import anything, examples, or_refused
from stopped_runs import CHAINS, EPOCHS, MODEL
from tiny_translation import save


class Reader(NamedTuple):
    """A valid file, what reads it and checks what was read, and what a refusal may name."""

    file: Path
    read: Callable[[], object]
    naming: Collection[object] = ()


def _run_folder(home: Path, runs, name: str) -> Reader:
    copy = Path(shutil.copytree(runs["stopped"], home / "run"))
    if name != "checkpoint":
        # A wrong entry can show in another: with another seed, the lengths do not fit.
        return Reader(copy / name, lambda: _read_run(copy), [copy, "'inputs'", "'config"])
    file = sorted(copy.glob("checkpoints/*.checkpoint"))[-1]
    body, sealed = home / "body", file.read_bytes()
    body.write_bytes(sealed[START:])

    def read() -> None:
        """With a right hash over wrong bytes, as only somebody who means harm would write it."""
        file.write_bytes(seal(body.read_bytes()))
        with or_refused(ValueError, naming=[""]):
            state = unpack(body.read_bytes())
            assert unpack(pack(state)).epoch == state.epoch

    return Reader(body, read, [copy])


def _read_run(path: Path) -> None:
    run = Run.open(path)
    written = json.loads((path / "manifest.json").read_bytes())
    assert json.loads(json.dumps(asdict(run.manifest))) == written
    assert run.summary().chains == run.manifest.chains
    kept = [json.loads(one.to_json()) for one in run.samples]
    lines = (path / "samples.jsonl").read_text(encoding="utf-8").splitlines()
    assert kept == list(map(json.loads, lines))
    for name in ("steps", "energy_raw", "tokens"):
        values = run.traces[name]
        assert values.shape[:2] == (EPOCHS, CHAINS)
        file = "tokens" if name == "tokens" else "traces"
        assert values.tobytes() == np.load(path / f"{file}.npy")[name].tobytes()
    assert run.finished is False


def _model(home: Path, runs, kind: str, name: str) -> Reader:
    folder = home / "model"
    if kind == "masked":
        shutil.copytree(runs["model"], folder)
    else:
        save(folder)

    def read() -> None:
        model = maskov.load(folder, "cpu")
        weights, own = load_file(folder / "model.safetensors"), model.network.state_dict()
        assert weights.keys() & own.keys()
        for one in weights.keys() & own.keys():
            assert torch.equal(own[one].nan_to_num(), weights[one].to(own[one]).nan_to_num())
        if kind == "masked":
            assert all(0 <= token < len(model.forbidden) for token in model.encode("red green"))

    return Reader(folder / name, read, [folder])


def _vocabulary(home: Path, runs) -> Reader:
    file = home / "vocab.txt"
    file.write_text("[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\n[unused0]\nred\ngreen\nblue\nwhite\n")
    MODEL.network.save_pretrained(home / "model")

    def read() -> None:
        model = maskov.load(home / "model", "cpu", tokenizer=str(file))
        ids = model.encode("red green")
        lines = file.read_text(encoding="utf-8").split("\n")
        assert [lines[token].strip() for token in ids] == model.token_strings(ids)

    return Reader(file, read, [file, home / "model", "vocabulary", "tokenizer"])


def _about(home: Path, runs) -> Reader:
    file = home / "tiny" / "about.json"
    file.parent.mkdir()
    file.write_text(json.dumps({
        "name": "tiny", "kind": "masked", "summary": "small", "parameters": 10, "bytes": 20,
        "training_data": "none", "licence": "Apache-2.0", "quality": {"loss": 1.5},
        "default": True, "pairs": ["de-en"],
    }))  # fmt: skip

    def read() -> None:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(shipped, "ROOT", home)
            patch.setenv("MASKOV_MODELS", str(home / "none"))
            (model,) = shipped.shipped()
        written = json.loads(file.read_bytes())
        assert (model.name, model.kind) == ("tiny", written["kind"])
        assert [model.parameters, model.bytes] == [int(written[n]) for n in ("parameters", "bytes")]
        assert model.quality == pytest.approx(written["quality"], nan_ok=True)

    return Reader(file, read, ["'tiny'"])


def _texts(home: Path, runs, name: str) -> Reader:
    file = home / name
    file.write_text('{"text": "one"}\n{"text": "two", "chain": 3}\n')

    def read() -> None:
        lines = read_lines(str(file))
        whole = file.read_bytes().decode("utf-8-sig").replace("\r\n", "\n")
        assert "\n".join(lines) == whole.removesuffix("\n")
        texts, is_json = read_sentences(str(file)), name.endswith("jsonl")
        if isinstance(texts[0], Record):  # a first line that begins with >
            assert not is_json
        else:
            assert texts == [json.loads(line)["text"] if is_json else line for line in lines]

    return Reader(file, read, [file])


def _training(home: Path, runs, kind: str) -> Reader:
    pack, unpack = {"": (bytes, bytes), ".gz": (gzip.compress, gzip.decompress),
                    ".xz": (lzma.compress, lzma.decompress)}[kind]  # fmt: skip
    file = home / f"text{kind}"
    file.write_bytes(pack(b"red green\nblue\n"))

    def read() -> None:
        share, content = copied(["red green", "blue", "white"], file)
        training = unpack(file.read_bytes())
        assert content == hashlib.sha256(training).hexdigest()
        lines = ["".join(line.lower().split()) for line in training.decode().splitlines()]
        expected = sum(text in lines for text in ("redgreen", "blue", "white")) / 3
        assert share.value == pytest.approx(expected)

    return Reader(file, read, [file])


def _ratings(home: Path, runs, name: str) -> Reader:
    texts = {"a": ["one", "two"], "b": ["three", "four"]}
    key, _, sheet = ratings.export(home / "study", texts, "csv", per_run=2)
    sheet.write_text(sheet.read_text().replace(',"","","",', ',"4","2","so so",'))
    points = [{"from_name": one, "value": {"choices": ["3"]}} for one in ("coherence", "fluency")]
    note = [{"completed_by": 1, "updated_at": "2026", "result": points}]
    study, done = json.loads(key.read_text())["study"], home / "done.json"
    done.write_text(json.dumps([
        {"data": {"item": item, "study": study}, "annotations": note} for item in range(1, 5)
    ]))  # fmt: skip

    def read() -> None:
        for answers in (sheet, done):
            found = ratings.load([answers], key, resamples=10)
            assert len(found.rows) == sum(found.raters.values()) <= 4
            assert all(row["coherence"] in range(1, 5) for row in found.rows)

    return Reader({"key": key, "sheet": sheet, "done": done}[name], read, [key, sheet, done])


READERS = [
    *((_run_folder, name) for name in ("manifest.json", "samples.jsonl", "traces.npy", "tokens.npy",
                                       "checkpoint")),
    *((_model, kind, name) for kind in ("masked", "translation") for name in (
        "config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json")),
    (_vocabulary,), (_about,), (_texts, "texts.txt"), (_texts, "texts.jsonl"),
    *((_ratings, name) for name in ("key", "sheet", "done")),
    *((_training, kind) for kind in ("", ".gz", ".xz")),
]  # fmt: skip


@pytest.fixture(scope="module", params=READERS, ids=lambda one: f"{one[0].__name__} {one[1:]}")
def reader(request, runs, tmp_path_factory) -> Reader:
    make, *names = request.param
    return make(tmp_path_factory.mktemp("reader"), runs, *names)


@examples(40)
@given(data=st.data())
def test_anything_is_read_correctly_or_refused_in_one_sentence(data, reader):
    whole = reader.file.read_bytes()
    content = data.draw(st.just(whole) | anything(whole))
    reader.file.write_bytes(content)
    try:
        # What is whole must be read.
        with or_refused(MaskovError, naming=() if content == whole else reader.naming):
            reader.read()
    finally:
        reader.file.write_bytes(whole)


class Evil:
    """Pickled, it would run a command when it is read."""

    def __init__(self, mark: Path) -> None:
        self.mark = mark

    def __reduce__(self):
        return os.system, (f"touch {self.mark}",)


def _numpy(evil: Evil) -> bytes:
    file = io.BytesIO()
    np.save(file, np.array([evil], dtype=object), allow_pickle=True)
    return file.getvalue()


def _torch(evil: Evil) -> bytes:
    file = io.BytesIO()
    torch.save({"weight": evil}, file)
    return file.getvalue()


@pytest.mark.parametrize("pack", [pickle.dumps, _numpy, _torch])
@pytest.mark.parametrize(
    ("name", "read"),
    [
        ("traces.npy", lambda copy, home: Run.open(copy).summary()),
        ("pytorch_model.bin", lambda copy, home: maskov.load(home, "cpu")),
    ],
)
def test_code_in_a_pickle_is_refused_and_not_run(name, read, pack, runs, copy, tmp_path):
    home, mark = shutil.copytree(runs["model"], tmp_path / "model"), tmp_path / "run by somebody"
    (home / "model.safetensors").unlink()
    for folder in (copy, home):
        (folder / name).write_bytes(pack(Evil(mark)))
    with pytest.raises((RunError, ModelError)) as refused:
        read(copy, home)
    # Torch's own message goes on to say how to run the code all the same.
    assert "options" not in str(refused.value)
    assert not mark.exists()


@pytest.mark.parametrize("kind", ["masked", "translation"])
@pytest.mark.parametrize("size", [10**5, 10**10, 2**70, "weights", "missing"])
def test_a_network_that_is_not_that_of_its_weights_is_refused(kind, size, runs, tmp_path):
    folder = _model(tmp_path, runs, kind, "config.json").file.parent
    config = json.loads((folder / "config.json").read_text())
    weights = load_file(folder / "model.safetensors")
    if isinstance(size, int):
        for name in (key for key, value in config.items() if type(value) is int and value > 1):
            (folder / "config.json").write_text(json.dumps(config | {name: size}))
            with pytest.raises(ModelError):
                maskov.load(folder, "cpu")
        return
    if size == "weights":
        name = max(weights, key=lambda key: weights[key].numel())
        weights[name] = weights[name][:-1].contiguous()
        save_file(weights, folder / "model.safetensors", {"format": "pt"})
    else:
        (folder / "model.safetensors").unlink()
    with pytest.raises(ModelError):
        maskov.load(folder, "cpu")


def test_a_text_that_unfolds_without_an_end_and_a_path_that_no_file_has(tmp_path):
    """A MiB that would be a line of a GiB."""
    with gzip.open(tmp_path / "text.gz", "wb") as file:
        for _ in range(64):
            file.write(bytes(2**20))
    with pytest.raises(InputError, match="too long"):
        copied(["red"], tmp_path / "text.gz")
    with pytest.raises(InputError, match="cannot read"):
        read_lines("\0")
    with pytest.raises(MaskovError, match="cannot write"):
        maskov.sample(MODEL, out="\0", chains=1, length=2)


VALUES = st.sampled_from(
    ["-1", "0", "1", "2", "3", "0.5", "-0.5", "nan", "inf", "-inf", "1e308", "1e-320", "", " ",
     "99999999999999999999", "-99999999999999999999", "0x10", "1_0", "٣", "one", "2:3", "3:2"]
) | st.sampled_from(
    ["raw", "norm", "raw+norm", "raw-norm", "0*raw", "mh", "gibbs", "auto", "off", "random",
     "masked", "greedy", "bfloat16", "cpu", "cuda:99", "", "../..", "\x00", "naïve", "converged"]
)  # fmt: skip
OPTIONS = [
    "epochs", "burn-in", "chains", "length", "seed", "thin", "proposal", "delayed",
    "target-temperature", "force-accept", "token-budget", "resident", "threads", "workers",
    "energy", "kernel", "moves", "start", "precision", "device", "until",
]  # fmt: skip


@examples(60)
@given(given=st.dictionaries(st.sampled_from(OPTIONS), VALUES, min_size=1, max_size=2))
def test_any_options_of_sample(given, capfd):
    small = {"epochs": "2", "chains": "2", "length": "3"} | given
    words = [word for name, value in small.items() for word in (f"--{name}", value)]
    with pytest.raises(SystemExit) as ended:
        main(["sample", "--model", "untrained", "--quiet", "--json", *words])
    out, err = capfd.readouterr()
    if ended.value.code == 2:
        assert out == ""
        # By the name of an option, in words or as it is written, or by the value.
        names = {name.partition("-")[0] for name in given} | set(given.values())
        assert any(name in err.lower() for name in names if name.strip()), err
        assert "Traceback" not in err
    else:
        assert not ended.value.code, words
        samples = [json.loads(line) for line in out.splitlines()]
        assert {one["chain"] for one in samples} == set(range(int(small["chains"])))
        assert all(math.isfinite(one["energy_norm"]) for one in samples)
