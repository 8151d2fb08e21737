"""A prefix and removed smoothing are part of a model: runs remember them, commands take them."""

from pathlib import Path

import pytest

import maskov
from json_files import edited
from maskov import Metropolis, Raw, RunError, Schedule, Site, Span, Workers
from maskov.errors import Interrupted
from maskov.ui.report import build as build_report, to_markdown
from odd_workers import files
from stopped_runs import Stopper
from tiny_models import build, texts_for

TEXT, SECOND, PREFIX, *_ = texts_for("bert")
# What is said of a run with it, and another value.
OPTIONS = {
    "prefix": (PREFIX, PREFIX, TEXT),
    "remove_smoothing": (0.1, "label smoothing removed", 0.2),
}
OFF = {"prefix": "", "remove_smoothing": 0.0}


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    return build("bert", tmp_path_factory.mktemp("model"))


def _run(folder: Path, out: Path, options: dict, move=None, **settings) -> maskov.Run:
    return maskov.sample(
        maskov.load(folder, "cpu", **options), Metropolis(Raw(), move or Site()), Schedule(4),
        chains=4, length=4, resident=2, thin=1, out=out, **settings,
    )  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("move", [Site(), Span()], ids=["site", "span"])
@pytest.mark.parametrize("name", OPTIONS)
def test_resumed_and_shared_runs_load_it_again(name, move, folder, tmp_path):
    value, said, _ = OPTIONS[name]
    whole = _run(folder, tmp_path / "whole", {name: value}, move)
    assert getattr(whole.manifest.config.model.source, name) == value
    with pytest.raises(Interrupted):
        _run(folder, tmp_path / "run", {name: value}, move, checkpoint_every=0, stop=Stopper(5))
    maskov.resume(tmp_path / "run", device="cpu")
    assert files(tmp_path / "run") == files(tmp_path / "whole")
    bare = _run(folder, tmp_path / "bare", {}, move)
    assert [one.energy_raw for one in bare.samples] != [one.energy_raw for one in whole.samples]
    assert ("|remove-smoothing:0.1|" in whole.signature) == (name == "remove_smoothing")
    assert "smoothing" not in bare.signature
    assert said in to_markdown(build_report([whole]))
    assert said not in to_markdown(build_report([bare]))
    if isinstance(move, Site):
        _run(folder, tmp_path / "there", {name: value}, move, workers=Workers(2))
        assert files(tmp_path / "there") == files(tmp_path / "whole")


@pytest.mark.parametrize("name", OPTIONS)
def test_a_run_is_not_continued_under_another_value(name, folder, tmp_path):
    value, _, other = OPTIONS[name]
    with pytest.raises(Interrupted):
        _run(folder, tmp_path / "run", {name: value}, checkpoint_every=0, stop=Stopper(5))
    for wrong in (OFF[name], other):
        with pytest.raises(RunError, match="is not the one this run began with"):
            maskov.resume(tmp_path / "run", maskov.load(folder, "cpu", **{name: wrong}))
    # Nor after its manifest was changed.
    with edited(tmp_path / "run" / "manifest.json") as manifest:
        manifest["config"]["model"]["source"][name] = other
    with pytest.raises(RunError):
        maskov.resume(tmp_path / "run", device="cpu")
