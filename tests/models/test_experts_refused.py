"""Energies by name: read back as they were written, and refused in one sentence."""

import re
import shutil

import pytest
import torch
import transformers as hf
from safetensors.torch import load_file, save_file
from tokenizers import Tokenizer
from tokenizers.models import WordLevel

import maskov
import tiny_models
from maskov import InputError, Metropolis, ModelError, Norm, Raw, Schedule, Site, parse_energy
from maskov.energies import Energy, TextEnergy
from maskov.energies.counting import Avoids, Contains, Length, Matches
from maskov.energies.networks import Autoregressive, Classifier, Similar
from maskov.energies.other_models import OtherModel
from maskov.moves import Resize
from small import random_table, tiny_bert

WORDS = "red green blue"
MODEL = tiny_bert(WORDS)


@pytest.fixture(scope="module")
def classifier_folder(tmp_path_factory):
    return tiny_models.build_classifier(tmp_path_factory.mktemp("classifier"), WORDS)


@pytest.fixture
def folder(classifier_folder, tmp_path):
    """A classifier that a test may spoil."""
    return shutil.copytree(classifier_folder, tmp_path / "classifier")


def refusal(energy, texts=("red blue",), model=MODEL, start=True, kind=(InputError, ModelError)):
    """Return the one sentence with which a run of an energy is refused."""
    inputs = {"texts": list(texts)} if start else {"length": 3}
    energy = parse_energy(energy) if isinstance(energy, str) else energy
    kernel = Metropolis(Raw() + energy, Site())
    with pytest.raises(kind) as caught:
        maskov.sample(model, kernel, Schedule(epochs=1), chains=2, **inputs)
    sentence = str(caught.value)
    assert sentence.isprintable()
    assert len(sentence) < 500
    return sentence


PATTERNS = (
    r"\d+\.\d+", r"^it's \\ (.*)$", r'say "no"', r"""both ' and " and \ too""", r"""'"'"'""",
    "ends in \\\\", "a+b*c, (d=e)", "two\nlines", "raw", "12", "None", " ",
)  # fmt: skip


@pytest.mark.parametrize("text", PATTERNS)
def test_any_text_in_quotes_is_read_back(text):
    part = Raw() + 0.5 * Matches(text) + 2 * Contains(f"x{text}", "don't") + Avoids(f"{text}y")
    again = parse_energy(str(part))
    assert str(again) == str(part)
    (_, _), (_, matches), (_, contains), (_, avoids) = again.parts
    assert matches.pattern == text
    assert contains.words == (f"x{text}", "don't")
    assert avoids.words == (f"{text}y",)
    named = Classifier(f"some/{text}", label=f"very {text}")
    (_, same), _ = (parse_energy(str(named)) + Raw()).parts
    assert (same.name, same.label) == (named.name, named.label)


# A text, and the name of the energy if it is another one.
NAMES = [
    ("hamming", None), ("hamming(words)", "hamming(unit=words)"), ("edit(unit=tokens)", "edit"),
    ('contains("don\'t", river)', "contains(\"don't\", 'river')"),
    ("length(12)", None), ("length(12.5, sd=1)", None), ("repeats", None),
    ("repeats(within=2)", None), ("classifier(a/b, label=positive)", None),
    ("classifier(a/b, label=1)", None), ("classifier(a/b, label='1')", None),
    ("classifier(a/b, label=True)", "classifier(a/b, label='True')"),
    ("classifier('a, b', label='very good')", None), ("similar(a/b-c.d)", None),
    ("norm(a/b, groups=4)", None), ("raw('my model')", None),
]  # fmt: skip


@pytest.mark.parametrize(("text", "name"), NAMES)
def test_names(text, name):
    for weighted in (text, f"raw + 3 * {text}", f"{text}+{text}"):
        energy = parse_energy(weighted)
        assert str(energy.parts[-1][1]) == (name or text)
        assert str(parse_energy(str(energy))) == str(energy)


CAUSAL = Autoregressive("some/model")
# Sums, and a text of each if it is not their name.
SUMS = [
    (Raw(), "raw"), (Norm(), None), (CAUSAL, "autoregressive(some/model)"),
    (Raw() + CAUSAL, "raw+autoregressive"), (Raw() + 0.5 * Norm(), " raw + 0.5 * norm "),
    (0.5 * Raw() + 2 * Norm() + CAUSAL, None), (2 * Norm() + -1 * Raw(), "2*norm+-1*raw"),
    (0.25 * (Raw() + 2 * Norm()), None), (1e-7 * CAUSAL + Raw(), None), (1e20 * Raw(), None),
    (Raw() * (1 / 3) + 0.123456789 * Norm(), None), (Autoregressive("a+b/c.d-e_f") + Raw(), None),
    (Raw() + 0.5 * Autoregressive("folder(1)/model"), None),
    (Raw() + Autoregressive("my models/gpt 2"), None),
]  # fmt: skip


