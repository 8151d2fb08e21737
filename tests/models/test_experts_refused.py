"""Energies by name: read back as they were written, and refused in one sentence."""

import re
import shutil

import pytest
import torch
import transformers as hf

import maskov
import tiny_models
from maskov import InputError, Metropolis, ModelError, Norm, Raw, Schedule, Site, parse_energy
from maskov.energies import Energy, TextEnergy
from maskov.energies.base import evaluated
from maskov.energies.counting import Avoids, Contains, Length, Matches
from maskov.energies.networks import Autoregressive, Classifier, Similar
from maskov.energies.other_models import OtherModel
from maskov.moves import Resize
from maskov.types import Sequences
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


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("hamming", "hamming"),
        ("hamming(words)", "hamming(unit=words)"),
        ("edit(unit=tokens)", "edit"),
        ('contains("don\'t", river)', "contains(\"don't\", 'river')"),
        ("length(12)", "length(12)"),
        ("length(12.5, sd=1)", "length(12.5, sd=1)"),
        ("repeats", "repeats"),
        ("repeats(within=2)", "repeats(within=2)"),
        ("classifier(a/b, label=positive)", "classifier(a/b, label=positive)"),
        ("classifier(a/b, label=1)", "classifier(a/b, label=1)"),
        ("classifier(a/b, label='1')", "classifier(a/b, label='1')"),
        ("classifier(a/b, label=True)", "classifier(a/b, label='True')"),
        ("classifier('a, b', label='very good')", "classifier('a, b', label='very good')"),
        ("similar(a/b-c.d)", "similar(a/b-c.d)"),
        ("norm(a/b, groups=4)", "norm(a/b, groups=4)"),
        ("raw('my model')", "raw('my model')"),
    ],
)
def test_names(text, name):
    for weighted in (text, f"raw + 3 * {text}", f"{text}+{text}"):
        energy = parse_energy(weighted)
        assert str(energy.parts[-1][1]) == name
        assert str(parse_energy(str(energy))) == str(energy)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("contains()", "takes words in quotes"),
        ("contains(3)", "takes words in quotes"),
        ("avoids(' ')", "takes words in quotes"),
        ("matches()", "arguments that 'matches' does not take"),
        ("matches(3)", "takes a regular expression in quotes"),
        ("matches('(')", "is not a regular expression"),
        (f"matches('{'a' * 1001}')", "at most 1000 characters"),
        ("hamming(unit=letters)", "tokens or words, not in 'letters'"),
        ("edit(3, 4)", "arguments that 'edit' does not take"),
        ("length(0)", "numbers above 0"),
        ("length(12, sd=0)", "numbers above 0"),
        ("length(many)", "numbers above 0"),
        ("length(True)", "numbers above 0"),
        ("repeats(within=0)", "within 1 word or more"),
        ("classifier(some/model)", "arguments that 'classifier' does not take"),
        ("classifier()", "arguments that 'classifier' does not take"),
        ("similar()", "arguments that 'similar' does not take"),
        ("norm(a, b)", r"write norm, norm\(groups=4\) or norm\(MODEL\)"),
        ("norm(3)", r"write norm, norm\(groups=4\) or norm\(MODEL\)"),
        ("contains('red", "unknown energy"),
        ("contains('red') + ", "unknown energy"),
        ("3*contains('red'", "unknown energy"),
    ],
)
def test_arguments_that_are_none(text, reason):
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


@pytest.mark.parametrize(
    "pattern",
    [r"(?x:( \w + \s ? ) +  ~)", r"(a)\1", "(?=a)", "(?<!a)b", "a++", "((.{99}){99}){99}"],
)
def test_regular_expressions_that_need_backtracking_are_refused(pattern):
    with pytest.raises(InputError, match="is not a regular expression of RE2") as caught:
        parse_energy(f"matches('{pattern}')")
    assert "\n" not in str(caught.value)


def test_regular_expressions_read_any_text():
    pattern = r"^the (big|small) [a|b]+\(\|?.*\d+(\.\d+)?\.$"
    assert parse_energy(f"matches('{pattern}')").pattern == pattern
    assert Matches("ö$").count("schön, wie ö") == 0
    assert Matches("^.$").count("ö") == 0
    assert Matches("b").count("a\ud800 b") == 0
    with pytest.raises(InputError, match="is not a regular expression"):
        Matches("\ud800")


def _raises(error):
    def function(texts):
        raise error

    return function


@pytest.mark.parametrize(
    ("function", "reason"),
    [
        (_raises(ValueError("no such\nthing")), r"failed \(ValueError: no such\)\."),
        (_raises(RuntimeError("broken")), r"failed \(RuntimeError: broken\)\."),
        (_raises(KeyError()), r"failed \(KeyError\)\."),
        (_raises(OSError(5, "lost")), "failed .*lost"),
        (lambda texts: [float("nan")] * len(texts), "is not a number"),
        (lambda texts: [0.0], "it returned 1 for 2"),
        (lambda texts: [0.0] * 5, "it returned 5 for 2"),
        (lambda texts: None, r"failed \(TypeError"),
        (lambda texts: ["much"] * len(texts), r"failed \(ValueError"),
        (lambda: None, r"failed \(TypeError"),
    ],
)
def test_functions_that_fail(function, reason):
    sentence = refusal(TextEnergy(function))
    assert re.search(reason, sentence), sentence


