"""minicons, another implementation of the pseudo-log-likelihood, agrees with −E_norm."""

import pytest

import maskov
import tiny_models

scorer = pytest.importorskip("minicons.scorer", reason="the package minicons is not installed")

TEXTS = [*tiny_models.TEXTS, "the the the the", "a tree saw the red house on the big cat"]
# Both compute in single precision, over other batches.
TOLERANCE = 1e-3


@pytest.fixture(scope="module", params=["bert", "roberta"])
def pair(request, tmp_path_factory):
    """The same folder in maskov and in minicons."""
    folder = str(tiny_models.build(request.param, tmp_path_factory.mktemp(request.param)))
    return maskov.load(folder, "cpu"), scorer.MaskedLMScorer(folder, "cpu", PLL_metric="original")


def encoded(other):
    """Encode for minicons, which itself would call a method that transformers 5 has dropped."""
    return other.tokenizer(TEXTS, padding="longest")


def test_each_token_has_the_same_term(pair):
    model, other = pair
    theirs = other.token_score(encoded(other), PLL_metric="original")
    for score, tokens in zip(maskov.score(model, TEXTS, maskov.Norm()), theirs, strict=True):
        assert [model.decode([i]) for i in model.encode(score.text)] == [word for word, _ in tokens]
        assert [-term for term in score.terms] == pytest.approx(
            [value for _, value in tokens], abs=TOLERANCE
        )
