"""A prefix and removed smoothing are part of a model: its scores, its identity, what is refused."""

import json
import math
from dataclasses import asdict

import pytest
import torch

import maskov
from maskov import Norm
from maskov.config import ModelSource, from_json
from maskov.errors import InputError
from maskov.models.base import Queries, adapted
from maskov.models.packed import FLOOR, PickledModel, without_smoothing
from maskov.models.scorer import Scorer
from maskov.scoring import score_texts
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
    """Whichever comes first, the precision, the sources, the prefix or this; and when sent."""
    single = torch.float32
    plain = tiny_bert(WORDS, single) if kind == "masked" else conditional(dtype=single)
    model = plain.without_smoothing(SHARE)
    prints = {one.fingerprint() for one in (plain, model, plain.without_smoothing(0.2))}
    assert len(prints) == 3
    same = [plain.in_precision("bfloat16").without_smoothing(SHARE), model.in_precision("bfloat16")]
    if kind == "translation":
        given = plain.given(SOURCES).in_precision("bfloat16")
        same += [model.given(SOURCES).in_precision("bfloat16"), given.without_smoothing(SHARE)]
    else:
        both = [model.with_prefix("red"), plain.with_prefix("red").without_smoothing(SHARE)]
        assert both[0].fingerprint() == both[1].fingerprint() != model.fingerprint()
    for one in (model, *same):
        there = PickledModel.of(one).unpack(torch.device("cpu"))
        assert one.fingerprint() == there.fingerprint() == model.fingerprint()
        assert (one.exact or one).source.remove_smoothing == SHARE
        assert one.source.remove_smoothing == there.source.remove_smoothing == SHARE


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


PREFIX = "red blue"
MODEL = tiny_bert("red green blue white")
PREFIXED = MODEL.with_prefix(PREFIX)


def _ids(rows: list[list[int]], model) -> Sequences:
    lengths = torch.tensor([len(row) for row in rows])
    tokens = torch.full((len(rows), int(lengths.max())), model.mask_id)
    for number, row in enumerate(rows):
        tokens[number, : len(row)] = torch.tensor(row)
    return Sequences(tokens, lengths)


@pytest.mark.parametrize("precision", ["float64", "bfloat16"])
@pytest.mark.parametrize("family", FAMILIES)
def test_conditionals_are_those_of_the_whole_text(family, precision, tmp_path):
    folder, texts = build(family, tmp_path), texts_for(family)
    before = texts[2]
    plain = maskov.load(folder, "cpu", precision)
    model = maskov.load(folder, "cpu", precision, prefix=before)
    held = plain.encode(before)
    assert model.max_length == plain.max_length - len(held)
    rows = [plain.encode(text)[:6] for text in texts[:3]]
    for some in (rows, rows[1:2] * 2):
        short, long = _ids(some, model), _ids([held + row for row in some], plain)
        sites, whole = Scorer(model).cache(short, True), Scorer(plain).cache(long, True)
        for number, row in enumerate(some):
            here, there = slice(0, len(row)), slice(len(held), len(held) + len(row))
            close = {"atol": 1e-9 if precision == "float64" else 0.05, "rtol": 0}
            for name in ("logit", "log_normaliser"):
                torch.testing.assert_close(
                    getattr(sites, name)[number, here], getattr(whole, name)[number, there], **close
                )
        masked = short.inside & (torch.arange(short.tokens.shape[1]) % 2 == 0)
        shifted = torch.nn.functional.pad(masked, (len(held), 0))
        found = model.logits(model.hidden(Queries(short.tokens, short.lengths, masked)))
        wanted = plain.logits(plain.hidden(Queries(long.tokens, long.lengths, shifted)))
        torch.testing.assert_close(found, wanted, **close)


def test_the_prefix_is_part_of_what_a_model_is():
    models = [MODEL, PREFIXED, MODEL.with_prefix("blue red")]
    assert len({model.fingerprint() for model in models}) == 3
    # Whichever comes first, the prefix or the precision; and in another process.
    low = PREFIXED.in_precision("bfloat16")
    for model in (PREFIXED, low, MODEL.in_precision("bfloat16").with_prefix(PREFIX)):
        there = PickledModel.of(model).unpack(torch.device("cpu"))
        for one in (model, there):
            assert one.fingerprint() == PREFIXED.fingerprint()
            assert (one.exact or one).source.prefix == one.source.prefix == PREFIX
        found, wanted = (score_texts(one, ["green"], Norm())[0].terms for one in (there, model))
        assert found == wanted


def test_refusals_of_prefixes(tmp_path):
    with pytest.raises(InputError, match="drop prefix"):
        maskov.load("counterexample", "cpu", prefix="red")
    with pytest.raises(InputError, match="drop prefix"):
        adapted(conditional(), ModelSource("tiny", prefix="red"), "float64")
    for text in ("", "  ", "purple", "red [MASK]", "[SEP]"):
        with pytest.raises(InputError, match="has no words, or some"):
            MODEL.with_prefix(text)
    assert MODEL.with_prefix(" ".join(["red"] * 29)).max_length == 1
    with pytest.raises(InputError, match="leaves no room"):
        MODEL.with_prefix(" ".join(["red"] * 30))
    with pytest.raises(InputError, match="already"):
        PREFIXED.with_prefix("green")