def parts_of(energy):
    """Return weights and names of the parts, which for built-in energies say everything."""
    return [(weight, str(part)) for weight, part in getattr(energy, "parts", ((1.0, energy),))]


@pytest.mark.parametrize(("energy", "text"), SUMS, ids=str)
def test_a_sum_is_read_back_from_its_name(energy, text):
    for written in (str(energy), text or str(energy)):
        again = parse_energy(written, causal="some/model")
        assert parts_of(again) == parts_of(energy)
        assert str(again) == str(energy)


MALFORMED = (
    "", " ", "energy", "RAW", "rawnorm", "(raw)", "raw+", "+raw", "raw++norm", "raw-norm", "raw*2",
    "2*", "*raw", "2*3*raw", "2**raw", "x*raw", "nan*raw", "inf*raw", "raw(", "raw)", "raw(1)",
    "norm()", "autoregressive", "autoregressive()", "autoregressive(a",
)  # fmt: skip
BACKTRACKING = (
    r"(?x:( \w + \s ? ) +  ~)", r"(a)\1", "(?=a)", "(?<!a)b", "a++", "((.{99}){99}){99}", "("
)  # fmt: skip
REFUSED = [
    *((text, "") for text in MALFORMED),
    *((f"matches('{pattern}')", "is not a regular expression") for pattern in BACKTRACKING),
    ("contains()", "takes words in quotes"), ("contains(3)", "takes words in quotes"),
    ("avoids(' ')", "takes words in quotes"), ("matches()", "'matches' does not take"),
    ("matches(3)", "takes a regular expression in quotes"),
    (f"matches('{'a' * 1001}')", "at most 1000 characters"),
    ("hamming(unit=letters)", "tokens or words, not in 'letters'"),
    ("edit(3, 4)", "'edit' does not take"), ("length(0)", "numbers above 0"),
    ("length(12, sd=0)", "numbers above 0"), ("length(many)", "numbers above 0"),
    ("length(True)", "numbers above 0"), ("repeats(within=0)", "within 1 word or more"),
    ("classifier(some/model)", "'classifier' does not take"),
    ("classifier()", "'classifier' does not take"), ("similar()", "'similar' does not take"),
    ("norm(a, b)", r"write norm, norm\(groups=4\) or norm\(MODEL\)"),
    ("norm(3)", r"write norm, norm\(groups=4\) or norm\(MODEL\)"),
    ("contains('red", "unknown energy"), ("contains('red') + ", "unknown energy"),
    ("3*contains('red'", "unknown energy"), ("+".join(["hamming"] * 65), "at most 64 terms"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "reason"), REFUSED)
def test_texts_that_name_no_energy(text, reason):
    # Where types are checked at each call, some are refused by that.
    with pytest.raises(InputError, match=f"{reason}|arguments that") as caught:
        parse_energy(text)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "pattern",
    [r"[[]*(\w+\s?)+~", ".?" * 40 + "~", ".*" * 12 + "~", "(a|aa)+~", "(a+)+~", "((a?b?)*c*)+~"],
)
def test_no_regular_expression_runs_for_ever(pattern):
    text = "the long words of this text follow each other and none of them is what it finds"
    energy = parse_energy(f"matches('{pattern}')")
    assert (energy.count(text), energy.count("a~"), energy.count("a" * 99)) == (1, 0, 1)


def _raises(error):
    def function(texts):
        raise error

    return function


class Own(Energy):
    """A custom energy that returns whatever it is told."""

    def __init__(self, returns):
        self.returns = returns

    def __call__(self, model, sequences):
        return self.returns(len(sequences.lengths))


@pytest.mark.parametrize(
    ("energy", "reason"),
    [
        (TextEnergy(_raises(ValueError("no such\nthing"))), r"failed \(ValueError: no such\)\."),
        (TextEnergy(_raises(OSError(5, "lost"))), "failed .*lost"),
        (TextEnergy(lambda texts: [float("nan")] * len(texts)), "is not a number"),
        (TextEnergy(lambda texts: [0.0]), "it returned 1 for 2"),
        (TextEnergy(lambda texts: None), r"failed \(TypeError"),
        (TextEnergy(lambda texts: ["much"] * len(texts)), r"failed \(ValueError"),
        (Own(lambda n: torch.full((n,), torch.nan, dtype=torch.float64)), "not a number"),
        (Own(lambda n: torch.zeros(n + 1, dtype=torch.float64)), "one number for each of 2 seq"),
        (Own(lambda n: [0.0] * n), "one number for each of 2 sequences, not list"),
        (Own(lambda n: 1 / 0), "failed .ZeroDivisionError"),
        (Own(lambda n: torch.full((n,), torch.inf, dtype=torch.float64)), "probability zero"),
    ],
)
def test_custom_energies_that_fail(energy, reason):
    sentence = refusal(energy)
    assert re.search(reason, sentence), sentence


