"""Classifiers and adapted masked LMs at toy size: from labelled lines to models that load."""

import json
import lzma

import pytest
import torch
from transformers import AutoModelForSequenceClassification, AutoTokenizer

import maskov
from recipes import adapt, classifier, networks, vocabulary, words

GOOD, BAD = ["great", "delicious", "lovely"], ["awful", "bland", "rude"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Sentences whose adjective tells the label; spaces around punctuation."""
    path = tmp_path_factory.mktemp("labelled")
    for label, adjectives in (("fun", GOOD), ("sad", BAD)):
        lines = [f"{adjective} {noun} 's !" for noun in ["room"] for adjective in adjectives] * 20
        if label == "fun":
            (path / "fun.txt").write_text("\n".join(lines) + "\n")
        else:
            with lzma.open(path / "sad.txt.xz", "wt") as file:
                file.write("\n".join(lines) + "\n")
    return path


@pytest.fixture(scope="module")
def base(tmp_path_factory):
    """An untrained masked LM whose tokenizer knows letters and a few words."""
    path = tmp_path_factory.mktemp("base")
    text = ["the was and it s room !"] * 90 + ["abcdefghijklmnopqrstuvwxyz'"] * 9
    text += [f"{a}{b}" for a in "abcdefghijklmnopqrstuvwxyz'" for b in "abcdefghijklmnopqrstuvwxyz"]
    tokenizer = vocabulary.learn(iter(text), 75)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        network = networks.build(networks.Shape("bert", 64, 2, 128), tokenizer)
        # Attention in a network this narrow learns faster from larger weights.
        for weight in network.parameters():
            weight.data.mul_(5 if weight.dim() > 1 else 1)
    network.save_pretrained(path)
    tokenizer.save_pretrained(path)
    return path


def _run(main, *arguments: object) -> None:
    with torch.random.fork_rng():
        main([str(argument) for argument in arguments])


def _classify(model, texts):
    network = AutoModelForSequenceClassification.from_pretrained(model, dtype=torch.float32)
    batch = AutoTokenizer.from_pretrained(model)(texts, return_tensors="pt", padding=True)
    with torch.no_grad():
        chances = network.eval()(**batch).logits.softmax(1)
    return [{network.config.id2label[i]: float(p) for i, p in enumerate(row)} for row in chances]


def test_a_classifier_learns_what_can_be_learned(folder, base, tmp_path):
    out = tmp_path / "judge"
    _run(classifier.main, folder, "--out", out, "--base", base, "--width", 64, "--rate", 3e-3,
         "--epochs", 6, "--batch-tokens", 128, "--held-out", 20)  # fmt: skip
    good, bad = _classify(out, ["lovely room 's !", "awful room 's !"])
    assert good["fun"] > 0.9
    assert bad["sad"] > 0.9
    record = json.loads((out / "training.json").read_text())
    assert record["accuracy"] == 1.0
    assert record["calibration_error"] < 0.1
    assert json.loads((out / "about.json").read_text())["kind"] == "classifier"


def test_added_words_are_tokens_and_the_text_comes_back(base):
    before = AutoTokenizer.from_pretrained(base)
    assert len(before.tokenize("service")) > 1
    after = words.extended(before, ["service", "room"])
    assert after.tokenize("service room") == ["service", "room"]
    # Not a match inside a word, as with added tokens.
    assert after.tokenize("disservice") == before.tokenize("disservice")
    assert after.decode(after.encode("service room", add_special_tokens=False)) == "service room"
    assert len(after) == len(before) + 1
    spaced = words.extended(before, ["'s"], spaces=True)
    text = "it 's n't a _num_ room , ( ... ) !"
    assert spaced.decode(spaced.encode(text, add_special_tokens=False)) == text
    assert spaced.unk_token_id not in spaced.encode(text)


def test_adapting_learns_words(folder, base, tmp_path):
    out = tmp_path / "domain"
    _run(adapt.main, folder, "--model", base, "--out", out, "--add-words", 50, "--spaces",
         "--label-prefix", "--epochs", 30, "--rate", 3e-3, "--batch-tokens", 256, "--dropout", 0,
         "--held-out", 20)  # fmt: skip
    record = json.loads((out / "training.json").read_text())
    assert record["history"][-1]["held_out"] < 0.5 * record["history"][0]["held_out"]
    model = maskov.load(out, "cpu")
    text = "lovely room 's !"
    assert model.decode(model.encode(text)) == text
    assert len(model.encode(text)) == len(text.split())
    # Labels are words of the vocabulary, so that the model can read one as its prefix.
    assert maskov.load(out, "cpu", prefix="sad").max_length == model.max_length - 1
    run = maskov.sample(model, schedule=maskov.Schedule(epochs=1), chains=2, length=10)
    assert len(run.samples) == 2