class Own(Energy):
    """An energy of one's own that returns whatever it is told."""

    def __init__(self, returns):
        self.returns = returns

    def __call__(self, model, sequences):
        return self.returns(len(sequences.lengths))


@pytest.mark.parametrize(
    ("returns", "reason"),
    [
        (lambda n: torch.full((n,), torch.nan, dtype=torch.float64), "not a number"),
        (lambda n: torch.zeros(n + 1, dtype=torch.float64), "one number for each of 2 sequences"),
        (lambda n: torch.zeros(n, 1), "one number for each of 2 sequences"),
        (lambda n: [0.0] * n, "one number for each of 2 sequences, not list"),
        (lambda n: 1 / 0, "failed .ZeroDivisionError"),
        (lambda n: torch.zeros(2) @ torch.zeros(3), "failed .RuntimeError"),
        (lambda n: torch.full((n,), torch.inf, dtype=torch.float64), "probability zero"),
    ],
)
def test_energies_of_ones_own_that_fail(returns, reason):
    ids = torch.tensor([MODEL.encode("red blue")] * 2)
    given = Sequences(ids, torch.tensor([2, 2]))
    if reason != "probability zero":
        with pytest.raises(InputError, match=reason):
            evaluated(Own(returns), MODEL, given)
    assert re.search(reason, refusal(Own(returns)))


def test_a_full_memory_is_told_as_it_is():
    with pytest.raises(MemoryError):
        maskov.sample(MODEL, Metropolis(Own(lambda n: _raises(MemoryError())(n))), chains=1)


def _energy(energy, text="red blue"):
    ids = torch.tensor([MODEL.encode(text)])
    return float(energy(MODEL, Sequences(ids, torch.tensor([ids.shape[1]]))))


def test_labels(folder, tmp_path):
    for label, said in (
        ("happy", "has no label 'happy'; it has negative, positive"),
        (2, "has labels 0 to 1"),
        (-1, "has labels 0 to 1"),
    ):
        assert said in refusal(Classifier(str(folder), label))
    assert len({_energy(Classifier(str(folder), one)) for one in ("POSITIVE", "positive", 1)}) == 1
    # It is refused before a folder is made.
    kernel = Metropolis(Norm() + Classifier(str(folder), "happy"))
    with pytest.raises(InputError, match="no label"):
        maskov.sample(MODEL, kernel, texts=["red blue"], chains=1, out=tmp_path / "run")
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"problem_type": "multi_label_classification"}, "does not choose one of several labels"),
        ({"problem_type": "regression"}, "does not choose one of several labels"),
        ({"id2label": {"0": "a", "5": "b"}}, "labels of .* are damaged"),
    ],
)
def test_heads_that_choose_no_label(folder, changes, reason):
    tiny_models.edit_config(folder, **changes)
    assert re.search(reason, refusal(Classifier(str(folder), 0)))


def test_models_that_are_not_classifiers(tmp_path):
    folder = tiny_models.build_classifier(tmp_path / "one", WORDS, ("score",))
    assert "does not choose one of several labels" in refusal(Classifier(str(folder), 0))
    folder = tiny_models.build_masked(tmp_path / "masked", WORDS)
    assert str(folder) in refusal(Classifier(str(folder), 0), kind=ModelError)
    with pytest.raises(ModelError, match="is a causal model, not a classifier"):
        parse_energy("classifier(wiki-judge, label=1)")


def test_damaged_weights(folder):
    from safetensors.torch import load_file, save_file

    weights = load_file(folder / "model.safetensors")
    weights["classifier.bias"][:] = torch.nan
    save_file(weights, folder / "model.safetensors", {"format": "pt"})
    assert "not-a-number" in refusal(Classifier(str(folder), 0), kind=ModelError)


def test_a_tokenizer_that_cannot_read(tmp_path):
    """Without a token for unknown words, and without the words."""
    from tokenizers import Tokenizer
    from tokenizers.models import WordLevel

    broken = hf.PreTrainedTokenizerFast(
        tokenizer_object=Tokenizer(WordLevel({"x": 0, "[MASK]": 1}, unk_token="[GONE]"))
    )
    folder = tiny_models.build_classifier(tmp_path / "broken", "", tokenizer=broken)
    sentence = refusal(Classifier(str(folder), 0), kind=ModelError)
    assert "the tokenizer of" in sentence
    assert "cannot read a text" in sentence


def test_a_text_longer_than_the_classifier_takes(folder):
    long = " ".join(["red"] * 23)
    sentence = refusal(Classifier(str(folder), 0), texts=[long])
    assert f"a text has 25 tokens; '{folder}' takes at most 24" in sentence


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


def test_comparing_without_a_text():
    for energy in ("hamming", "2*edit+contains('red')", "edit(unit=words)"):
        assert "give texts to start from (--start-text)" in refusal(energy, start=False)
    with pytest.raises(InputError, match="give texts to start from"):
        _energy(parse_energy("edit"))


