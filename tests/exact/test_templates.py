"""Frozen positions: the blanks are sampled from the same energy, given the rest, exactly."""

import pytest
import torch

from maskov import InputError, Metropolis, Norm, Raw, sample
from maskov.config import Schedule
from maskov.exact import all_states, balance_error, distribution, transition_matrix
from maskov.models.scorer import Scorer
from maskov.starts import Layout
from small import random_table, tiny_bert


def test_the_target_of_a_template_is_the_conditional_of_the_joint():
    """π restricted to the sequences that fit the template, renormalised, is left invariant."""
    model = random_table()
    engine, states = Scorer(model), all_states(model, 3)
    fits = states[states[:, 1] == 2]
    for energy in (Raw(), Norm()):
        joint = distribution(model, energy, states)
        given = joint[states[:, 1] == 2] / joint[states[:, 1] == 2].sum()
        assert torch.allclose(given, distribution(model, energy, fits))
        for masked in ([True, False, False], [False, False, True], [True, False, True]):
            matrix = transition_matrix(Metropolis(energy), engine, fits, torch.tensor(masked))
            assert balance_error(matrix, given) < 1e-10


def test_samples_keep_what_was_given_and_fill_what_was_blank():
    model = tiny_bert("red green blue white")
    templates = ["red [MASK] blue [MASK]", "[MASK] green"]
    run = sample(model, schedule=Schedule(epochs=3), templates=templates, chains=4)
    assert len(run.samples) == 8
    for one in run.samples:
        given = templates[one.template].split()
        assert len(given) == len(one.tokens)
        for word, token in zip(given, one.tokens, strict=True):
            assert token == word if word != "[MASK]" else token in ["red", "green", "blue", "white"]
    assert [one.template for one in run.samples] == [0] * 4 + [1] * 4


@pytest.mark.parametrize(
    ("mask", "template"),
    [
        ("<msk>", "red <msk> blue [MASK{1,3}] red"),
        ("<msk>", "red [MASK*] blue <msk> red"),
        ("*", "red * blue [MASK*]"),
    ],
)
def test_the_mask_may_be_spelled_in_two_ways(mask, template):
    """The words stay, and a blank of unknown length keeps its bounds."""
    model = tiny_bert("red green blue white", mask=mask)
    other = Layout.of_templates(model, [template.replace(f"{mask} ", "[MASK] ")], 8, seed=1)
    layout = Layout.of_templates(model, [template], 8, seed=1)
    assert layout == other
    for ids, region in zip(layout.tokens, layout.region, strict=True):
        inside = [token for token, number in zip(ids, region, strict=True) if number == 0]
        assert set(inside) == {model.mask_id}
        assert ids.count(model.mask_id) == len(inside) + 1


def test_a_mask_of_an_unknown_spelling_beside_a_blank_of_unknown_length_is_refused(monkeypatch):
    model = tiny_bert("red green blue white")
    right = model.encode
    monkeypatch.setattr(model, "encode", lambda text: right(text.replace("(?)", "[MASK]")))
    assert Layout.of_templates(model, ["red (?) blue [MASK]"], 1).free == [
        [False, True, False, True]
    ]
    with pytest.raises(InputError, match=r"template 1 .* write \[MASK\]"):
        Layout.of_templates(model, ["red (?) blue [MASK*]"], 1)
