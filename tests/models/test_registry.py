"""Models of the package and the repository: found, described, small, and as good as they say."""

import json
import math

import pytest
import torch
from transformers import AutoModelForSequenceClassification

import maskov
import tiny_models
from maskov import shipped
from maskov.energies import parse_energy
from maskov.energies.networks import Loading
from maskov.types import Sequences

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


REAL = [
    "the film was released in 2005 and received positive reviews from critics.",
    "he was born in london and moved to the united states with his family.",
    "the river flows south through the town before it reaches the sea.",
]
# The same words in another order: anything that has learned English tells them apart.
SHUFFLED = [" ".join(sorted(line.rstrip(".").split())) + " ." for line in REAL]


@pytest.fixture(scope="module")
def model():
    return maskov.load(device="cpu")


@pytest.mark.parametrize(
    ("name", "kind", "mebibytes"),
    [("wiki-any", "masked", 24), ("wiki-judge", "causal", 24), ("wiki-genre", "classifier", 4)],
)
def test_a_shipped_model_is_small_and_as_described(name, kind, mebibytes):
    folder = shipped.ROOT / name
    assert sum(file.stat().st_size for file in folder.iterdir()) <= mebibytes * 2**20
    about = next(one for one in shipped.shipped() if one.name == name)
    weights = (folder / "model.safetensors").stat().st_size
    assert (about.kind, about.bytes) == (kind, weights)


@pytest.mark.parametrize(
    ("energy", "apart"), [("raw", 0), ("norm", 0), ("autoregressive(wiki-judge)", 1)]
)
def test_sentences_are_more_probable_than_their_words_in_another_order(model, energy, apart):
    real, shuffled = (maskov.score(model, lines, energy) for lines in (REAL, SHUFFLED))
    for one, other in zip(real, shuffled, strict=True):
        assert one.energy / len(one.tokens) + apart < other.energy / len(other.tokens)


NEWS = "police said on tuesday that two people were arrested after the explosion."
ARTICLE = "the species was first described in 1758 and is native to southern europe."


def probability(model, label, text):
    energy = parse_energy(
        f"classifier(wiki-genre, label={label})", loading=Loading(allow_download=False)
    )
    ids = torch.tensor([model.encode(text)])
    return math.exp(-float(energy(model, Sequences(ids, torch.tensor([ids.shape[1]])))))


def test_the_classifier_has_the_labels_and_parameters_it_is_said_to_have():
    about = next(one for one in shipped.shipped() if one.name == "wiki-genre")
    network = AutoModelForSequenceClassification.from_pretrained(shipped.ROOT / "wiki-genre")
    assert sum(weight.numel() for weight in network.parameters()) == about.parameters
    assert network.config.id2label == {0: "encyclopedia", 1: "news"}


def test_news_and_articles_are_told_apart(model):
    assert probability(model, "news", NEWS) > 0.9
    assert probability(model, "encyclopedia", ARTICLE) > 0.9
    both = probability(model, "news", NEWS) + probability(model, "encyclopedia", NEWS)
    assert both == pytest.approx(1, abs=1e-6)


def test_models_of_other_kinds_are_refused():
    with pytest.raises(maskov.ModelError, match=r"'wiki-any' is a masked .* not a classifier"):
        parse_energy("classifier(wiki-any, label=news)")
    with pytest.raises(maskov.ModelError, match=r"'wiki-genre' is a classifier .* not a causal"):
        parse_energy("autoregressive(wiki-genre)")
    with pytest.raises(maskov.ModelError, match=r"'wiki-genre' is a classifier .* not a masked"):
        maskov.load("wiki-genre", "cpu")


MOST = 48 * 2**20  # bytes of weights

in_a_clone = pytest.mark.skipif(
    not (shipped.REPOSITORY / "deroen-small").is_dir(), reason="not in a clone of the repository"
)


@pytest.fixture(autouse=True)
def _own_models(monkeypatch):
    monkeypatch.delenv("MASKOV_MODELS", raising=False)


@in_a_clone
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


@in_a_clone
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


@in_a_clone
def test_the_sampler_agrees_that_a_right_translation_is_likelier():
    model = maskov.load("deroen-small")
    given = model.given(["Guten Morgen."] * 3)
    _, (good, fluent, other) = maskov.translation.energies_of(
        given, ["Good morning.", "I am going.", "Good evening."]
    )
    assert good < other
    assert good < fluent
