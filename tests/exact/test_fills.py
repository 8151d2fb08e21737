"""Fills of blanks: their probabilities against the law that enumeration gives."""

from __future__ import annotations

import math
from itertools import product

import numpy as np
import pytest
import torch
from tests.small import tiny_bert

import maskov
from maskov import filling
from maskov.errors import InputError
from maskov.filling import DistinctScorer, Filler, OrderedFills, shapes_of
from maskov.models.base import Queries
from maskov.models.scorer import Scorer
from maskov.random import CounterRng
from maskov.texts import gaps_of, spans_blank
from maskov.types import Sequences

WORDS = [f"{first}{second}" for first in "abcdef" for second in "ghijkl"]
MODEL = tiny_bert(" ".join(WORDS))
# With pieces of words, of different lengths.
PIECES = tiny_bert("a bb ccc dddd ##e ##ff")


def _law(model, texts, energy="norm", temperature=1.0):
    """Return the probability of each text, from the energies of all."""
    energies = np.array([one.energy for one in maskov.score(model, texts, energy)])
    weights = np.exp((energies.min() - energies) / temperature)
    return dict(zip(texts, weights / weights.sum(), strict=True))


def _distance(law, fills):
    """Return the total variation to the fills that were found; what is not listed counts, too."""
    found = {fill.text: fill.probability for fill in fills}
    missing = max(0.0, 1 - sum(found.values()))
    apart = sum(abs(law[text] - found.get(text, 0.0)) for text in found)
    rest = sum(p for text, p in law.items() if text not in found)
    return (apart + abs(rest - missing)) / 2


def _texts(template, words=WORDS):
    count = template.count("[MASK]")
    found = []
    for fill in product(words, repeat=count):
        rest = iter(fill)
        found.append(" ".join(next(rest) if w == "[MASK]" else w for w in template.split()))
    return found


@pytest.mark.parametrize(
    ("template", "options"),
    [
        ("ag [MASK] bh", {"energy": "norm"}),
        ("ag [MASK] bh", {"energy": "raw", "target_temperature": 2.0}),
        ("[MASK] ag [MASK]", {"energy": "norm", "target_temperature": 1.5}),
        ("ag [MASK] [MASK] bh", {"energy": "norm"}),
    ],
    ids=str,
)
def test_probabilities_are_those_of_the_enumerated_law(template, options):
    found = maskov.infill(MODEL, template, **options)
    (fills,) = found.fills()
    law = _law(MODEL, _texts(template), *options.values())
    assert _distance(law, fills) <= 0.02
    assert not found.problems
    numbers = [fill.probability for fill in fills]
    assert numbers == sorted(numbers, reverse=True)
    for fill in fills:
        assert abs(fill.probability - law[fill.text]) <= 5 * fill.error + 1e-9
        assert " ".join(fill.words) in fill.text or len(fill.words) == 2
    assert found.fill_table(top_k=3)["probability"].tolist() == numbers[:3]


@pytest.mark.parametrize("energy", [None, "ordered", "0.8*ordered(orders=8)+0.15*norm"])
def test_the_default_and_normalised_energies_agree_with_enumeration(energy):
    """Given the context alone: the ordered energy of the blanks adds up to one over all fills."""
    template = "ag [MASK] [MASK]"
    narrow, wide = (_fill(template, energy, width) for width in (None, 36 * 36 + 1))
    law = {fill.text: fill.probability for fill in wide.fills}
    assert wide.unlisted == pytest.approx(0, abs=1e-9)
    assert sum(law.values()) == pytest.approx(1)
    assert _distance(law, narrow.fills) <= 0.02
    assert (narrow.error == 0) is (energy in (None, "ordered"))


def _fill(template, energy, width, passes=filling.DEFAULT_PASSES, rng=None):
    with pytest.MonkeyPatch.context() as patch:
        if width is not None:
            patch.setattr(filling, "_FIRST", width)
            patch.setattr(filling, "_NARROW", width)
        energy = maskov.parse_energy(energy or filling.DEFAULT_ENERGY)
        filler = Filler(energy, 1.0, OrderedFills(DistinctScorer(MODEL), rng=rng), passes)
        return filler.fill(template, shapes_of(MODEL, template, 1))


def _log_p(model, tokens, place, token):
    """Return log p of a token at a masked place."""
    masked = torch.arange(len(tokens)) == place
    hidden = Scorer(model).hidden(
        Queries(torch.tensor([tokens]), torch.tensor([len(tokens)]), masked[None])
    )
    logs = model.logits(hidden)[0].double().masked_fill(model.forbidden, -torch.inf)
    return float(logs.log_softmax(0)[token])


