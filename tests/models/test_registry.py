"""Models that come with the package: found by name, described, and of the right kind."""

import json

import pytest

import maskov
import tiny_models
from maskov import shipped

ABOUT = {
    "summary": "a small model",
    "parameters": 12_000,
    "bytes": 24_000_000,
    "training_data": "Wikipedia",
    "licence": "CC BY-SA 4.0",
    "quality": {"held-out single-mask log-loss": 2, "accuracy": 0.5},
}


def describe(folder, **changes):
    about = ABOUT | {"name": folder.name} | changes
    (folder / "about.json").write_text(json.dumps(about))


@pytest.fixture(scope="module")
def pretrained(tmp_path_factory):
    """A folder with a masked model and a judge, as the package ships them."""
    root = tmp_path_factory.mktemp("pretrained")
    describe(tiny_models.build("bert", root / "wiki-small"), kind="masked", default=True)
    judge = tiny_models.build_gpt2(root / "wiki-judge", tiny_models.gpt2())
    describe(judge, kind="causal", default=True)
    (root / "__pycache__").mkdir()
    return root


@pytest.fixture
def root(pretrained, monkeypatch):
    monkeypatch.setattr(shipped, "ROOT", pretrained)
    monkeypatch.setenv("MASKOV_MODELS", str(pretrained / "none"))
    monkeypatch.setattr(shipped, "installed", list)
    return pretrained


@pytest.fixture
def nothing(tmp_path, monkeypatch):
    monkeypatch.setattr(shipped, "ROOT", tmp_path / "pretrained")
    monkeypatch.setenv("MASKOV_MODELS", str(tmp_path / "none"))
    monkeypatch.setattr(shipped, "installed", list)
    return tmp_path / "pretrained"


def test_shipped_models_are_described(root):
    judge, small = shipped.shipped()
    assert (judge.name, judge.kind) == ("wiki-judge", "causal")
    assert (small.name, small.kind, small.default) == ("wiki-small", "masked", True)
    assert small.quality == {"held-out single-mask log-loss": 2.0, "accuracy": 0.5}
    assert shipped.folder_of("wiki-small") == root / "wiki-small"
    assert (shipped.default_model(), shipped.default_judge()) == ("wiki-small", "wiki-judge")
    # No path is a name.
    for name in ("none", "", ".", "../pretrained/wiki-small", str(root / "wiki-small")):
        assert shipped.folder_of(name) is None
        assert shipped.source_of(name, "masked") == name


def test_the_default_is_the_stand_in_unless_a_shipped_model_is_marked(nothing):
    assert shipped.shipped() == []
    assert shipped.folder_of("wiki-small") is None
    (nothing / "wiki-other").mkdir(parents=True)
    describe(nothing / "wiki-other", kind="masked")
    assert [model.name for model in shipped.shipped()] == ["wiki-other"]
    assert (shipped.default_model(), shipped.default_judge()) == ("untrained", None)


def test_built_in_models_are_as_described():
    untrained, table = maskov.load("untrained", "cpu"), maskov.load("counterexample", "cpu")
    sizes = {
        untrained.name: sum(weight.numel() for weight in untrained.network.parameters()),
        table.name: table.scores.numel(),
    }
    assert {model.name: model.parameters for model in shipped.BUILT_IN} == sizes


def test_what_this_package_ships_is_whole(monkeypatch):
    monkeypatch.delenv("MASKOV_MODELS", raising=False)
    models = shipped.shipped()
    roots = (shipped.ROOT, shipped.REPOSITORY)
    folders = [folder for root in roots for folder in root.glob("[!_.]*") if folder.is_dir()]
    assert {model.name for model in models} == {folder.name for folder in folders}
    for folder in folders:
        for name in ("config.json", "model.safetensors", "README.md"):
            assert (folder / name).is_file()
    for kind in shipped.KINDS:
        assert sum(model.default for model in models if model.kind == kind) <= 1


def test_the_command_lists_them(root, call):
    code, out, err = call("models", "--json")
    assert (code, err) == (0, "")
    lines = [json.loads(line) for line in out.splitlines()]
    found = {line["name"]: line for line in lines}
    assert list(found) == ["wiki-judge", "wiki-small", "untrained", "counterexample"]
    assert [line["default"] for line in lines] == [True, True, False, False]
    more = {"name": "wiki-small", "kind": "masked", "default": True, "pairs": []}
    assert found["wiki-small"] == ABOUT | more
    out = call("models")[1]
    assert "wiki-small (default)" in out
    assert "22.9 MiB" in out
