"""Evidence on models that can be enumerated: log Z, likelihoods, the curve along the path."""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import product

import pytest
import torch

import tiny_models
from maskov import Norm, Raw, evidence
from maskov.energies import Autoregressive
from maskov.energies.ordered import Ordered
from maskov.exact import all_states
from maskov.likelihood import EvidencePlan, measure
from maskov.models.scorer import Scorer
from maskov.random import CounterRng
from maskov.testing import random_table
from maskov.types import Sequences
from small import tiny_bert

MODEL = random_table((2, 3), size=4, forbidden=("d",))
TEXTS = ["a b c", "b b a", "c a", "a a a"]
PLAN = EvidencePlan(particles=300, populations=12, moves=3)
TARGETS = [(Norm(), 1.0), (Raw(), 0.7), (0.6 * Ordered() + 0.3 * Norm(), 1.0), (Ordered(), 1.0)]


def _values(energy, tokens):
    given = Sequences(tokens, torch.full((len(tokens),), tokens.shape[1]))
    return energy(MODEL, replace(given, pass_cache=Scorer(MODEL).cache(given)))


def _log_z(energy, length):
    return float((-_values(energy, all_states(MODEL, length))).logsumexp(0))


@pytest.fixture(scope="module")
def found():
    return measure(MODEL, TEXTS, TARGETS, PLAN)


@pytest.mark.parametrize("number", range(len(TARGETS)))
def test_log_z_and_likelihood_are_those_of_the_enumerated_law(found, number):
    target, (energy, temperature) = found.targets[number], TARGETS[number]
    tempered, nats = energy * (1 / temperature), 0.0
    for one, count in zip(target.lengths, (1, 3), strict=True):
        truth = _log_z(tempered, one.length)
        assert one.texts == count
        assert abs(one.log_z - truth) <= 4.5 * one.error + 1e-12
        assert one.agree
        texts = [MODEL.encode(text) for text in TEXTS if len(text.split()) == one.length]
        nats += float(_values(tempered, torch.tensor(texts)).sum()) + count * truth
    assert abs(target.nats_per_token - nats / 11) <= 4.5 * target.error + 1e-12
    size = sum(map(len, TEXTS))
    assert abs(target.bits_per_byte - nats / math.log(2) / size) <= 11 * target.error + 1e-12
    assert target.exact == (number == 3)


def test_bounds_of_what_is_known_lie_on_either_side():
    plan = replace(PLAN, particles=40, bounds=True)
    energies = [(Ordered(orders=2), 1.0), (Ordered(), 1.0), (Ordered(), 2.0)]
    *exact, other = measure(MODEL, [], energies, plan, lengths=[3]).targets
    for target in exact:
        bounds = target.lengths[0].bounds
        assert target.lengths[0].log_z == 0
        for bound in (bounds.lower, bounds.upper):
            assert 0 < bound.error < 0.1
            assert abs(bound.value) < 4.5 * bound.error
        assert bounds.agree
    assert other.lengths[0].bounds is None  # no exact draws


def test_the_curve_is_the_likelihood_of_every_product_on_the_path():
    (target,) = measure(MODEL, TEXTS, [(Raw(), 0.5)], PLAN, lengths=[3]).targets
    (one,) = target.lengths
    texts = torch.tensor([MODEL.encode(text) for text in TEXTS if len(text.split()) == 3])
    assert one.texts == len(texts) == 3
    for point in one.curve:
        energy = (1 - point.share) * Ordered() + (point.share / 0.5) * Raw()
        nats = (float(_values(energy, texts).mean()) + _log_z(energy, 3)) / 3
        assert point.nats_per_token == pytest.approx(nats, abs=0.03)
    share, nats = target.best
    assert nats == min(point.nats_per_token for point in one.curve)
    assert share in [point.share for point in one.curve]


def test_a_causal_model_given_the_length_is_that_of_all_texts_of_a_length(tmp_path):
    words = "red green blue"
    folder = str(tiny_models.build_gpt2(tmp_path, tiny_models.word_tokenizer(words)))
    causal, logs = Autoregressive(folder), []
    others = [token for token in range(9) if token != causal.end]
    chain = torch.arange(3000)
    with torch.inference_mode():
        ends = causal.log_ends(3, chain, CounterRng(0)).exp()
    for length in range(4):
        every = [[*one, causal.end] for one in product(others, repeat=length)]
        truth = torch.stack([-terms.sum() for terms in causal.token_terms(every)]).logsumexp(0)
        logs.append(float(truth))
        error = float(ends[:, length].std()) / math.sqrt(len(chain))
        assert abs(float(ends[:, length].mean()) - math.exp(truth)) <= 4.5 * error + 1e-6
    texts = ["blue red green", "red blue", "green green blue"]
    found = evidence(tiny_bert(words), texts, "ordered", causal_model=folder)
    lines = [causal.tokenise(text) for text in texts]
    assert found.causal == pytest.approx(sum(map(_nats, causal.token_terms(lines))) / 8)
    ended = causal.token_terms([[*line, causal.end] for line in lines])
    truth = (sum(map(_nats, ended)) + logs[2] + 2 * logs[3]) / 8
    told = found.causal_given_length
    assert abs(told.value - truth) <= 4.5 * told.error
    assert 0 < told.error < 0.05


def _nats(terms):
    return float(terms.sum())
