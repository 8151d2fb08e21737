"""The Yelp comparison at toy size: lines in, models out."""

import json
import lzma
from dataclasses import replace

import pytest
import torch
from experiments.studies.control import data, train
from experiments.studies.control.bag import Bag, train_bag

import maskov
from recipes import networks, vocabulary

WORDS = {0: ["awful", "rude", "bland"], 1: ["great", "lovely", "fresh"]}
NOUNS = ["food", "soup", "room", "staff", "place"]


@pytest.fixture
def yelp(tmp_path, monkeypatch):
    """A folder like that of the comparison."""
    monkeypatch.setattr(data, "HELD_OUT", 10)
    for index, adjectives in WORDS.items():
        lines = [f"the {noun} is {word} , it 's {index} !" for noun in NOUNS for word in adjectives]
        with lzma.open(tmp_path / f"train.{index}.txt.xz", "wt") as file:
            file.write("\n".join(f"{line} {n}" for n in range(6) for line in lines) + "\n")
        (tmp_path / f"test.{index}.txt").write_text("\n".join(lines[:4]) + "\n")
    return tmp_path


@pytest.fixture
def base(tmp_path):
    """An untrained masked LM."""
    letters = [f"{a}{b}" for a in "abcdefghijklmnopqrstuvwxyz,!'0123456789" for b in "aeiou"]
    tokenizer = vocabulary.learn(iter(letters), 200)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        networks.build(networks.SHAPES["modern-64x2"], tokenizer).save_pretrained(tmp_path / "base")
    tokenizer.save_pretrained(tmp_path / "base")
    return tmp_path / "base"


def test_bag_of_words_learns_and_is_read_back(yelp, tmp_path):
    data.prepare(yelp, tmp_path / "work")
    bag, record = train_bag(
        data.lines_of(tmp_path / "work", "half-b"), torch.device("cpu"), rate=0.1
    )
    assert record["accuracy"] == 1.0
    bag.save(tmp_path / "bag")
    again, held = Bag.load(tmp_path / "bag"), data.lines_of(tmp_path / "work", "held")
    assert again.accuracy(held) == 1.0
    odds = [one.log_odds(held["positive"]) for one in (bag, again)]
    assert odds[0] == pytest.approx(odds[1], rel=1e-2)


@pytest.mark.slow
def test_all_models_are_trained(yelp, base, tmp_path):
    work = tmp_path / "work"
    data.prepare(yelp, work)
    plan = replace(train.QUICK, base=str(base))
    with torch.random.fork_rng():
        train.train(work, plan)
        train.train(work, plan)  # skips what is there
    log = json.loads((work / "models" / "log.json").read_text())
    assert set(log) == {"domain", "deep", "shallow", "bag", "bag-a", "judge"}
    model = maskov.load(work / "models" / "domain", "cpu")
    text = "the soup is lovely , it 's 1 !"
    assert model.decode(model.encode(text)) == text
    judge = maskov.Autoregressive(str(work / "models" / "judge"))
    assert len(judge.token_terms([judge.tokenise(text)])[0]) == 9