def _damaged(folder):
    weights = load_file(folder / "model.safetensors")
    weights["classifier.bias"][:] = torch.nan
    save_file(weights, folder / "model.safetensors", {"format": "pt"})


def _set(**changes):
    return lambda folder: tiny_models.edit_config(folder, **changes)


def _built(*arguments, **options):
    def build(folder):
        shutil.rmtree(folder)
        tiny_models.build_classifier(folder, *arguments, **options)

    return build


def _masked(folder):
    shutil.rmtree(folder)
    tiny_models.build_masked(folder, WORDS)


# Without a token for unknown words, and without the words.
UNREADABLE = hf.PreTrainedTokenizerFast(
    tokenizer_object=Tokenizer(WordLevel({"x": 0, "[MASK]": 1}, unk_token="[GONE]"))
)


@pytest.mark.parametrize(
    ("spoil", "label", "text", "reason"),
    [
        (None, "happy", "red", "has no label 'happy'; it has negative, positive"),
        (None, 2, "red", "numbered from 0 to 1"),
        (None, 0, " ".join(["red"] * 23), "a text has 25 tokens; .* takes at most 24"),
        (_set(problem_type="multi_label_classification"), 0, "red", "choose one of several labels"),
        (_set(id2label={"0": "a", "5": "b"}), 0, "red", "labels of .* are damaged"),
        (_damaged, 0, "red", "not-a-number"),
        (_built(WORDS, ("score",)), 0, "red", "does not choose one of several labels"),
        (_built("", tokenizer=UNREADABLE), 0, "red", "tokenizer of .* cannot read a text"),
        (_masked, 0, "red", "classifier"),
    ],
)
def test_classifiers_that_cannot_be_used(folder, spoil, label, text, reason):
    if spoil is not None:
        spoil(folder)
    assert re.search(reason, refusal(Classifier(str(folder), label), [text]))


LONG_EXPERTS = {
    "classifier": lambda folder: Classifier(str(tiny_models.build_classifier(folder, WORDS)), 0),
    "similar": lambda folder: Similar(str(tiny_models.build_encoder(folder, WORDS))),
    "masked": lambda folder: OtherModel(Raw(), str(tiny_models.build_masked(folder, WORDS))),
    "causal": lambda folder: Autoregressive(
        str(tiny_models.build_gpt2(folder, tiny_models.word_tokenizer(WORDS)))
    ),
}


@pytest.mark.parametrize("weight", [1.0, -0.5])
@pytest.mark.parametrize("kind", LONG_EXPERTS)
def test_a_proposal_too_long_for_an_expert_is_rejected(kind, weight, tmp_path):
    """All of them read 24 tokens, some of which are the frame; the model that proposes reads 30."""
    most = 24 if kind == "causal" else 22
    expert = LONG_EXPERTS[kind](tmp_path / kind)
    # The longer the better: without the expert's limit chains would grow.
    kernel = Metropolis(Raw() + weight * expert + 5 * Length(30.0), Resize())
    options = {"schedule": Schedule(epochs=1), "chains": 2, "length_prior": "none"}
    texts = [" ".join(["red"] * (most - 1))]
    run = maskov.sample(MODEL, kernel, texts=texts, progress=False, **options)
    assert run.traces["lengths"].max() <= most
    assert run.traces["accepted"].sum() > 0
    assert all(len(one.ids) <= most for one in run.samples)
    with pytest.raises(InputError, match=r"tokens; .* takes at most"):
        maskov.sample(MODEL, kernel, texts=[" ".join(["red"] * 26)], **options)


# Products of two models whose tokens have other numbers, and some more, in the second.

PRODUCTS = ["red", "blue green red", "white white"]


@pytest.mark.parametrize("kind", [Raw(), Norm()], ids=["raw", "norm"])
def test_products_of_two_models(kind, tmp_path):
    tokens = {"first": "red green blue white", "second": "black white blue yellow green red"}
    where = {name: tiny_models.build_masked(tmp_path / name, one) for name, one in tokens.items()}
    first, second = (maskov.load(folder, "cpu") for folder in where.values())
    assert first.encode("red") != second.encode("red")
    energy = parse_energy(f"{kind} + 0.5*{kind}({where['second']})")
    sums, *alone = (
        torch.tensor([one.energy for one in maskov.score(model, PRODUCTS, target)])
        for model, target in ((first, energy), (first, kind), (second, kind))
    )
    torch.testing.assert_close(sums, alone[0] + 0.5 * alone[1], rtol=0, atol=1e-4)
    with pytest.raises(InputError, match="which lacks 'black', 'yellow'"):
        maskov.score(second, PRODUCTS, parse_energy(f"{kind}({where['first']})"))
    assert "have different tokens" in refusal(
        f"{kind}({where['first']})", ["a b c"], random_table()
    )