def _law_of_lengths(model, context, start, sizes, order, prior=None, characters=None):
    """Return p of each fill: the context in an order, the blanks masked, then the blanks."""
    law, words = {}, (~model.forbidden).nonzero().flatten().tolist()
    ids, spelled = model.encode(context), model.token_strings(range(model.vocabulary_size))
    for size in sizes:
        weight = math.log((prior or {}).get(len(ids) + size, 1))
        place = [one + size * (one >= start) for one in range(len(ids))]
        seen = [model.mask_id] * (len(ids) + size)
        for one in order:
            weight += _log_p(model, seen, place[one], ids[one])
            seen[place[one]] = ids[one]
        tokens = torch.tensor(seen).repeat(len(words) ** size, 1)
        tokens[:, start : start + size] = torch.tensor([*product(words, repeat=size)])
        free = torch.zeros_like(tokens, dtype=torch.bool)
        free[:, start : start + size] = True
        lengths = torch.full((len(tokens),), tokens.shape[1])
        energy = maskov.parse_energy(filling.DEFAULT_ENERGY)
        values = energy.evaluate(Scorer(model), Sequences(tokens, lengths, free=free)).value
        for row, value in zip(tokens.tolist(), values.tolist(), strict=True):
            fill = [spelled[one].removeprefix("##") for one in row[start : start + size]]
            if characters is None or len("".join(fill)) == characters:
                law[tuple(row)] = math.exp(weight - value)
    total = sum(law.values())
    return {model.decode(list(row)): p / total for row, p in law.items()}


# The context farthest from the gap is revealed first.
UNKNOWN = [
    (MODEL, "ag bh [MASK{1,2}] ci", {}, ("ag bh ci", 2, (1, 2), (0, 1, 2))),
    (
        MODEL,
        "ag [MASK{1,2}] bh",
        {"length_prior": {3: 1, 4: 3}},
        ("ag bh", 1, (1, 2), (0, 1), {4: 3}),
    ),
    (MODEL, "[MASK{1,2}]", {}, ("", 0, (1, 2), ())),
    (PIECES, "a [.3.] ccc dddd", {}, ("a ccc dddd", 1, (1, 2, 3), (2, 0, 1), None, 3)),
]


@pytest.mark.parametrize(("model", "template", "options", "given"), UNKNOWN)
def test_blanks_of_unknown_length_have_the_posterior_of_their_context(
    model, template, options, given
):
    law = _law_of_lengths(model, *given)
    found = maskov.infill(model, template, **options)
    assert _distance(law, found.fills()[0]) <= 0.02
    (one,) = found.templates
    assert one.error <= (0 if model is MODEL else 0.001)  # characters are bounded by estimates
    assert sum(p for p, _ in one.lengths.values()) == pytest.approx(1)
    if model is MODEL:  # of whole words
        short = sum(p for text, p in law.items() if len(text.split()) == len(given[0].split()) + 1)
        assert one.lengths[1] == (pytest.approx(short), 0)


def _standard_scores(draws):
    """Return (estimate − Z) / error of log Z for some seeds, after a first round only."""
    template = "ag [MASK] [MASK] bh"
    law = _law(MODEL, _texts(template), "0.3*norm")
    scores, top = [], max(law, key=law.get)
    for seed in range(draws):
        found = _fill(template, "0.3*norm", None, passes=1, rng=CounterRng(seed))
        best = next(fill for fill in found.fills if fill.text == top)
        scores.append((law[top] / best.probability - 1) / found.error)
    return np.array(scores)


def test_errors_are_calibrated():
    """1/p of a fill is an unbiased estimate: its errors have the size that is stated."""
    scores = _standard_scores(60)
    assert abs(scores.mean()) < 3.5 / math.sqrt(len(scores))
    assert 0.7 < math.sqrt((scores**2).mean()) < 1.5


def test_a_poor_answer_says_so_even_if_quiet(call, monkeypatch):
    monkeypatch.setattr(filling, "GOOD", 0.0)
    words = ["--model", "untrained", "--energy", "norm", "--passes", "1", "--quiet", "--json"]
    code, out, err = call("infill", "the [MASK] [MASK] sat", *words)
    assert (code, out.count("\n")) == (0, 20)
    assert "not good enough" in err


@pytest.mark.parametrize(
    ("template", "options", "words"),
    [
        ("a [MASK] bb", {"whole_words": True}, {"a", "bb", "ccc", "dddd"}),
        ("a [MASK] bb", {"avoid": "ccc"}, {"a", "bb", "dddd", "##e", "##ff"}),
        ("a [.3.]", {"whole_words": True}, {"ccc", "a bb", "bb a", "a a a"}),
        ("a [.1.] bb", {}, {"a", "##e"}),
        ("a [MASK] bb", {}, {"a", "bb", "ccc", "dddd", "##e", "##ff"}),
    ],
)
def test_constraints_words_and_characters(template, options, words):
    (fills,) = maskov.infill(PIECES, template, **options).fills()
    assert {" ".join(fill.words) for fill in fills} == words
    assert sum(fill.probability for fill in fills) == pytest.approx(1)


def test_gaps_of_editions_and_spans_of_characters():
    assert gaps_of("a [...] b [---] [.3.] [MASK]") == (
        "a [MASK{1,8}] b [MASK{1,8}] [MASK{1,3}] [MASK]", [None, None, (3, 3), None],
    )  # fmt: skip
    assert spans_blank(MODEL, "ag bh ci", [(3, 5), (7, 8)]) == "ag [MASK] [MASK]"
    one = maskov.infill(MODEL, ["ag bh"], spans=[[(3, 5)]]).fills()
    assert one == maskov.infill(MODEL, "ag [MASK]").fills()
    with pytest.raises(InputError, match="no token"):
        spans_blank(MODEL, "ag", [(5, 9)])
