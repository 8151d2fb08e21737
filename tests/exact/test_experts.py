"""Every expert and sums of them: values, transition matrices, samples, and wrong versions."""

import itertools
import random
import re
from dataclasses import dataclass

import pytest
import torch

import tiny_models
from maskov import (
    ContainsWords,
    DelayedAcceptance,
    MaskedConditional,
    MaxChanges,
    Metropolis,
    Mixture,
    Norm,
    Raw,
    Site,
    Span,
    load,
    parse_energy,
)
from maskov.energies import Energy, TextEnergy
from maskov.energies.base import Norm as NormEnergy
from maskov.energies.counting import edit_distance, words_changed
from maskov.energies.networks import Classifier, Similar
from maskov.energies.other_models import OtherModel
from maskov.models.scorer import Scorer
from maskov.moves import Resize
from maskov.testing import check_energy, check_kernel, random_table
from maskov.types import Sequences
from small import tiny_bert

TABLE = random_table()
LENGTHS = random_table((1, 3), size=2)
# Words of several tokens: "red" may be followed by "##s".
PIECES = tiny_bert("red ##s blue")
RED, S, BLUE = PIECES.encode("reds blue")
MODELS = {"table": (TABLE, (0, 1, 2)), "pieces": (PIECES, (RED, S, BLUE))}


def vowels(texts):
    """An energy of one's own."""
    return [0.9 * len(re.findall("[ae]", text)) for text in texts]


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """Tiny networks for experts, with the words of both models."""
    made = {"table": "a b c", "pieces": "red ##s blue"}
    root = tmp_path_factory.mktemp("networks")
    for name, words in made.items():
        tiny_models.build_classifier(root / f"classifier-{name}", words)
        tiny_models.build_encoder(root / f"encoder-{name}", words)
    tiny_models.build_masked(root / "masked", "red ##s blue")
    return root


def _double(energy):
    """Compute in float64, so that rounding in other batches is below every tolerance."""
    energy.network.double()
    return energy


def _expert(name, which, folders):
    """Return an expert by its name here, for one of the models."""
    if name == "classifier":
        return _double(Classifier(str(folders / f"classifier-{which}"), "positive"))
    if name == "similar":
        return _double(Similar(str(folders / f"encoder-{which}")))
    if name == "other model":
        other = OtherModel(NormEnergy(), str(folders / "masked"))
        other.__dict__["_scorer"] = Scorer(load(folders / "masked", "cpu", "float64"))
        return other
    if name == "function":
        return TextEnergy(vowels)
    words = {"table": ("a", "c b", "b"), "pieces": ("reds", "red blue", "blue")}[which]
    return parse_energy(name.format(*words))


EXPERTS = (
    "hamming",
    "hamming(unit=words)",
    "edit",
    "edit(unit=words)",
    "contains('{0}', '{1}')",
    "avoids('{0}', '{2}')",
    "matches('^{0}.* {2}$')",
    "repeats",
    "length(2, sd=0.7)",
    "function",
    "classifier",
    "similar",
)
# Those that count tokens read a table's; those that read words meet words of several tokens.
COUNT_TOKENS = ("hamming", "edit", "length(2, sd=0.7)")
CASES = [
    (name, "table" if name in COUNT_TOKENS else "pieces") for name in (*EXPERTS, "other model")
]


@pytest.mark.parametrize(("name", "which"), CASES)
def test_energies(name, which, folders):
    expert, (model, reference) = _expert(name, which, folders), MODELS[which]
    check_energy(expert, model, reference=reference)
    check_energy(0.7 * Norm() + 1.3 * expert, model, reference=reference)


@pytest.mark.parametrize(("name", "which"), CASES)
def test_kernels(name, which, folders):
    expert, (model, reference) = _expert(name, which, folders), MODELS[which]
    energy, longer = Norm() + 1.5 * expert, (*reference, reference[0])
    check_kernel(Metropolis(energy, Site(), 0.8, DelayedAcceptance(1)), model, reference=reference)
    span = Metropolis(expert + 0.5 * Raw(), Span(sizes=(2,)), delayed=DelayedAcceptance(0))
    check_kernel(span, model, reference=longer)


@pytest.mark.parametrize("name", EXPERTS)
def test_changing_lengths(name, folders):
    energy = Raw() + 1.5 * _expert(name, "table", folders)
    moves = (Site(), Resize(MaskedConditional(0.8), ((0, 1), (1, 2))))
    kernels = tuple(Metropolis(energy, move, delayed=DelayedAcceptance(1)) for move in moves)
    check_kernel(Mixture(kernels), LENGTHS, lengths=(1, 3), reference=(0, 1), seeds=2)


SUMS = (
    "raw+0.5*norm+2*edit+3*contains('a', 'b')",
    "raw(groups=2)+1.5*hamming+avoids('b')",
    "norm(groups=2)+length(2)+-0.5*repeats",
    "norm+CLASSIFIER+2*edit(unit=words)+matches('b')",
    "raw+-1*CLASSIFIER+0.3*SIMILAR+1e-3*hamming",
    "2*CLASSIFIER+edit",
)


@pytest.mark.parametrize(
    ("text", "delayed"),
    # The last needs no masked passes.
    [*((text, 0) for text in SUMS), *((text, (1, 2)) for text in SUMS[:-1])],
    ids=str,
)
def test_sums(text, delayed, folders):
    energy = _sum(text, folders)
    reference = (2, 1, 0)
    early = DelayedAcceptance(delayed)
    check_kernel(Metropolis(energy, Site(), delayed=early), TABLE, reference=reference)
    check_kernel(Metropolis(energy, Span(sizes=(1, 2)), delayed=early), TABLE, reference=reference)


