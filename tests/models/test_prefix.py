"""Texts that a model reads before every sequence: its conditionals, and what is refused."""

import pytest
import torch

import maskov
from maskov import Norm
from maskov.config import ModelSource
from maskov.errors import InputError
from maskov.models.base import Queries, adapted
from maskov.models.packed import PickledModel
from maskov.models.scorer import Scorer
from maskov.scoring import score_texts
from maskov.types import Sequences
from small import tiny_bert
from tiny_models import FAMILIES, build, texts_for
from tiny_translation import conditional

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
    """Single places and several at once, of one length and of several."""
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


def test_refusals(tmp_path):
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
