"""Every other file that maskov reads, with anything in it: read, or refused in one sentence.

Run folders, checkpoints and weights are in files of their own beside this one.
"""

from __future__ import annotations

import gzip
import hashlib
import json
import lzma
from pathlib import Path

import pytest
import torch
from experiments.__main__ import main as reproduce
from experiments.lib.cell import load_cell
from experiments.lib.context import Context
from experiments.lib.settings import SETTINGS
from experiments.paper import driver
from hypothesis import given
from hypothesis import strategies as st

import maskov
from maskov import InputError, MaskovError, ModelError, ratings, shipped
from maskov.cli import main
from maskov.cli.evaluating import read_sentences
from maskov.cli.output import read_lines
from maskov.evaluation.texts import copied
from maskov.fasta import Record
from mutations import changed, damaged, examples, or_refused
from small import tiny_bert

DEEP = "[" * 100_000
HUGE = ["9" * 5000, "1e999", "-1e999", "NaN", "Infinity", "9" * 400]


def anything(content: bytes):
    """Return a strategy of files: damaged, random, or deep, huge and odd JSON."""
    odd = [DEEP, '{"a":' * 50_000, "", "null", "0", '""', "[]", "{}", "\ufeff{}", *HUGE]
    return st.one_of(
        damaged(content),
        st.binary(max_size=60),
        st.text(max_size=60).map(lambda text: text.encode("utf-8", "surrogatepass")),
        st.sampled_from(odd).map(str.encode),
    )


def wrong(found: dict):
    """Return a strategy of JSON files with entries of other kinds, as text."""
    return changed(found).map(lambda one: json.dumps(one).encode())


# What describes a model.

ABOUT = {
    "name": "tiny", "kind": "masked", "summary": "small", "parameters": 10, "bytes": 20,
    "training_data": "none", "licence": "Apache-2.0", "quality": {"loss": 1.5}, "default": True,
    "pairs": ["de-en"],
}  # fmt: skip


@pytest.fixture
def about(tmp_path, monkeypatch) -> Path:
    """The description of the only shipped model."""
    monkeypatch.setattr(shipped, "ROOT", tmp_path / "models")
    monkeypatch.setenv("MASKOV_MODELS", str(tmp_path / "none"))
    (tmp_path / "models" / "tiny").mkdir(parents=True)
    return tmp_path / "models" / "tiny" / "about.json"


@examples(80)
@given(data=st.data())
def test_any_description_of_a_model_is_read_or_refused(data, about):
    content = json.dumps(ABOUT).encode()
    about.write_bytes(data.draw(st.just(content) | anything(content) | wrong(ABOUT)))
    unchanged = about.read_bytes() == content
    with or_refused(ModelError, naming=() if unchanged else ["'tiny'"]):
        (model,) = shipped.shipped()
        written = json.loads(about.read_bytes())
        assert model.name == about.parent.name
        assert model.kind == written["kind"]
        assert [model.parameters, model.bytes] == [int(written[n]) for n in ("parameters", "bytes")]
        assert model.summary == str(written["summary"])
        assert model.quality == pytest.approx(written["quality"], nan_ok=True)
        assert json.loads(model.to_json())["pairs"] == list(model.pairs)
        assert shipped.listed()[0].name == "tiny"
        assert shipped.source_of("other", "masked") == "other"


@pytest.mark.parametrize("value", HUGE)
@pytest.mark.parametrize("name", ["parameters", "bytes"])
def test_numbers_that_no_model_has_are_one_sentence(name, value, about, capfd):
    about.write_text(json.dumps(ABOUT).replace(str(ABOUT[name]), value, 1))
    with pytest.raises(SystemExit) as ended:
        main(["models"])
    assert ended.value.code == 2
    assert "'tiny' is damaged" in capfd.readouterr().err


@pytest.fixture(scope="module")
def network(tmp_path_factory) -> Path:
    """A model without a tokenizer of its own."""
    folder = tmp_path_factory.mktemp("model")
    tiny_bert("red green blue", torch.float32).network.save_pretrained(folder)
    return folder


VOCABULARY = "[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\nred\ngreen\nblue\n"


@examples(30)
@given(data=st.data())
def test_any_vocabulary_is_read_or_refused(data, network, tmp_path):
    file = tmp_path / "vocab.txt"
    file.write_bytes(data.draw(anything(VOCABULARY.encode())))
    with or_refused(MaskovError, naming=[file, network, "vocabulary", "tokenizer"]):
        model = maskov.load(network, "cpu", tokenizer=str(file))
        ids = model.encode("red green")
        lines = file.read_text(encoding="utf-8").split("\n")
        assert [lines[token].strip() for token in ids] == model.token_strings(ids)


def test_a_vocabulary_that_fits_is_read(network, tmp_path):
    (tmp_path / "vocab.txt").write_text(VOCABULARY)
    model = maskov.load(network, "cpu", tokenizer=str(tmp_path / "vocab.txt"))
    assert model.decode(model.encode("red green")) == "red green"


# Texts.


@examples(80)
@given(data=st.data(), name=st.sampled_from(["texts.txt", "texts.jsonl"]))
def test_any_texts_are_read_or_refused(data, name, tmp_path):
    """Sources of studies, texts to judge, templates and texts to start from."""
    file = tmp_path / name
    content = data.draw(anything(b'{"text": "one"}\n{"text": "two", "chain": 3}\n'))
    file.write_bytes(content)
    with or_refused(InputError, naming=[file]):
        lines = read_lines(str(file))
        whole = content.decode("utf-8-sig").replace("\r\n", "\n")
        assert "\n".join(lines) == whole.removesuffix("\n")
    with or_refused(InputError, naming=[file]):
        texts = read_sentences(str(file))
        is_json = name.endswith(".jsonl")
        if isinstance(texts[0], Record):  # a first line that begins with >
            assert not is_json
            assert all(record.sequence for record in texts)
        else:
            assert texts == [json.loads(line)["text"] if is_json else line for line in lines]


