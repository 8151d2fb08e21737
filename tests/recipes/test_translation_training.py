"""Training of translation models at toy size: from pairs to models, and what is refused."""

import json
import lzma
from dataclasses import asdict
from pathlib import Path

import numpy as np
import pytest
import torch
from recipes.trainer import Training
from recipes.translation import distil, train

from maskov.models.network import load_translation

CPU = torch.device("cpu")
RECORDS = Path(__file__).parents[2] / "results" / "translation"


@pytest.fixture(scope="module")
def toy(tmp_path_factory):
    """Pairs of a language that is English letter by letter, and a vocabulary for it."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    folder = tmp_path_factory.mktemp("toy")
    words = ["<pad>", "<s>", "</s>", "<unk>", "<mask>"]
    words += [f"▁{kind}{n}" for kind in "xy" for n in range(10)]
    tokenizer = Tokenizer(models.WordLevel({w: n for n, w in enumerate(words)}, "<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    tokenizer.decoder = decoders.Metaspace()
    PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, pad_token="<pad>", bos_token="<s>", eos_token="</s>",
        unk_token="<unk>", mask_token="<mask>",
    ).save_pretrained(folder / "tokenizer")  # fmt: skip
    generator = np.random.default_rng(0)
    for name, count in (("de-en", 300), ("ro-en", 60)):
        lines = [generator.integers(0, 10, generator.integers(1, 7)) for _ in range(count)]
        for kind, side in (("x", "src"), ("y", "tgt")):
            text = "".join(" ".join(f"{kind}{n}" for n in line) + "\n" for line in lines)
            (folder / f"{name}.train.{side}.xz").write_bytes(lzma.compress(text.encode()))
    return folder


def _train(kind: str, toy, out, steps: int, *more: str) -> None:
    words = [kind, toy, "--tokenizer", toy / "tokenizer", "--out", out, "--steps", steps]
    words += ["--width", 32, "--layers", 1, "--batch-tokens", 1024, "--dropout", 0, *more]
    train.main([str(word) for word in words])


@pytest.fixture
def _forked():
    """Training draws from torch's generator, and so does a network before its weights are read."""
    with torch.random.fork_rng():
        yield


@pytest.mark.usefixtures("_forked")
def test_from_pairs_to_a_twin_that_translates_and_back(toy, tmp_path, capsys):
    _train("twin", toy, tmp_path / "twin", 120, "--rate", "0.01")
    _train("twin", toy, tmp_path / "twin", 200, "--rate", "0.01")
    out = capsys.readouterr().out
    assert "continuing from step 120" in out
    assert "pairs/s" in out
    log = json.loads((tmp_path / "twin" / "log.json").read_text())["log"]
    assert log[-1]["loss"] < 0.8 * log[0]["loss"]

    # Other weights begin where these ended, with a new optimiser.
    weights = tmp_path / "twin" / "model"
    _train("twin", toy, tmp_path / "more", 50, "--rate", "0.001", "--weights", str(weights))
    more = json.loads((tmp_path / "more" / "log.json").read_text())["log"]
    assert more[0]["loss"] < 1.2 * log[-1]["loss"]

    distil.main([str(weights), str(toy), "--most", "40"])
    out = capsys.readouterr().out
    assert "sentences/s" in out
    facts = json.loads((toy / "ro-en.distilled.json").read_text())
    assert (facts["pairs"], facts["translated"]) == (40, 40)
    found = distil.translate_lines(distil.load_twin(weights), ["x1 x2", "x3"], beam=2)
    assert all(set(str(line)) <= set("xy0123456789 ") for line in found)
    _train("masked", toy, tmp_path / "masked", 60, "--targets", "distilled", "--most", "40",
           "--noisy", "0.3")  # fmt: skip
    assert not load_translation(tmp_path / "masked" / "model", CPU, torch.float32)[0].shape.causal


@pytest.mark.usefixtures("_forked")
@pytest.mark.parametrize("kind", ["twin", "masked"])
def test_a_training_is_that_of_the_shipped_model_unless_told_otherwise(kind, toy, tmp_path):
    words = [kind, toy, "--tokenizer", toy / "tokenizer", "--out", tmp_path, "--steps", 1]
    train.main([str(word) for word in [*words, "--width", 32, "--layers", 1]])
    found = json.loads((tmp_path / "log.json").read_text())
    shipped = json.loads((RECORDS / f"{kind}-shipped.json").read_text())
    # The record does not name newer settings, which were then as their defaults are now.
    assert found["recipe"] == asdict(Training()) | shipped["recipe"]
    assert found["masking"] == (shipped["masking"] if kind == "masked" else None)
