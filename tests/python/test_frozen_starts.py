"""Given texts are resampled in part: by `freeze`, by a mask, or by a template."""

from __future__ import annotations

import pytest

import maskov
from maskov import InputError
from small import tiny_bert

MODEL = tiny_bert("red green blue white")
TEXTS = ["red green blue", "white white red green"]
SETTINGS = {"chains": 4, "epochs": 6, "seed": 3, "thin": 1, "burn_in": 0}


def _tokens(run):
    return [one.tokens for one in run]


def test_a_template_a_mask_and_a_rule_are_the_same_run():
    rule = maskov.sample(MODEL, texts=TEXTS, freeze="1", **SETTINGS)
    signs = maskov.sample(MODEL, texts=TEXTS, freeze=["#..", "#..."], **SETTINGS)
    held = [[True, False, False], [True, False, False, False]]
    mask = maskov.sample(MODEL, texts=TEXTS, freeze=held, **SETTINGS)
    templates = ["red [MASK] [MASK]", "white [MASK] [MASK] [MASK]"]
    blank = maskov.sample(MODEL, texts=TEXTS, templates=templates, **SETTINGS)
    filled = maskov.infill(MODEL, templates, texts=TEXTS, **SETTINGS)
    assert rule.manifest.inputs.frozen == ((0,), (0,))
    for run in (signs, mask, blank, filled):
        assert run.manifest.inputs == rule.manifest.inputs
        assert _tokens(run) == _tokens(rule)
    firsts = {(one.template, one.tokens[0]) for one in rule}
    assert firsts == {(0, "red"), (1, "white")}
    assert len({tuple(one.tokens) for one in rule}) > 2  # the others move


def test_chains_start_at_the_text():
    """The first sweep of a cold chain leaves a text where a template alone would fill it anew."""
    kernel = maskov.Metropolis(maskov.Raw(), target_temperature=1e-9)
    templates = ["red [MASK] [MASK]"]
    settings = {"chains": 8, "epochs": 1, "seed": 1}
    best = min(
        maskov.infill(MODEL, templates, kernel, chains=30, epochs=9), key=lambda one: one.energy_raw
    )
    run = maskov.sample(
        MODEL, kernel, texts=[" ".join(best.tokens)], templates=templates, **settings
    )
    assert [one.tokens for one in run] == [best.tokens] * 8
    anew = maskov.infill(MODEL, templates, kernel, **settings)
    assert len({tuple(one.tokens) for one in anew}) > 1


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        ({"texts": TEXTS, "templates": ["red [MASK] [MASK]"]}, "1 templates for 2 texts"),
        ({"texts": TEXTS[:1], "templates": ["blue [MASK] [MASK]"]}, "is not text 1 with blanks"),
        ({"texts": TEXTS[:1], "templates": ["red [MASK]"]}, "each of its 3 tokens"),
        ({"texts": TEXTS[:1], "templates": ["red [MASK*]"]}, "blank of unknown length"),
        ({"texts": TEXTS[:1], "templates": [TEXTS[0]]}, "every token of text 1 is frozen"),
        ({"texts": TEXTS[:1], "templates": ["red [MASK] blue"], "freeze": "1"}, "drop --freeze"),
        ({"freeze": "1"}, "texts to start from"),
        ({"texts": TEXTS, "freeze": ["#.."]}, "give one each"),
        ({"texts": TEXTS, "freeze": 1}, "'freeze' takes a text"),
    ],
)  # fmt: skip
def test_what_does_not_fit_is_refused(given, reason):
    with pytest.raises(InputError, match=r"\A.+\Z") as refused:
        maskov.sample(MODEL, chains=1, epochs=1, **given)
    assert reason in str(refused.value)
