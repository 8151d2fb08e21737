"""The conditional masked LM: passes against plain ones, sources, lengths, precision, identity."""

import pytest
import torch
from scipy import stats

from maskov import InputError, ModelError, Norm, Raw, translate
from maskov.models import Queries
from maskov.models.conditional import ConditionalModel, choose_lengths, source_ids
from maskov.models.scorer import Scorer
from maskov.types import Sequences
from tiny_translation import (
    LONGEST,
    SOURCES,
    SPECIAL,
    WORDS,
    conditional,
    network,
    plain_logits,
    tokenizer,
)

MODEL, ENDED = conditional(), conditional(target_end=True)
KINDS = {
    "plain": MODEL,
    "with an end": ENDED,
    "norms after the sublayers": conditional(norm_first=False),
}
CLOSE = 1e-9
# A statistical test fails a correct program with this probability.
ALPHA = 1e-6


def passes(count: int = 24, seed: int = 0):
    """Return targets of mixed lengths with mixed sources, padded with what must not be read."""
    generator = torch.Generator().manual_seed(seed)

    def draw(low, high, *size):
        return torch.randint(low, high, size, generator=generator)

    width = LONGEST - 1
    lengths = draw(1, width + 1, count)
    lengths[:2] = torch.tensor([1, width])
    first = len(SPECIAL)
    tokens = draw(first, first + len(WORDS), count, width)
    place = (torch.rand(count, generator=generator) * lengths).long()
    return tokens, lengths, place, draw(0, len(SOURCES), count)


def energies(model, tokens, lengths, source):
    whole = Sequences(tokens, lengths, source=source)
    known = Sequences(tokens, lengths, Scorer(model).cache(whole), source)
    return torch.stack([Raw()(model, known), Norm()(model, known)])


@pytest.mark.parametrize("kind", KINDS)
def test_mixed_passes_are_those_of_one_by_one(kind):
    model = KINDS[kind].given(SOURCES)
    tokens, lengths, place, source = passes()
    found = model.logits(model.hidden_at(tokens, lengths, place, source))
    for row, scores in enumerate(found):
        target = tokens[row, : lengths[row]].tolist()
        where = int(place[row])
        plain = plain_logits(model, SOURCES[source[row]], target, [where])[where]
        assert (plain - scores).abs().max() < CLOSE
    # What one reads matters: another source would have been noticed.
    others = model.logits(model.hidden_at(tokens, lengths, place, (source + 1) % len(SOURCES)))
    assert ((others - found).abs().amax(1) > 1e-3).all()


@pytest.mark.parametrize("kind", KINDS)
def test_other_ways_to_the_same_passes(kind, monkeypatch):
    kept = KINDS[kind].given(SOURCES)
    monkeypatch.setattr("maskov.models.conditional._CPU_KEPT", 0)
    unkept = KINDS[kind].given(SOURCES)
    assert (kept.packs, unkept.packs) == (True, False)
    tokens, lengths, place, source = passes(seed=7)
    source = 3 - source % 2 * 2
    found = kept.hidden_at(tokens, lengths, place, source)
    assert (found - unkept.hidden_at(tokens, lengths, place, source)).abs().max() < CLOSE
    masked = torch.arange(tokens.shape[1]) == place[:, None]
    whole = kept.hidden(Queries(tokens, lengths, masked, source))
    assert (found - whole).abs().max() < CLOSE


@pytest.mark.parametrize("kind", KINDS)
def test_lengths_are_those_the_encoder_names(kind):
    model = KINDS[kind].given(SOURCES)
    scores = model.length_scores()
    assert scores.shape == (len(SOURCES), model.max_length + 1)
    assert (scores[:, 0] == -torch.inf).all()
    assert (scores.exp().sum(1) - 1).abs().max() < CLOSE
    for row, text in enumerate(SOURCES):
        ids = torch.tensor(source_ids(model, [text]))
        _, _, plain = model.network.read(ids, torch.ones_like(ids, dtype=torch.bool))
        # A model with an end counts it: length n of ours is its n + 1.
        begin = 2 if model.network.shape.target_end else 1
        chances = plain[0, begin:].softmax(0)
        assert (scores[row, 1:].exp() - chances).abs().max() < CLOSE
        best = int(plain[0].argmax()) - (begin - 1)
        if best > 0:
            assert choose_lengths(model, "best", 2, 0)[row] == [best] * 2


