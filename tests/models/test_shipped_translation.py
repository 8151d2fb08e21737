"""The translation models of the repository: found by pair, small enough, and they translate."""

import json

import pytest

import maskov
from maskov import shipped

MOST = 48 * 2**20  # bytes of weights

pytestmark = pytest.mark.skipif(
    not (shipped.REPOSITORY / "deroen-small").is_dir(), reason="not in a clone of the repository"
)


@pytest.fixture(autouse=True)
def _own_models(monkeypatch):
    monkeypatch.delenv("MASKOV_MODELS", raising=False)


@pytest.mark.parametrize(
    ("kind", "name"), [("translation", "deroen-small"), ("autoregressive", "deroen-twin")]
)
@pytest.mark.parametrize("pair", ["de-en", "ro-en"])
def test_found_by_pair_and_small_enough(kind, name, pair):
    assert shipped.model_for(pair, kind) == name
    folder = shipped.folder_of(name)
    about = json.loads((folder / "about.json").read_text())
    assert about["bytes"] == (folder / "model.safetensors").stat().st_size <= MOST
    card = (folder / "README.md").read_text()
    # The card and the description tell of the same numbers.
    assert all(f"{value:.1f}" in card for value in about["quality"].values())


@pytest.mark.parametrize(
    ("pair", "source", "text"),
    [
        (
            "de-en",
            "Guten Morgen.\n\nDas ist eine gute Frage.",
            "Good morning.\n\nThat is a good question.",
        ),
        ("ro-en", "Câinele doarme.", "The dog is sleeping."),
    ],
)
@pytest.mark.parametrize("method", ["mask-predict --length-beam 5", "ar"])
def test_they_translate(tmp_path, call, pair, source, text, method):
    file = tmp_path / "lines"
    file.write_text(f"{source}\n\n", encoding="utf-8")
    words = ["--pair", pair, "--quiet", "--method", *method.split()]
    assert call("translate", file, *words)[:2] == (0, f"{text}\n\n")


def test_the_sampler_agrees_that_a_right_translation_is_likelier():
    model = maskov.load("deroen-small")
    given = model.given(["Guten Morgen."] * 3)
    _, (good, fluent, other) = maskov.translation.energies_of(
        given, ["Good morning.", "I am going.", "Good evening."]
    )
    assert good < other
    assert good < fluent
