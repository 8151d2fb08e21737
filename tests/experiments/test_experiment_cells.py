"""Cells: done once, keyed, stopped and continued to the same numbers; estimates, BLEU, laws."""

import json
from dataclasses import asdict, fields, replace
from pathlib import Path

import numpy as np
import pytest
from experiments.lib.bleu import _bleu, corpus_bleu, paired_difference, sentence_counts, signature
from experiments.lib.cell import load_cell, run_cell
from experiments.lib.chains import TextChains, Translations
from experiments.lib.estimates import averages, by_replicate
from experiments.lib.settings import SETTINGS
from experiments.paper.registry import RESULTS
from sacrebleu.metrics.bleu import BLEU

from maskov.errors import Interrupted
from stopped_runs import Stopper

ROOT = Path(__file__).parents[2]
TEXT = TextChains("raw", chains=5, epochs=5, burn_in=2, length=(4, 6))
LINES = Translations("norm", 5, 6, 2, top_p=0.8, data="words.deen", sentences=4, every=2)


def _told(cell):
    return {name: cell[name] for name in ("signature", "values", "epochs", "texts")}


def test_a_finished_cell_is_not_done_again(context, again, monkeypatch):
    first = run_cell(TEXT, context)
    assert not list((context.out / "runs").iterdir())
    for changed in ({"temperature": 0.5}, {"seed": 1}, {"block": 2}):
        assert replace(TEXT, **changed).key(context) != first["key"]
    monkeypatch.setattr(TextChains, "run", lambda *_: pytest.fail("done twice"))
    assert run_cell(TEXT, again()) == first
    assert json.loads((context.out / "cells" / f"{first['key']}.json").read_text()) == first


@pytest.mark.parametrize("cell", [TEXT, LINES], ids=lambda cell: cell.kind)
def test_a_stopped_cell_goes_on_to_the_same_numbers(cell, context, again, tmp_path):
    whole = run_cell(cell, again(out=tmp_path / "whole"))
    with pytest.raises(Interrupted):
        run_cell(cell, again(stop=Stopper(12)))
    assert load_cell(cell, context) is None
    assert len(list((context.out / "runs").iterdir())) == 1
    assert _told(run_cell(cell, again())) == _told(whole)


@pytest.mark.parametrize("name", ["variants/smoothed-twin/figure1", "paper/table5"])
def test_stored_cells_are_those_of_their_setting(context, monkeypatch, name):
    stored = json.loads((ROOT / "results" / f"{name}.json").read_text(encoding="utf-8"))
    declared = RESULTS[Path(name).name].cells(SETTINGS[stored["setting"]])
    for label, cell in stored["cells"].items():
        asked = json.loads(json.dumps(asdict(declared[label])))
        if "figure1" in name:  # its numbers of sentences and chains were given by options
            prints = {role: model["fingerprint"] for role, model in cell["models"].items()}
            monkeypatch.setattr(context, "fingerprint", prints.__getitem__)
            kinds = {one.name for one in fields(declared[label])}
            same = {name: value for name, value in cell["asked"].items() if name in kinds}
            key = replace(declared[label], **same).key(context, cell["precision"])
            assert key == cell["key"]
        else:
            assert {name: asked[name] for name in cell["asked"]} == cell["asked"]


@pytest.mark.parametrize("setting", SETTINGS.values(), ids=lambda setting: setting.name)
def test_every_result_is_declared_for_every_setting(setting):
    for result in RESULTS.values():
        cells = result.cells(setting)
        entries = result.entries(setting)
        assert cells
        assert entries
        rated = {entry.cell for entry in entries if entry.cell.startswith("ratings")}
        large = {entry.cell for entry in entries if entry.cell.startswith("large")}
        assert {entry.cell for entry in entries} - rated - large <= set(cells)
        for cell in cells.values():
            if isinstance(cell, TextChains | Translations):
                assert cell.chains >= (3 if result.name == "table5" else 5)
                cell.schedule()


HYPOTHESES = ["the cat sat on the mat .", "a dog", "", "he went to the old house by the sea ."]
REFERENCES = ["the cat sat on a mat .", "a dog ran away", "no", "she went to an old house there ."]


@pytest.mark.parametrize("count", [1, 2, 4])
def test_bleu_is_sacrebleus_own(count):
    texts, references = HYPOTHESES[:count], REFERENCES[:count]
    score = BLEU(force=True).corpus_score(texts, [references])
    assert corpus_bleu(texts, references) == pytest.approx(score.score, abs=1e-9)
    counts = np.array(sentence_counts([texts], references))
    assert float(_bleu(counts.sum(0))) == pytest.approx(score.score)
    assert (np.array(sentence_counts([texts, texts], references)) == 2 * counts).all()
    assert "tok:13a" in signature()


def _traces(epochs=4, chains=6):
    generator = np.random.default_rng(0)
    steps = generator.integers(4, 8, (epochs, chains))
    made = {name: generator.integers(0, 4, (epochs, chains)) for name in
            ("accepted", "novel", "proposed_novel", "irreversible")}  # fmt: skip
    raw = generator.normal(size=(epochs, chains))
    return {"steps": steps, "energy_raw": raw, "energy_norm": 2 * raw + 1, **made}


def test_chains_of_one_source_belong_to_different_replicates():
    traces = _traces()
    found = by_replicate(traces, 3)
    # Sources stand one after the other: chains 0 and 3 are the first replicate.
    assert (found["novel"][:, 0] == traces["novel"][:, 0] + traces["novel"][:, 3]).all()
    assert np.allclose(found["energy_raw"][:, 2], traces["energy_raw"][:, [2, 5]].mean(1))
    rates = averages(found, burn_in=1)
    part = found["accepted"][1:].sum(0) / found["steps"][1:].sum(0)
    assert rates["acceptance"]["value"] == pytest.approx(part.mean())
    assert rates["acceptance"]["n"] == 3


def test_a_paired_difference_forgets_how_hard_sentences_are():
    random = np.random.default_rng(1)
    hard = random.integers(1, 20, 200)
    total = np.full((200, 4), 20)
    ends = np.full((200, 2), 20)

    def rows(matched):
        return np.concatenate([np.repeat(matched[:, None], 4, 1), total, ends], 1).tolist()

    gap, error = paired_difference(rows(hard), rows(hard + 1))
    assert gap == pytest.approx(5.0)
    # One more match everywhere: sure, although sentences differ much among themselves.
    assert error < 1e-9
    gap, error = paired_difference(rows(hard), rows(random.permutation(hard)))
    # A difference of means has the error of two samples.
    assert error == pytest.approx(5 * hard.std() * (2 / 200) ** 0.5, rel=0.15)
    assert abs(gap) < 1e-9
