"""Products of two models whose tokens have other numbers, and some more, in the second."""

from __future__ import annotations

import pytest
import torch

import maskov
import tiny_models
from maskov import Norm, Raw
from maskov.energies import parse_energy
from maskov.errors import InputError

TEXTS = ["red", "blue green red", "white white"]


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
    found = [one.energy for one in maskov.score(first, TEXTS, energy)]
    alone = [[one.energy for one in maskov.score(model, TEXTS, kind)] for model in (first, second)]
    expected = torch.tensor(alone[0]) + 0.5 * torch.tensor(alone[1])
    torch.testing.assert_close(torch.tensor(found), expected, rtol=0, atol=1e-4)


def test_a_token_that_the_other_model_lacks(folders):
    second = maskov.load(folders["second"], "cpu")
    with pytest.raises(InputError, match="which lacks 'black', 'yellow'"):
        maskov.score(second, TEXTS, parse_energy(f"norm({folders['first']})"))