def test_drawn_lengths_follow_their_distribution():
    """χ² over 4000 chains of each of two sources; it fails by chance in ALPHA of all seeds each.

    Power: lengths that came from the other source's distribution would be let through with a
    probability below 10^-9. The seed is the first one tried.
    """
    count = 4000
    model = MODEL.given([SOURCES[0], SOURCES[3]])
    chances = model.length_scores().exp()[:, 1:]
    drawn = torch.tensor(choose_lengths(model, "drawn", count, seed=1))
    critical = stats.chi2.isf(ALPHA, LONGEST - 1)
    for row, other in ((0, 1), (1, 0)):
        counts = torch.bincount(drawn[row] - 1, minlength=LONGEST).double()
        expected = count * chances[row]
        assert expected.min() > 5
        assert stats.chisquare(counts.numpy(), expected.numpy()).pvalue > ALPHA
        distance = float(((chances[other] - chances[row]) ** 2 / chances[row]).sum())
        assert stats.ncx2.cdf(critical, LONGEST - 1, count * distance) < 1e-9
    assert choose_lengths(model, "drawn", 5, 1)[0] == drawn[0, :5].tolist()
    assert choose_lengths(model, "drawn", 5, 2) != choose_lengths(model, "drawn", 5, 1)


def test_coarse_passes_keep_the_head_and_shift_energies_a_little():
    model = conditional(dtype=torch.float32)
    coarse = model.in_precision("bfloat16")
    assert (coarse.exact, coarse.precision) == (model, "bfloat16")
    assert coarse.encoder.embedding.tokens.dtype == torch.bfloat16
    assert model.encoder.embedding.tokens.dtype == torch.float32
    tokens, lengths, place, source = passes()
    given, rounded = model.given(SOURCES), coarse.given(SOURCES)
    # The sources are read exactly, whichever of the two reads them.
    assert torch.equal(given.sources.states, rounded.sources.states)
    assert rounded.exact.sources is rounded.sources
    hidden = rounded.hidden_at(tokens, lengths, place, source)
    assert hidden.dtype == torch.float32
    assert torch.equal(given.logits(hidden), rounded.logits(hidden))
    assert torch.equal(given.logit_of(hidden, tokens[:, 0]), rounded.logit_of(hidden, tokens[:, 0]))
    exact = energies(given, tokens, lengths, source)
    shift = (energies(rounded, tokens, lengths, source) - exact).abs()
    assert 1e-4 < shift.mean() < 0.2 * exact.abs().mean()
    # Given its sources first, it is the same.
    again = energies(given.in_precision("bfloat16"), tokens, lengths, source)
    assert torch.equal(again, energies(rounded, tokens, lengths, source))


def test_what_is_refused():
    tokens, lengths, place, source = passes()
    masked = torch.arange(tokens.shape[1]) == place[:, None]
    for ask, said in (
        (lambda: MODEL.hidden_at(tokens, lengths, place, source), "give sources"),
        (lambda: MODEL.hidden(Queries(tokens, lengths, masked, source)), "give sources"),
        (lambda: MODEL.given(SOURCES).hidden_at(tokens, lengths, place), "give sources"),
        (lambda: MODEL.given([]), "nothing to translate"),
        (lambda: MODEL.given(["red", "  "]), "line 2 is empty"),
        (lambda: translate(MODEL, ["red", "", "red \ud800 blue"]), "line 3 is not UTF-8"),
        (lambda: translate(MODEL, ["red", "", "\udcff"]), "line 3 is not UTF-8"),
    ):
        with pytest.raises(InputError, match=said):
            ask()
    with pytest.raises(ModelError, match="'tiny' is autoregressive"):
        ConditionalModel(network(causal=True), tokenizer(), "tiny")