def test_another_model_of_other_tokens(tmp_path):
    folder = tiny_models.build_masked(tmp_path / "masked", "red green black")
    assert "have different tokens" in refusal(f"norm({folder})")
    assert "have different tokens" in refusal(f"raw({folder})", ["a b c"], random_table())


def test_a_changed_classifier_is_noticed(folder, tmp_path):
    kernel = Metropolis(Raw() + Classifier(str(folder), "positive"), Site())
    run = tmp_path / "run"
    with pytest.raises(maskov.errors.Interrupted):
        maskov.sample(
            MODEL, kernel, Schedule(epochs=1), chains=1, texts=["red blue"], out=run,
            stop=lambda: True,
        )  # fmt: skip
    tiny_models.edit_config(folder, id2label={"0": "positive", "1": "negative"})
    with pytest.raises(maskov.RunError, match="is not the one this run began with"):
        maskov.resume(run, MODEL)


def test_a_dataclass_and_many_terms():
    assert parse_energy("length(12, sd=2)") == Length(12, 2)
    parse_energy("+".join(["hamming"] * 64))
    with pytest.raises(InputError, match="at most 64 terms"):
        parse_energy("+".join(["hamming"] * 65))


# Names of sums.

CAUSAL = Autoregressive("some/model")


def parts_of(energy):
    """Return weights and names of the parts, which for built-in energies say everything."""
    return [(weight, str(part)) for weight, part in getattr(energy, "parts", ((1.0, energy),))]


@pytest.mark.parametrize(
    "energy",
    [
        Raw(),
        Norm(),
        CAUSAL,
        0.5 * Raw() + 2 * Norm() + CAUSAL,
        -1 * Norm() + Raw(),
        0.25 * (Raw() + 2 * Norm()),
        1e-7 * CAUSAL + Raw(),
        Raw() * (1 / 3) + 0.123456789 * Norm(),
        1e20 * Raw(),
        Autoregressive("a+b/c.d-e_f") + Raw(),
        Raw() + 0.5 * Autoregressive("folder(1)/model"),
        Raw() + Autoregressive("my models/gpt 2"),
    ],
    ids=str,
)
def test_name_is_read_back_as_the_same_energy(energy):
    again = parse_energy(str(energy))
    assert parts_of(again) == parts_of(energy)
    assert str(again) == str(energy)


@pytest.mark.parametrize(
    ("text", "energy"),
    [
        ("raw", Raw()),
        (" raw + 0.5 * norm ", Raw() + 0.5 * Norm()),
        ("autoregressive(some/model)", CAUSAL),
        ("raw+autoregressive", Raw() + CAUSAL),
        ("2*norm+-1*raw", 2 * Norm() + -1 * Raw()),
    ],
)
def test_text_names_this_energy(text, energy):
    assert parts_of(parse_energy(text, causal="some/model")) == parts_of(energy)


@pytest.mark.parametrize(
    "text",
    [
        *("", " ", "energy", "RAW", "rawnorm", "(raw)"),
        *("raw+", "+raw", "raw++norm", "raw-norm"),
        *("raw*2", "2*", "*raw", "2*3*raw", "2**raw", "x*raw", "nan*raw", "inf*raw"),
        *("raw(", "raw)", "raw(1)", "norm()"),
        *("autoregressive", "autoregressive()", "autoregressive(a"),
    ],
)
def test_malformed_text_is_refused(text):
    with pytest.raises(maskov.InputError):
        parse_energy(text)


@pytest.mark.parametrize("weight", [float("nan"), float("inf"), -float("inf")])
def test_weight_that_is_no_finite_number_is_refused(weight):
    with pytest.raises(maskov.InputError, match="finite"):
        weight * Raw()


# Products of two models whose tokens have other numbers, and some more, in the second.

PRODUCTS = ["red", "blue green red", "white white"]


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    home = tmp_path_factory.mktemp("models")
    return {
        name: tiny_models.build_masked(home / name, words)
        for name, words in (
            ("first", "red green blue white"),
            ("second", "black white blue yellow green red"),
        )
    }


@pytest.mark.parametrize("kind", [Raw(), Norm()], ids=["raw", "norm"])
def test_each_model_scores_the_same_words(folders, kind):
    first, second = (maskov.load(folder, "cpu") for folder in folders.values())
    assert first.encode("red") != second.encode("red")
    energy = parse_energy(f"{kind} + 0.5*{kind}({folders['second']})")
    found = [one.energy for one in maskov.score(first, PRODUCTS, energy)]
    alone = [
        [one.energy for one in maskov.score(model, PRODUCTS, kind)] for model in (first, second)
    ]
    expected = torch.tensor(alone[0]) + 0.5 * torch.tensor(alone[1])
    torch.testing.assert_close(torch.tensor(found), expected, rtol=0, atol=1e-4)


def test_a_token_that_the_other_model_lacks(folders):
    second = maskov.load(folders["second"], "cpu")
    with pytest.raises(InputError, match="which lacks 'black', 'yellow'"):
        maskov.score(second, PRODUCTS, parse_energy(f"norm({folders['first']})"))
