"""Custom constraints, and what is refused; test_same_bytes.py has what runs hold."""

from dataclasses import dataclass, replace

import pytest
import torch

import maskov
from maskov import (
    AllowedTokens,
    AvoidWords,
    Constraint,
    ContainsWords,
    InputError,
    MaskedConditional,
    MaxChanges,
    MaxEdits,
    Metropolis,
    Mixture,
    Norm,
    Raw,
    Site,
    Span,
    default_kernel,
    mask_predict,
)
from maskov.kernels.registry import kernel_from_data, to_data
from maskov.moves import LowestConfidence
from maskov.testing import check_kernel
from small import mixed, tiny_bert

WORDS = "red green blue black white ##s"
MODEL = tiny_bert(WORDS)
COMMON = {"schedule": maskov.Schedule(epochs=3), "chains": 4, "resident": 2, "thin": 1}


def _moves(constraints, *moves):
    conditional = MaskedConditional(0.9, constraints=constraints)
    moves = moves or (Site(), Span(sizes=(2, 3)))
    return mixed(Norm(), tuple(replace(move, conditional=conditional) for move in moves))


@dataclass(frozen=True)
class EndsAlike(Constraint):
    """A constraint of one's own: the first and the last token are the same."""

    def _ends(self, sequences):
        last = sequences.lengths - 1
        return last, sequences.known_at(torch.zeros_like(last)), sequences.known_at(last)

    def allowed(self, sequences, model):
        last, first, end = self._ends(sequences)
        at_end = (sequences.place == 0) | (sequences.place == last)
        other = torch.where(sequences.place == 0, end, first)
        token = torch.arange(model.vocabulary_size)
        return (token == other[:, None]) | (~at_end | (other < 0))[:, None]

    def possible(self, sequences, model):
        _, first, end = self._ends(sequences)
        return (first == end) | (first < 0) | (end < 0)


def test_a_constraint_of_ones_own(tmp_path):
    kernel = _moves((EndsAlike(),))
    assert kernel_from_data(to_data(kernel), trust_parts=True) == kernel
    with pytest.raises(maskov.RunError, match="trust-parts"):
        kernel_from_data(to_data(kernel))
    run = maskov.sample(MODEL, kernel, **COMMON, length=4, out=tmp_path / "run")
    assert all(sample.ids[0] == sample.ids[-1] for sample in run.samples)
    small = tiny_bert("red green blue")
    check_kernel(_moves((EndsAlike(),), Span(sizes=(2, 3))), small, length=3, seeds=2)


@dataclass(frozen=True)
class Own(Span):
    """A move that proposes by its own rules."""

    def propose(self, chains, rows, scorer, rng):
        """Propose as spans do."""
        return super().propose(chains, rows, scorer, rng)


SMALL = {"schedule": maskov.Schedule(epochs=1), "chains": 2}
RED = (ContainsWords(("red",)),)


@pytest.mark.parametrize(
    ("constraints", "inputs", "reason"),
    [
        ((ContainsWords(("purple",)),), {}, r"'purple' holds a token .*\[UNK\]"),
        ((AvoidWords(("purple",)),), {}, r"'purple' holds a token"),
        ((ContainsWords(("blues",)), AvoidWords(("blue",))), {}, "contains 'blues' and avoids"),
        ((ContainsWords(("red", "blues")),), {"length": 2}, "take 3 tokens, more than"),
        ((ContainsWords(("blues",)),), {"templates": ["[MASK] red [MASK]"]}, "template 1 cannot"),
        ((*RED, MaxChanges(0)), {"texts": ["red blue", "green"]}, "text 2 cannot meet"),
        ((AvoidWords(("red",)),), {"texts": ["red blue"]}, "text 1 cannot meet"),
        ((AllowedTokens(((1, 1, "red"),)),), {"texts": ["blue"]}, "text 1 cannot meet"),
        ((AllowedTokens(((1, 1, "red"), (1, 2, "blue"))),), {}, "no token is allowed at"),
        ((AllowedTokens(((9, 9, "red"),)),), {}, "allowed at position 9, but a sequence has 4"),
        ((AllowedTokens(((1, 1, "blues"),)),), {}, "'blues' is not a single token"),
        ((MaxChanges(2),), {}, "give one with --start-text"),
        ((MaxEdits(2),), {}, "give one with --start-text"),
        ((ContainsWords(("red",)), AllowedTokens(((1, 4, "blue"),))), {}, "found in 50 attempts"),
    ],
)  # fmt: skip
def test_what_cannot_be_met_is_refused(constraints, inputs, reason):
    inputs = {"length": 4} | inputs if not {"texts", "templates"} & set(inputs) else inputs
    with pytest.raises(InputError, match=reason):
        maskov.sample(MODEL, default_kernel(constraints=constraints), **SMALL, **inputs)


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (lambda: ContainsWords(()), "no word to contain"),
        (lambda: AvoidWords(("",)), "a word to avoid is empty"),
        (lambda: ContainsWords(tuple("abcdefghi")), "at most 8 words"),
        (lambda: AllowedTokens.parse("3-2:red"), "allows no token anywhere"),
        (lambda: AllowedTokens.parse("red"), "is not a rule of allowed tokens"),
        (lambda: MaxChanges(-1), "0 or more"),
        (lambda: Metropolis(Raw(), Own(MaskedConditional(constraints=RED))), "'Own' does not keep"),
        (lambda: Mixture((default_kernel(constraints=RED), default_kernel())), "same constraints"),
        (
            lambda: Site(MaskedConditional(constraints=RED), LowestConfidence(3)),
            "mask-predict fills all positions at once",
        ),
    ],
)
def test_what_is_no_constraint_is_refused(make, reason):
    assert mask_predict(3).conditional.constraints == ()
    with pytest.raises(InputError, match=reason):
        make()
