"""The energy of a causal model: −log p of the text, in its own vocabulary or a shared one."""

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

import maskov
import tiny_models
from maskov.types import Sequences
from plain_energies import causal_terms

TEXTS = tiny_models.TEXTS


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    folder = tiny_models.build("bert", tmp_path_factory.mktemp("bert"), torch.float64)
    return maskov.HuggingFaceModel.load(str(folder), dtype=torch.float64)


@pytest.fixture(scope="module", params=["gpt2", "bert"])
def causal(request, tmp_path_factory):
    """A causal model with its own tokenizer, or with the masked model's."""
    tokenizer = getattr(tiny_models, request.param)()
    folder = tiny_models.build_gpt2(tmp_path_factory.mktemp("gpt2"), tokenizer, torch.float64)
    return maskov.Autoregressive(str(folder), dtype=torch.float64)


@pytest.fixture
def expected(causal):
    """Return −log p(token | start, tokens before), from plain Hugging Face code."""
    network = AutoModelForCausalLM.from_pretrained(causal.name, dtype=torch.float64).eval()
    tokenizer = AutoTokenizer.from_pretrained(causal.name)
    start = tokenizer.cls_token_id if tokenizer.bos_token_id is None else tokenizer.bos_token_id

    def terms(text):
        ids = tokenizer(text, add_special_tokens=False)["input_ids"]
        return causal_terms(network, start, ids)

    return terms


def states(model, texts):
    """Return texts as a batch of content tokens, padded."""
    rows = [model.encode(text) for text in texts]
    width = max(map(len, rows))
    tokens = torch.tensor([ids + [model.mask_id] * (width - len(ids)) for ids in rows])
    return tokens, torch.tensor([len(ids) for ids in rows])


def energies(energy, model, texts):
    tokens, lengths = states(model, texts)
    sites = maskov.Scorer(model).cache(Sequences(tokens, lengths)) if energy.needs_passes else None
    return energy(model, Sequences(tokens, lengths, sites))


def test_terms_are_those_of_one_prefix_at_a_time(causal, expected):
    for score in maskov.score_autoregressive(causal, TEXTS):
        terms = expected(score.text)
        assert score.terms == pytest.approx(terms.tolist(), abs=1e-9)
        assert score.energy == pytest.approx(float(terms.sum()), abs=1e-9)
        assert len(score.tokens) == len(score.terms)


def test_energy_of_a_chain_is_that_of_its_text(model, causal, expected):
    plain = torch.tensor([float(expected(text).sum()) for text in TEXTS], dtype=torch.float64)
    alone = torch.cat([energies(causal, model, [text]) for text in TEXTS])
    backward = energies(causal, model, TEXTS[::-1]).flip(0)
    for found in (energies(causal, model, TEXTS), alone, backward):
        torch.testing.assert_close(found, plain, rtol=0, atol=1e-9)


@pytest.mark.parametrize("causal", ["bert"], indirect=True)
def test_sum_with_a_shared_vocabulary_is_scored_token_by_token(model, causal):
    parts = [maskov.score(model, TEXTS, e) for e in (maskov.Raw(), maskov.Norm(), causal)]
    total = maskov.score(model, TEXTS, 0.5 * maskov.Raw() + 2 * maskov.Norm() + causal)
    for whole, *three in zip(total, *parts, strict=True):
        raw, norm, text = (torch.tensor(part.terms, dtype=torch.float64) for part in three)
        assert whole.terms == pytest.approx((0.5 * raw + 2 * norm + text).tolist(), abs=1e-9)


def test_longest_text_is_scored_and_a_longer_one_refused(causal):
    limit = tiny_models.CAPACITY
    longest = " ".join(["a"] * (limit - 1))
    assert len(maskov.score_autoregressive(causal, [longest])[0].terms) == limit - 1
    for texts, said in (
        ([f"{longest} a a"], f"{limit + 1} tokens"),
        (["a", ""], "line 2 is empty"),
    ):
        with pytest.raises(maskov.InputError, match=said):
            maskov.score_autoregressive(causal, texts)


def test_what_is_no_causal_model_is_refused(model, tmp_path):
    for name, said in ((model.name, "not a causal language model"), (tmp_path / "no", "no causal")):
        with pytest.raises(maskov.ModelError, match=said) as caught:
            maskov.Autoregressive(str(name)).models()
        assert str(caught.value).isprintable()