@examples(40)
@given(data=st.data(), kind=st.sampled_from(["", ".gz", ".xz"]))
def test_any_training_text_is_read_or_refused(data, kind, tmp_path):
    text = b"red green\nblue\n"
    pack, unpack = {"": (bytes, bytes), ".gz": (gzip.compress, gzip.decompress),
                    ".xz": (lzma.compress, lzma.decompress)}[kind]  # fmt: skip
    file = tmp_path / f"text{kind}"
    file.write_bytes(data.draw(st.just(pack(text)) | anything(pack(text))))
    with or_refused(InputError, naming=[file]):
        share, content = copied(["red green", "blue", "white"], file)
        training = unpack(file.read_bytes())
        assert content == hashlib.sha256(training).hexdigest()
        lines = ["".join(line.lower().split()) for line in training.decode().splitlines()]
        assert share.value == pytest.approx(
            sum(copy in lines for copy in ("redgreen", "blue", "white")) / 3
        )


def test_a_training_text_that_unfolds_without_an_end_is_refused(tmp_path):
    """A MiB that would be a line of a GiB."""
    with gzip.open(tmp_path / "text.gz", "wb") as file:
        for _ in range(64):
            file.write(bytes(2**20))
    with pytest.raises(InputError, match="too long"):
        copied(["red"], tmp_path / "text.gz")


def test_a_path_that_no_file_has_is_one_sentence():
    with pytest.raises(InputError, match="cannot read"):
        read_lines("\0")
    with pytest.raises(MaskovError, match="cannot write"):
        maskov.sample(tiny_bert("red", torch.float32), out="\0", chains=1, length=2)


# Ratings.


@pytest.fixture(scope="module")
def answers(tmp_path_factory) -> dict[str, Path]:
    """The key of a study, and its answers in both formats."""
    folder = tmp_path_factory.mktemp("ratings")
    texts = {"a": ["one", "two"], "b": ["three", "four"]}
    key, _, sheet = ratings.export(folder / "study", texts, "csv", per_run=2)
    sheet.write_text(sheet.read_text().replace(',"","","",', ',"4","2","so so",'))
    done = folder / "done.json"
    points = [
        {"from_name": scale, "value": {"choices": ["3"]}} for scale in ("coherence", "fluency")
    ]
    study = json.loads(key.read_text())["study"]
    done.write_text(json.dumps([
        {"data": {"item": item, "study": study}, "annotations": [
            {"completed_by": 1, "updated_at": "2026", "result": points}]}
        for item in range(1, 5)
    ]))  # fmt: skip
    return {"key": key, "sheet": sheet, "done": done}


@examples(90)
@given(data=st.data(), name=st.sampled_from(["key", "sheet", "done"]))
def test_any_ratings_are_reported_or_refused(data, name, answers):
    file = answers[name]
    whole = file.read_bytes()
    plain = {} if name == "sheet" else {"": json.loads(whole)}  # the root may be a list
    other = (
        changed(plain).map(lambda one: json.dumps(one.get("")).encode())
        if plain
        else st.just(whole)
    )
    content = data.draw(anything(whole) | other)
    file.write_bytes(content)
    for read in ("sheet", "done"):
        naming = () if content == whole else [answers["key"], answers[read]]
        with or_refused(InputError, naming=naming):
            found = ratings.load([answers[read]], answers["key"], resamples=10)
            assert len(found.rows) == sum(found.raters.values()) <= 4
            assert all(row["coherence"] in range(1, 5) for row in found.rows)
    file.write_bytes(whole)


# Results of `python -m experiments`.

SETTING = SETTINGS["quick"]


@pytest.fixture(scope="module")
def results(tmp_path_factory) -> Path:
    """The result that needs no model, with its cells."""
    out = tmp_path_factory.mktemp("results")
    with pytest.raises(SystemExit) as ended:
        reproduce(["counterexample", "--quick", "--device", "cpu", "--out", str(out)])
    assert not ended.value.code
    return out


@examples(15)
@given(data=st.data())
def test_any_result_is_drawn_again_or_refused(data, results):
    file = results / "counterexample.json"
    whole = file.read_bytes()
    content = data.draw(st.just(whole) | anything(whole) | wrong(json.loads(whole)))
    file.write_bytes(content)
    said = []
    page = results / "counterexample.md"
    page.unlink(missing_ok=True)
    with or_refused(InputError, naming=() if content == whole else [results]):
        driver.report(results, say=said.append)
        assert str(json.loads(file.read_bytes())["title"]) in page.read_text()
        assert len(said) == 1
    file.write_bytes(whole)


@examples(30)
@given(data=st.data())
def test_any_cell_is_taken_or_refused(data, results):
    cell = next(iter(driver.RESULTS["counterexample"].cells(SETTING).values()))
    context = Context(SETTING, results, device="cpu")
    file = results / "cells" / f"{cell.key(context)}.json"
    whole = file.read_bytes()
    file.write_bytes(data.draw(anything(whole) | wrong(json.loads(whole))))
    with or_refused(InputError, naming=[file]):
        loaded = load_cell(cell, context)
        assert json.dumps(loaded) == json.dumps(json.loads(file.read_bytes()))
        assert loaded["key"] == cell.key(context)
    file.write_bytes(whole)
