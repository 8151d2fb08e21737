"""Label smoothing that is removed from a model: its scores, and what is refused."""

import json
import math
from dataclasses import asdict

import pytest
import torch

import maskov
from maskov.config import ModelSource, from_json
from maskov.errors import InputError
from maskov.models.base import Queries
from maskov.models.packed import FLOOR, PickledModel, without_smoothing
from maskov.models.scorer import Scorer
from maskov.types import Sequences
from small import tiny_bert
from tiny_models import FAMILIES, build, texts_for
from tiny_translation import SOURCES, conditional

SHARE = 0.1
WORDS = "red green blue white"


def _plain(scores: list[float], share: float) -> list[float]:
    """Write the formula out for one position."""
    largest = max(scores)
    total = largest + math.log(math.fsum(math.exp(score - largest) for score in scores))
    return [
        score + math.log(max(1 - share / len(scores) * math.exp(total - score), 0.01))
        for score in scores
    ]


def _random(rows: int = 5, size: int = 40, scale: float = 4.0) -> torch.Tensor:
    generator = torch.Generator().manual_seed(0)
    return scale * torch.randn(rows, size, generator=generator, dtype=torch.float64)


def _removed(scores: torch.Tensor, share: float = SHARE) -> torch.Tensor:
    return without_smoothing(scores, scores.logsumexp(1, keepdim=True), share, scores.shape[1])


@pytest.mark.parametrize("share", [1e-6, 0.1, 0.9])
def test_scores_are_those_of_the_formula(share):
    scores = _random()
    found = _removed(scores, share)
    plain = torch.tensor([_plain(row, share) for row in scores.tolist()], dtype=torch.float64)
    torch.testing.assert_close(found, plain, atol=1e-12, rtol=0)
    floored = found - scores < math.log(FLOOR) + 1e-12
    assert floored.equal(scores.softmax(1) * (1 - FLOOR) < share / scores.shape[1])
    assert floored.any()
    assert not floored.all()


def test_what_smoothing_added_is_removed():
    """(1 − ε) p + ε/V becomes p, but for tokens that p has almost none of."""
    wanted = _random(scale=1.0).softmax(1)
    smoothed = ((1 - SHARE) * wanted + SHARE / wanted.shape[1]).log()
    torch.testing.assert_close(_removed(smoothed + 3).softmax(1), wanted, atol=1e-12, rtol=0)
    certain = torch.zeros(1, 50, dtype=torch.float64)
    certain[0, 7] = 1.0
    smoothed = ((1 - SHARE) * certain + SHARE / 50).log()
    found = _removed(smoothed).softmax(1)
    # Of the tail a hundredth is left.
    tail = FLOOR * SHARE * 49 / 50
    assert found[0, 7].item() == pytest.approx((1 - SHARE) / (1 - SHARE + tail), abs=1e-12)
    assert found.min() > 0


def _hidden(model, ids: list[int]) -> torch.Tensor:
    tokens = torch.tensor([ids])
    source = torch.tensor([0]) if getattr(model, "sources", None) is not None else None
    masked = torch.ones_like(tokens, dtype=torch.bool)
    return model.hidden(Queries(tokens, torch.tensor([len(ids)]), masked, source))


@pytest.mark.parametrize("family", [*FAMILIES, "translation"])
def test_all_scores_and_single_ones_agree(family, tmp_path, monkeypatch):
    if family == "translation":
        plain = conditional().given(SOURCES)
        ids = plain.encode("red blue white green")
    else:
        plain = maskov.load(build(family, tmp_path), "cpu", "float64")
        ids = plain.encode(texts_for(family)[1])[:6]
    model = plain.without_smoothing(SHARE)
    hidden = _hidden(model, ids)
    scores, trained = model.logits(hidden), plain.logits(hidden)
    torch.testing.assert_close(scores, _removed(trained), atol=1e-12, rtol=0)
    tokens = torch.arange(len(ids)) * 3 % model.vocabulary_size
    wanted = scores.gather(1, tokens[:, None]).squeeze(1)
    for most in (2**24, 2 * model.vocabulary_size):  # at once, and in portions
        monkeypatch.setattr("maskov.models.base._HEAD_SCORES", most)
        torch.testing.assert_close(model.logit_of(hidden, tokens), wanted, atol=1e-12, rtol=0)
    assert model.logit_of(hidden[:0], tokens[:0]).shape == (0,)
    # Energies use either, with and without the normaliser.
    sequences = Sequences(
        torch.tensor([ids]),
        torch.tensor([len(ids)]),
        source=torch.tensor([0]) if family == "translation" else None,
    )
    with_it, without = (Scorer(model).cache(sequences, normaliser) for normaliser in (True, False))
    torch.testing.assert_close(with_it.logit, without.logit, atol=1e-12, rtol=0)


@pytest.mark.parametrize("kind", ["masked", "translation"])
def test_it_is_part_of_what_a_model_is(kind):
    plain = (
        tiny_bert(WORDS, torch.float32) if kind == "masked" else conditional(dtype=torch.float32)
    )
    model = plain.without_smoothing(SHARE)
    prints = {one.fingerprint() for one in (plain, model, plain.without_smoothing(0.2))}
    assert len(prints) == 3
    # Whichever comes first, the precision, the sources or this.
    coarse = [
        plain.in_precision("bfloat16").without_smoothing(SHARE),
        model.in_precision("bfloat16"),
    ]
    if kind == "translation":
        coarse += [
            model.given(SOURCES).in_precision("bfloat16"),
            plain.given(SOURCES).in_precision("bfloat16").without_smoothing(SHARE),
        ]
    for one in coarse:
        assert one.fingerprint() == model.fingerprint()
        assert one.exact.source.remove_smoothing == one.source.remove_smoothing == SHARE
    for one in (model, *coarse):
        there = PickledModel.of(one).unpack(torch.device("cpu"))
        assert (there.source.remove_smoothing, there.fingerprint()) == (SHARE, model.fingerprint())
    if kind == "masked":
        prefixed = [
            model.with_prefix("red"),
            plain.with_prefix("red").without_smoothing(SHARE),
            PickledModel.of(model.with_prefix("red")).unpack(torch.device("cpu")),
        ]
        assert len({one.fingerprint() for one in prefixed}) == 1
        assert prefixed[0].fingerprint() != model.fingerprint()


def test_refusals():
    model = tiny_bert(WORDS)
    for share in (-0.1, 1.0, 1.5, math.nan, math.inf):
        for call in (
            lambda share=share: model.without_smoothing(share),
            lambda share=share: maskov.load("untrained", "cpu", remove_smoothing=share),
            lambda share=share: ModelSource("untrained", remove_smoothing=share),
        ):
            with pytest.raises(InputError, match=r"must be at least 0 and below 1, not .*\.$"):
                call()
    with pytest.raises(InputError, match=r"already: 0\.1"):
        model.without_smoothing(SHARE).without_smoothing(SHARE)
    with pytest.raises(InputError, match="drop remove_smoothing"):
        maskov.load("counterexample", remove_smoothing=SHARE)
    data = asdict(ModelSource("untrained", remove_smoothing=SHARE))
    assert from_json(ModelSource, json.dumps(data)).remove_smoothing == SHARE
    for wrong in (2.0, "0.1", None):
        with pytest.raises(InputError):
            from_json(ModelSource, json.dumps(data | {"remove_smoothing": wrong}))
