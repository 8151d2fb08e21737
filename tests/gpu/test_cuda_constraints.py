"""Constraints on a GPU: in lock-step, and met by every sample."""

import pytest
import torch

import maskov
from maskov import AllowedTokens, AvoidWords, ContainsWords, MaxChanges, MaxEdits, Metropolis, Norm
from maskov.execution.recorded import rounds_of
from maskov.kernels import Mixture
from maskov.moves import MaskedConditional, Resize, Site, Span
from small import tiny_bert

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU here")


def _model():
    model = tiny_bert("red green blue white black ##s")
    return maskov.HuggingFaceModel(model.network.to("cuda"), model.tokenizer, "tiny-bert")


@pytest.mark.parametrize(
    ("constraints", "moves", "inputs"),
    [
        (
            (ContainsWords(("red", "blues")), AvoidWords(("green", "white black"))),
            (Site(), Span()),
            {"length": (5, 7)},
        ),
        ((AllowedTokens(((1, 2, "red green"),)),), (Site(), Span()), {"length": 5}),
        ((MaxChanges(1),), (Site(), Span()), {"texts": ["red green blue"]}),
        ((MaxEdits(1),), (Span(), Resize()), {"texts": ["red green blue"]}),
    ],
    ids=str,
)
def test_every_sample_meets_them(constraints, moves, inputs):
    model, conditional = _model(), MaskedConditional(constraints=constraints)
    kernels = tuple(Metropolis(Norm(), type(move)(conditional)) for move in moves)
    assert not any(map(rounds_of, kernels))
    prior = {"length_prior": "none"} if Resize() in moves else {}
    run = maskov.sample(
        model, Mixture(kernels), maskov.Schedule(epochs=3), chains=6, thin=1, **inputs, **prior
    )
    for sample in run.samples:
        words = model.decode(sample.ids).split()
        if "length" in inputs and len(constraints) == 2:
            assert {"red", "blues"} <= set(words)
            assert "green" not in words
        elif "length" in inputs:
            assert all(model.decode([token]) in ("red", "green") for token in sample.ids[:2])
        else:
            assert len({"red", "green", "blue"} - set(words)) <= 1
