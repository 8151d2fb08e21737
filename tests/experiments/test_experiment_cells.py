"""Cells: done once, keyed by what decides them, stopped and continued to the same numbers."""

import json
from dataclasses import asdict, fields, replace
from pathlib import Path

import numpy as np
import pytest
from experiments.lib.cell import load_cell, run_cell
from experiments.lib.chains import TextChains, Translations
from experiments.lib.deterministic import (
    DeterministicTranslations,
)
from experiments.lib.settings import SETTINGS
from experiments.paper.registry import RESULTS

from maskov.errors import Interrupted

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
    asked = [0]

    def stop():
        asked[0] += 1
        return asked[0] > 12

    with pytest.raises(Interrupted):
        run_cell(cell, again(stop=stop))
    assert load_cell(cell, context) is None
    assert len(list((context.out / "runs").iterdir())) == 1
    assert _told(run_cell(cell, again())) == _told(whole)


def test_averages_are_those_of_the_run(context, again):
    import maskov

    cell = run_cell(TEXT, again(keep_runs=True))
    run = maskov.Run.open(context.out / "runs" / cell["key"])
    traces = run.traces
    rate = traces["novel"][2:].sum(0) / traces["steps"][2:].sum(0)
    assert cell["values"]["novel"]["value"] == pytest.approx(rate.mean())
    assert cell["values"]["novel"]["standard_error"] == pytest.approx(rate.std(ddof=1) / np.sqrt(5))
    means = traces["energy_raw"][2:].mean(0)
    assert cell["values"]["energy_raw"]["value"] == pytest.approx(means.mean())
    error = means.std(ddof=1) / np.sqrt(5)
    assert cell["values"]["energy_raw"]["standard_error"] == pytest.approx(error)
    assert len(cell["epochs"]["energy_norm"]["value"]) == 5
    assert cell["texts"] == [one.text for one in run.samples]
    # Delayed acceptance accepts less often than the algorithm whose rates are reported.
    assert TEXT.kernel(context).delayed.nearest == LINES.kernel(context).delayed.nearest == ()
    assert replace(LINES, nearest=2).kernel(context).delayed.nearest == (2,)


@pytest.mark.parametrize(
    "cell",
    [replace(LINES, top_p=1.0), DeterministicTranslations("greedy", "words.deen", 4)],
    ids=lambda cell: cell.kind,
)
def test_without_a_limit_sources_that_are_too_long_count_as_empty(cell, context):
    for language in ("de", "en"):
        lines = ["red blue", " ".join(["green"] * 12), "white red", "blue"]
        (context.data / f"words.deen.{language}").write_text("".join(f"{x}\n" for x in lines))
    found = run_cell(cell, context)
    assert (found["sentences"], found["left_out"]) == (4, 1)
    assert found["texts"][1] == ""
    counts = found["sentence_counts"]
    assert len(counts) == 4
    # No n-gram of the translation, but all words of the reference, for each chain.
    assert counts[1][:9] == [0] * 9
    assert counts[1][9] == 12 * (5 if cell.kind == "translation" else 1)


@pytest.mark.parametrize("name", ["variants/smoothed-twin/figure1", "paper/table5"])
def test_stored_cells_are_those_of_their_setting(context, monkeypatch, name):
    """What is asked for today has the settings, and with default values the key, of the stored."""
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
