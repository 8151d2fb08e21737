"""Cells in several processes: each is done once, and comes to what one process makes of it."""

import pytest
from experiments.lib import jobs
from experiments.lib.cell import load_cell, run_cell
from experiments.lib.chains import TextChains

CELLS = [
    TextChains("raw", chains=5, epochs=3, burn_in=1, length=(4, 6), seed=seed) for seed in range(3)
]
NAMED = {cell: str(cell.seed) for cell in CELLS}


@pytest.mark.slow
def test_processes_share_cells_and_change_nothing(context, again, tmp_path):
    alone = [run_cell(cell, again(out=tmp_path / "alone")) for cell in CELLS]
    jobs.run_in_processes(NAMED, context, 2)
    for cell, expected in zip(CELLS, alone, strict=True):
        found = load_cell(cell, context)
        assert found is not None
        for part in ("signature", "values", "epochs", "texts"):
            assert found[part] == expected[part]
    assert not (context.out / "locks").exists()


@pytest.mark.parametrize("stop", [True, False], ids=["stopped", "left alone"])
def test_results_are_put_together_from_what_there_is(context, again, monkeypatch, stop):
    from experiments.paper.driver import reproduce
    from experiments.paper.registry import RESULTS

    from maskov.errors import Interrupted

    first, *_ = RESULTS["figure1"].cells(context.setting).values()

    def only_first(cells, its, count):
        assert first in cells
        assert count == 3
        run_cell(first, again())

    monkeypatch.setattr("experiments.paper.driver.run_in_processes", only_first)
    asked = again(stop=lambda: stop)
    if stop:
        with pytest.raises(Interrupted):
            reproduce([RESULTS["figure1"]], asked, print, jobs=3)
    else:
        (whole,) = reproduce([RESULTS["figure1"]], asked, print, jobs=3)
        assert whole["complete"]
    assert (context.out / "figure1.json").is_file()