def _sum(text, folders):
    for name in ("classifier", "similar"):
        folder = "classifier" if name == "classifier" else "encoder"
        label = ", label=positive" if name == "classifier" else ""
        text = text.replace(name.upper(), f"{name}({folders / folder}-table{label})")
    energy = parse_energy(text)
    for _, part in energy.parts:
        if isinstance(part, Classifier | Similar):
            _double(part)
    return energy


@pytest.mark.parametrize("constraints", [(MaxChanges(1),), (ContainsWords(("b",)), MaxChanges(2))])
def test_experts_together_with_constraints(constraints, folders):
    energy = _sum("norm+2*CLASSIFIER+edit+avoids('c')", folders)
    conditional = MaskedConditional(0.9, constraints=constraints)
    for move in (Site(conditional), Span(conditional, (2, 3))):
        kernel = Metropolis(energy, move, delayed=DelayedAcceptance(1))
        check_kernel(kernel, TABLE, reference=(0, 1, 2))


def _plain_distance(one, other):
    """Levenshtein's distance by its definition."""
    if not one or not other:
        return len(one) + len(other)
    if one[0] == other[0]:
        return _plain_distance(one[1:], other[1:])
    return 1 + min(
        _plain_distance(one[1:], other),
        _plain_distance(one, other[1:]),
        _plain_distance(one[1:], other[1:]),
    )


def test_edit_distance_equals_its_definition():
    rng = random.Random(0)
    pairs = [
        tuple([rng.randrange(3) for _ in range(rng.randrange(7))] for _ in range(2))
        for _ in range(300)
    ]
    sides = []
    for side in zip(*pairs, strict=True):
        tokens = torch.zeros((len(side), 7), dtype=torch.long)
        for row, one in enumerate(side):
            tokens[row, : len(one)] = torch.tensor(one, dtype=torch.long)
        sides.append(Sequences(tokens, torch.tensor([len(one) for one in side])))
    expected = [_plain_distance(*pair) for pair in pairs]
    assert edit_distance(*sides).tolist() == expected
    for (one, other), distance in zip(pairs, expected, strict=True):
        assert words_changed(" ".join(map(str, one)), " ".join(map(str, other))) == distance


def _value(energy, model, ids, reference=()):
    given = Sequences(
        torch.tensor([ids]), torch.tensor([len(ids)]), reference=torch.tensor([reference]).long()
    )
    return float(energy(model, given))


@pytest.mark.parametrize(
    ("text", "energy", "value"),
    [
        ("reds red blue", "contains('red', 'reds')", 0),
        ("reds blue", "contains('red', 'BLUE', 'reds blue')", 1),
        ("reds blue blue", "avoids('blue', 'red')", 2),
        ("reds blue", "matches('^reds')", 0),
        ("blue reds", "matches('^reds')", 1),
        ("blue reds blue red blue", "repeats", 2),
        ("blue reds blue red blue", "repeats(within=1)", 0),
        ("blue reds blue", "length(3, sd=0.5)", 2),
        ("blue", "hamming", 3),
        ("red blue blue", "hamming", 1),
        ("red blue blue", "hamming(unit=words)", 2),
        ("blue", "edit", 2),
        ("blue reds blue", "edit", 1),
        ("red blue", "edit", 1),
        ("red blue", "edit(unit=words)", 1),
    ],
)
def test_values(text, energy, value):
    """Against "reds blue", three tokens and two words."""
    ids, reference = PIECES.encode(text), (RED, S, BLUE)
    assert _value(parse_energy(energy), PIECES, ids, reference) == value


def test_classifier_and_encoder_say_what_plain_code_does(folders):
    import transformers

    for which, (model, reference) in MODELS.items():
        text = model.decode(reference)
        folder = folders / f"classifier-{which}"
        network = transformers.AutoModelForSequenceClassification.from_pretrained(folder).double()
        tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
        with torch.no_grad():
            logits = network.eval()(**tokenizer(text, return_tensors="pt")).logits[0]
        for label in (0, 1):
            energy = _double(Classifier(str(folder), label))
            expected = -float(logits.log_softmax(0)[label])
            assert _value(energy, model, list(reference)) == pytest.approx(expected, abs=1e-9)
        similar = _expert("similar", which, folders)
        assert _value(similar, model, list(reference), reference) == pytest.approx(0, abs=1e-12)
        assert _value(similar, model, list(reference[:1]), reference) > 1e-3


@dataclass(frozen=True)
class LooksAtTheFirst(Energy):
    """It compares, but with the text of another chain's place: the order matters."""

    compares = True

    def __call__(self, model, sequences):
        return (sequences.tokens != sequences.tokens[:1]).sum(1).double()


@dataclass(frozen=True)
class Lopsided(Energy):
    """Its early stage is drawn anew whenever it is asked, so it does not change its sign."""

    def __call__(self, model, sequences):
        return sequences.tokens.double().sum(1)

    def stages(self):
        return (Drifting(), self)


class Drifting(Energy):
    """Another number each time."""

    cost = 0.0
    _asked = itertools.count(1)

    def __call__(self, model, sequences):
        return sequences.tokens.double().sum(1) * (0.3 + next(self._asked) % 2)


@pytest.mark.parametrize(
    ("energy", "reason"),
    [
        (LooksAtTheFirst(), "in another order|alone"),
        (Raw() + Lopsided(), "does not change its sign"),
    ],
)
def test_wrong_experts_are_found(energy, reason):
    with pytest.raises(AssertionError, match=reason):
        check_energy(energy, TABLE, reference=(0, 1, 2))
