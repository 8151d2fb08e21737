"""Perplexities against plain Hugging Face code, one prefix at a time."""

import math
import statistics

import numpy as np
import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

import maskov
import tiny_models
from maskov.evaluation.texts import perplexity
from plain_energies import causal_terms

TEXTS = tiny_models.TEXTS


@pytest.fixture(scope="module")
def plain(judge_folder):
    """Return the NLL and the number of tokens of each text."""
    network = AutoModelForCausalLM.from_pretrained(judge_folder).eval()
    tokenizer = AutoTokenizer.from_pretrained(judge_folder)
    found = []
    for text in TEXTS:
        ids = tokenizer(text, add_special_tokens=False)["input_ids"]
        terms = causal_terms(network, tokenizer.bos_token_id, ids)
        found.append((float(terms.sum()), len(ids)))
    return found


def test_perplexities_are_those_of_a_plain_loop(judge, plain):
    found = perplexity(judge, TEXTS)
    total, tokens = (sum(part) for part in zip(*plain, strict=True))
    assert found.tokens == tokens
    assert found.per_token.value == pytest.approx(math.exp(total / tokens), rel=1e-5)
    each = [math.exp(nll / count) for nll, count in plain]
    assert found.per_sentence.value == pytest.approx(statistics.mean(each), rel=1e-5)
    assert found.nll.value == pytest.approx(total / len(TEXTS), rel=1e-5)
    # Otherwise this test could not tell the two apart.
    assert abs(found.per_sentence.value / found.per_token.value - 1) > 0.05


def test_standard_errors_are_over_sentences(judge, plain):
    found = perplexity(judge, TEXTS)
    root = len(TEXTS) ** 0.5
    each = [math.exp(nll / count) for nll, count in plain]
    assert found.per_sentence.standard_error == pytest.approx(
        statistics.stdev(each) / root, rel=1e-5
    )
    nll, count = np.array(plain).T
    assert found.nll.standard_error == pytest.approx(statistics.stdev(nll) / root, rel=1e-5)
    rate = nll.sum() / count.sum()
    spread = statistics.stdev(nll - rate * count) / root / count.mean()
    assert found.per_token.standard_error == pytest.approx(math.exp(rate) * spread, rel=1e-5)


def test_a_single_sentence_has_one_perplexity_and_no_error(judge):
    found = perplexity(judge, TEXTS[:1])
    assert found.per_sentence.value == pytest.approx(found.per_token.value)
    assert found.per_token.value == pytest.approx(math.exp(found.nll.value / found.tokens))
    for estimate in (found.per_sentence, found.per_token, found.nll):
        assert estimate.standard_error is None


def test_a_small_budget_changes_the_batches_and_not_the_numbers(judge_folder, judge):
    small = maskov.Autoregressive(str(judge_folder), budget=1)
    found, other = perplexity(judge, TEXTS), perplexity(small, TEXTS)
    assert small._batcher.budget == 1
    assert other.per_token.value == pytest.approx(found.per_token.value, rel=1e-5)


def test_a_budget_of_nothing_is_refused(judge_folder):
    with pytest.raises(maskov.InputError, match="at least 1, not 0"):
        maskov.Autoregressive(str(judge_folder), budget=0)


def test_a_judge_that_gives_no_number_is_refused(judge_folder):
    judge = maskov.Autoregressive(str(judge_folder))
    judge._loaded[0].transformer.wpe.weight.data[3] = torch.nan
    assert perplexity(judge, ["a"]).tokens == 1
    with pytest.raises(maskov.ModelError, match="NaN"):
        perplexity(judge, TEXTS[1:])
