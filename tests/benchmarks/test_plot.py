"""The pictures: every file of results becomes an SVG and a PNG that show its rows."""

from __future__ import annotations

import json

import pytest

from maskov.benchmarks import Options, run
from maskov.benchmarks.scaling import measure_scaling
from maskov.benchmarks.worker import run_job

pytest.importorskip("matplotlib", reason="matplotlib is not installed (the extra bench)")
from maskov.benchmarks import plot

OPTIONS = Options(
    model="untrained", device="cpu", chains=2, length=(3, 3), epochs=2, burn_in=1, seconds=0.02
)


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """Results of each kind, two of them over the same quantity."""
    folder = tmp_path_factory.mktemp("results")
    found = {
        "side": run(OPTIONS, run_job=run_job),
        "few": list(measure_scaling(OPTIONS, "chains", ["1", "2"], run_job=run_job))[-1],
        "more": list(measure_scaling(OPTIONS, "chains", ["2", "4"], run_job=run_job))[-1],
        "long": list(measure_scaling(OPTIONS, "length", ["2", "4"], run_job=run_job))[-1],
    }
    for name, content in found.items():
        (folder / f"{name}.json").write_text(json.dumps(content))
    return [folder / f"{name}.json" for name in found]


@pytest.mark.slow
def test_each_picture_is_drawn_twice_and_shows_its_words(files, tmp_path):
    pictures = plot.draw(files, tmp_path / "pictures")
    stems = ["side-samplers", "side-scorers", "scaling-chains", "scaling-length"]
    assert [path.name for path in pictures] == [f"{s}.{k}" for s in stems for k in ("svg", "png")]
    for picture in pictures:
        content = picture.read_bytes()
        assert len(content) > 5000
        if picture.suffix == ".png":
            assert content.startswith(b"\x89PNG")
    bars, curves = (pictures[index].read_text() for index in (0, 4))
    for word in ("algorithm 1", "batched copies", "maskov", "novel moves per second"):
        assert word in bars
    for word in ("chains", "masked passes per second", "share of the matrix-product ceiling"):
        assert word in curves


@pytest.mark.slow
def test_the_same_results_give_the_same_bytes(files, tmp_path):
    first, again = (plot.draw(files[:1], tmp_path / name) for name in ("one", "two"))
    assert [path.read_bytes() for path in first] == [path.read_bytes() for path in again]


def test_a_file_of_something_else_is_refused(tmp_path):
    (tmp_path / "other.json").write_text('{"kind": "list"}')
    with pytest.raises(SystemExit) as ended:
        plot.main([str(tmp_path / "other.json"), "--out", str(tmp_path / "pictures")])
    assert "not a benchmark file" in str(ended.value.code)
