"""Each family gives the numbers of its own network, however its passes are batched."""

from dataclasses import dataclass
from typing import Any

import pytest
import torch
from transformers import AutoModelForMaskedLM, AutoTokenizer

import maskov
import tiny_models
from maskov.models.base import Queries
from plain_energies import content_places, masked_logits, site_terms

# In float64 any true difference stands far above the rounding.
CLOSE = {"rtol": 0.0, "atol": 1e-9}


@dataclass(frozen=True)
class Case:
    """A family's model in maskov beside the same folder in plain Hugging Face."""

    family: str
    model: maskov.HuggingFaceModel
    network: Any
    tokenizer: Any
    texts: list[str]


@pytest.fixture(scope="module", params=tiny_models.FAMILIES)
def case(request, tmp_path_factory):
    family = request.param
    folder = str(tiny_models.build(family, tmp_path_factory.mktemp(family), torch.float64))
    return Case(
        family,
        maskov.HuggingFaceModel.load(folder, dtype=torch.float64),
        AutoModelForMaskedLM.from_pretrained(folder, dtype=torch.float64).eval(),
        AutoTokenizer.from_pretrained(folder),
        tiny_models.texts_for(family),
    )


def queries_of(case, masked_places):
    """Return one query per (text, places), padded with an ordinary word, not with padding."""
    rows = [case.model.encode(text) for text, _ in masked_places]
    width = max(map(len, rows))
    filler = rows[0][0]
    masked = torch.zeros(len(rows), width, dtype=torch.bool)
    for row, (_, places) in enumerate(masked_places):
        masked[row, places] = True
    tokens = torch.tensor([ids + [filler] * (width - len(ids)) for ids in rows])
    return Queries(tokens, torch.tensor([len(ids) for ids in rows]), masked)


def masks_of(case):
    """Mask one place, the first and the last, every second, and all, in texts of mixed lengths."""
    masks = []
    for text in case.texts:
        length = len(case.model.encode(text))
        masks += [(text, [length // 2]), (text, sorted({0, length - 1}))]
        masks += [(text, list(range(0, length, 2))), (text, list(range(length)))]
    return masks


def own_logits(case, masks):
    found = []
    for text, places in masks:
        ids, content = content_places(case.tokenizer, text)
        asked = [content[place] for place in places]
        found.append(masked_logits(case.network, case.tokenizer, ids, asked))
    return torch.cat(found)


def test_familiar_name_with_another_head_is_served_by_its_own_forward(tmp_path):
    folder = tiny_models.build("bert", tmp_path, torch.float64)
    network = AutoModelForMaskedLM.from_pretrained(folder, dtype=torch.float64).eval()
    tokenizer = AutoTokenizer.from_pretrained(folder)
    network.cls.register_forward_hook(lambda module, given, logits: 2 * logits)
    model = maskov.HuggingFaceModel(network, tokenizer, "twice the logits")
    assert model.head is None
    score = maskov.score(model, ["the cat sat"])[0]
    expected = site_terms(network, tokenizer, "the cat sat")[0]
    assert score.terms == pytest.approx(expected.tolist(), abs=1e-9)


@pytest.mark.parametrize("padded", [True, False])
def test_logits_at_masked_positions_are_the_networks_own(case, padded):
    # Equal lengths take the path that sends no attention mask.
    masks = [mask for mask in masks_of(case) if padded or mask[0] == case.texts[1]]
    ours = case.model.logits(case.model.hidden(queries_of(case, masks)))
    torch.testing.assert_close(ours, own_logits(case, masks), **CLOSE)


@pytest.mark.parametrize(("energy", "which"), [(maskov.Raw(), 0), (maskov.Norm(), 1)], ids=str)
def test_energy_is_that_of_masking_one_token_at_a_time(case, energy, which):
    for score in maskov.score(case.model, case.texts, energy):
        expected = site_terms(case.network, case.tokenizer, score.text)[which]
        terms = torch.tensor(score.terms, dtype=torch.float64)
        torch.testing.assert_close(terms, expected, **CLOSE)
        assert score.energy == pytest.approx(float(expected.sum()), abs=1e-8)


def test_longest_text_is_scored_and_one_more_token_refused(case):
    word = "A" if case.family == "esm" else "a"
    longest = " ".join([word] * case.model.max_length)
    score = maskov.score(case.model, [longest], maskov.Norm())[0]
    assert len(score.tokens) == case.model.max_length == tiny_models.CAPACITY - 2
    expected = float(site_terms(case.network, case.tokenizer, longest)[1].sum())
    assert score.energy == pytest.approx(expected, abs=1e-8)
    with pytest.raises(maskov.InputError, match=f"{case.model.max_length + 1} tokens"):
        maskov.score(case.model, [f"{longest} {word}"])
