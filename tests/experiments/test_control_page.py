"""The page of the Yelp comparison, from toy files: scores, picks, what is refused."""

import json

import pytest
import torch
from experiments.studies.control import judge, systems
from experiments.studies.control.__main__ import main
from experiments.studies.control.bag import BUCKETS, Bag, features

from recipes import vocabulary

NOUNS = ["food", "soup", "room", "staff", "place"]
SOURCES = ([f"the {noun} is awful today ." for noun in NOUNS],
           [f"the {noun} is great today ." for noun in NOUNS])  # fmt: skip
HUMAN = ([line.replace("awful", "great") for line in SOURCES[0]],
         [line.replace("great", "awful") for line in SOURCES[1]])  # fmt: skip
TOOL = """
import pathlib

class Evaluator:
    def __init__(self, path):
        assert path.name == "acc_yelp.bin"

    def label(self, text):
        words = text.split()
        if "great" in words:
            return "__label__positive"
        return "__label__negative" if "awful" in words else None
"""


def write(folder, name, halves):
    folder.mkdir(parents=True, exist_ok=True)
    for number, lines in enumerate(halves):
        (folder / f"{name}.{number}.txt").write_text("\n".join(lines) + "\n")


def write_ours(folder, name, keep, chains, chain_of_best=1):
    """Write rewritings in which one chain has the human's text, and the others the source."""
    folder.mkdir(parents=True, exist_ok=True)
    for pick in systems.PICKS:
        for half in (0, 1):
            rows = [
                {
                    "line": line,
                    "source": source,
                    "text": HUMAN[half][line] if chain == chain_of_best else source,
                    "changes": int(chain == chain_of_best),
                    "chain": chain,
                    "epoch": 3,
                    "energies": {"target": 10.0 - 2 * (chain == chain_of_best), "edit": 0.0},
                }
                for line, source in enumerate(SOURCES[half])
                for chain in range(chains)
            ]
            file = folder / f"{name}.{pick}.{half}.jsonl"
            file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    record = {"name": name, "strength": 3.0, "keep": keep, "chains": chains, "experts": ["deep"],
              "passes_a_sentence": 300.0 * keep, "seconds_a_sentence": 0.25,
              "device": "cpu",
              "held": {"lowest": {"accuracy": 97.25, "self_bleu": 61.0}}}  # fmt: skip
    (folder / f"{name}.json").write_text(json.dumps(record))


@pytest.fixture(scope="module")
def judge_folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("judge")
    tokenizer = vocabulary.learn(iter(" ".join(line) for line in (*SOURCES, *HUMAN)), 80)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        judge.build(tokenizer, 64, 1).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


@pytest.fixture
def comparison(tmp_path, judge_folder):
    """Folders as `page` reads them."""
    data, work = tmp_path / "data" / "yelp", tmp_path / "work"
    write(data, "test", SOURCES)
    write(data, "reference", HUMAN)
    write(data / "peers", "mix-and-match", (HUMAN[0], SOURCES[1]))
    write(data / "peers", "other", SOURCES)
    (data.parent.parent / "tools").mkdir()
    (data.parent.parent / "tools" / "yelp_eval.py").write_text(TOOL)
    weights = torch.zeros(BUCKETS)
    weights[features("great")[0]], weights[features("awful")[0]] = 1.0, -1.0
    Bag(weights, 0.0, ["negative", "positive"]).save(work / "models" / "bag")
    (work / "models" / "judge").symlink_to(judge_folder)
    write_ours(tmp_path / "results", "soft", 2.0, 2)
    write_ours(tmp_path / "results", "hard", 1.0, 2, chain_of_best=0)
    return tmp_path


def run(folder, *more, chosen="soft"):
    main(["page", str(folder / "data" / "yelp"), str(folder / "work"), str(folder / "out"),
          "--results", str(folder / "results"), "--chosen", chosen, *more])  # fmt: skip


def test_page_has_every_system_our_lines_and_the_figure(comparison):
    run(comparison)
    out = comparison / "out"
    for half in (0, 1):
        assert systems.read_lines(out / f"yelp.{half}.txt") == HUMAN[half]
    text = (out / "README.md").read_text()
    for line in (
        "| mix-and-match | 50.0 ± 16.7 | 100.0 | 0.0 |",
        "| **maskov, soft** | **100.0** |",
        "| **soft** | **2** | **97.2** | **61.0** | **600** | **0.25** |",
        "0 of 2 published systems are at or below this in all three, 0 at or above.",
    ):
        assert line in text
    assert "600 masked passes a sentence" in text
    assert (out / "frontier.svg").stat().st_size > 1000
    record = json.loads((out / "scores.json").read_text())
    assert record["published"]["source"]["accuracy"]["value"] == 0
    assert record["published"]["human reference"]["reference_bleu"]["value"] == pytest.approx(100)
    assert record["ours"]["soft"]["setting"]["keep"] == 2
    rows = {row["texts"]: row for row in record["picks"]}
    assert list(rows) == [
        "one chain, a plain sample",
        "2 chains, the sample most like all samples",
        "2 chains, the sample of lowest energy",
        "one chain, the lowest energy it had",
        "2 chains, the lowest energy of any",
    ]
    one, both = rows["one chain, a plain sample"], rows["2 chains, the lowest energy of any"]
    assert (one["passes"], both["passes"]) == (300, 600)
    assert (one["mean_energy"], both["mean_energy"]) == (9, 8)
    assert (one["accuracy"]["value"], both["accuracy"]["value"]) == (50, 100)
