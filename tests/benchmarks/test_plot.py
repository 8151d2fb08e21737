"""The pictures: every file of results becomes an SVG and a PNG that show its rows."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path

import pytest

from maskov.benchmarks import Options, run
from maskov.benchmarks.scaling import scale
from maskov.benchmarks.worker import work

pytest.importorskip("matplotlib", reason="matplotlib is not installed (the extra bench)")

SCRIPT = Path(__file__).parents[2] / "bench" / "plot.py"
OPTIONS = Options(
    model="untrained", device="cpu", chains=2, length=(3, 3), epochs=2, burn_in=1, seconds=0.02
)


@pytest.fixture(scope="module")
def plot():
    spec = importlib.util.spec_from_file_location("plot", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """Results of each kind, two of them over the same quantity."""
    folder = tmp_path_factory.mktemp("results")
    found = {
        "side": run(OPTIONS, work=work),
        "few": list(scale(OPTIONS, "chains", ["1", "2"], work=work))[-1],
        "more": list(scale(OPTIONS, "chains", ["2", "4"], work=work))[-1],
        "long": list(scale(OPTIONS, "length", ["2", "4"], work=work))[-1],
    }
    for name, content in found.items():
        (folder / f"{name}.json").write_text(json.dumps(content))
    return [folder / f"{name}.json" for name in found]


def test_each_picture_is_drawn_twice_and_shows_its_words(plot, files, tmp_path):
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


def test_the_same_results_give_the_same_bytes(plot, files, tmp_path):
    first, again = (plot.draw(files[:1], tmp_path / name) for name in ("one", "two"))
    assert [path.read_bytes() for path in first] == [path.read_bytes() for path in again]


def test_a_file_of_something_else_is_refused(plot, tmp_path, monkeypatch):
    (tmp_path / "other.json").write_text('{"kind": "list"}')
    words = ["plot", str(tmp_path / "other.json"), "--out", str(tmp_path / "pictures")]
    monkeypatch.setattr("sys.argv", words)
    with pytest.raises(SystemExit) as ended:
        plot.main()
    assert "not a benchmark's file" in str(ended.value.code)
