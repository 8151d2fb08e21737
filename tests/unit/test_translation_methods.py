"""The ways to translate: their parts, what they come to on a tiny model, drafts and lengths."""

import math
from dataclasses import fields, replace

import numpy as np
import pytest
from sacrebleu.metrics.chrf import CHRF

import maskov
from maskov import InputError, Metropolis, Norm, Schedule, TranslationMethod, translate
from maskov.energies.counting import PredictedLength
from maskov.replay import Replayer
from maskov.translation import METHODS, drafts_of, run_method, translations_of
from tiny_translation import SOURCES, conditional, plain_energies, plain_logits, twin

MODEL = conditional()
KINDS = {"plain": MODEL, "with an end": conditional(target_end=True)}
# A value of each option that is no default.
VALUES = {
    "energy": "raw+0.5*norm", "iterations": 4, "length_beam": 3, "epochs": 7, "temperature": 0.5,
    "target_temperature": 2.0, "force_accept": 1, "chains": 4, "lengths": "drawn",
    "pick": "lowest", "beam": 2,
    "length_power": 0.6, "moves": "site(block=3, block_anneal=0.5)", "delayed": "1,2",
    "start": "mask-predict",
}  # fmt: skip


@pytest.mark.parametrize("name", METHODS)
def test_an_option_changes_a_method_that_takes_it_and_is_refused_by_others(name):
    def parts(**options):
        method = TranslationMethod(name, **options)
        usual = method.settled
        chosen = (usual.chains, usual.lengths, usual.start, method.pick)
        if name == "ar":
            return (*chosen, method.beam, method.length_power)
        return (*chosen, method.kernel(), method.schedule())

    assert {one.name for one in fields(TranslationMethod)} - {"name"} == set(VALUES)
    for option, value in VALUES.items():
        if option in METHODS[name]:
            assert parts(**{option: value}) != parts(), option
        else:
            flag = f"--{option.replace('_', '-')}"
            with pytest.raises(InputError, match=f"'{name}' does not use {flag}: drop it"):
                TranslationMethod(name, **{option: value})


def _plain_mask_predict(model, source: str, length: int, iterations: int):
    """Mask-Predict as published: argmax, then mask again what the model was least sure of."""
    tokens, sure = [model.mask_id] * length, [0.0] * length
    for iteration in range(iterations):
        count = max(1, length * (iterations - iteration) // iterations)
        least = sorted(range(length), key=lambda place: sure[place])
        holes = least[:count]
        scores = plain_logits(model, source, tokens, holes)
        chances = scores.softmax(1)
        scores = scores.masked_fill(model.forbidden, -float("inf"))
        for place in holes:
            tokens[place] = int(scores[place].argmax())
            sure[place] = float(chances[place, tokens[place]])
    return tokens


def _lengths(model, source: str) -> list[int]:
    """Return the lengths of a translation, the likeliest first."""
    scores = model.given([source]).length_scores()[0]
    return scores.argsort(descending=True)[: model.max_length].tolist()


@pytest.mark.parametrize("iterations", [1, 3, 10])
@pytest.mark.parametrize("kind", KINDS)
def test_mask_predict_is_a_plain_one(kind, iterations):
    model = KINDS[kind]
    texts = [*SOURCES, "white white", "red red red green"]
    found = translate(model, texts, TranslationMethod("mask-predict", iterations=iterations))
    greedy = [one.text for one in translate(model, texts, TranslationMethod("greedy"))]
    for source, one in zip(texts, found, strict=True):
        ids = _plain_mask_predict(model, source, _lengths(model, source)[0], iterations)
        assert one.text == model.decode(ids)
    # One iteration is greedy, and more come to something else.
    assert ([one.text for one in found] == greedy) is (iterations == 1)


def test_a_length_beam_takes_the_candidate_of_lowest_energy_a_token():
    method = TranslationMethod("mask-predict", length_beam=4)
    picked = translate(MODEL, SOURCES, method)
    everyone = translate(MODEL, SOURCES, method, every_chain=True)
    assert len(everyone) == 4 * len(SOURCES)
    changed = 0
    for row, (source, one) in enumerate(zip(SOURCES, picked, strict=True)):
        candidates = everyone[4 * row : 4 * row + 4]
        lengths = [len(other.text.split()) for other in candidates]
        assert lengths == _lengths(MODEL, source)[:4]
        assert [other.chain for other in candidates] == [0, 1, 2, 3]
        each = [other.energy_norm / n for other, n in zip(candidates, lengths, strict=True)]
        assert one == candidates[each.index(min(each))]
        changed += one.chain > 0
    assert changed  # the likeliest length is not always the best


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    "method",
    [
        TranslationMethod("greedy"),
        TranslationMethod("mh", epochs=4, lengths="drawn"),
        TranslationMethod("mh", energy="norm", epochs=4),
        TranslationMethod("gibbs", epochs=2),
        TranslationMethod("block-mh", epochs=3),
        TranslationMethod("ar"),
    ],
    ids=lambda method: f"{method.name} {method.settled.energy}",
)
def test_energies_are_those_of_plain_passes(kind, method):
    model = KINDS[kind]
    vocabulary = model.tokenizer.get_vocab()
    for one in translate(model, SOURCES, method, twin()):
        ids = [vocabulary[word] for word in one.text.split()][: model.max_length]
        raw, norm = plain_energies(model, one.source, ids)
        assert one.energy_raw == pytest.approx(raw, abs=1e-9)
        assert one.energy_norm == pytest.approx(norm, abs=1e-9)
        assert norm > 0


def test_the_twin_writes_and_is_needed():
    writer = twin()
    found = translate(MODEL, SOURCES, TranslationMethod("ar", beam=1), writer)
    ids = writer.translate(SOURCES, beam=1)
    assert [one.text for one in found] == [writer.tokenizer.decode(line) for line in ids]
    assert len({one.text for one in found}) > 1
    with pytest.raises(InputError, match="needs an autoregressive model"):
        translate(MODEL, SOURCES, TranslationMethod("ar"))
    writer.network.shape = replace(writer.network.shape, longest=4)
    with pytest.raises(InputError, match=r"^line 5 has 6 tokens; 'tiny-twin' takes at most 3"):
        translate(MODEL, ["red", "", "blue", "", SOURCES[2]], TranslationMethod("ar"), writer)


def test_the_pick_of_the_lowest_looks_at_every_epoch_of_every_chain():
    for energy in ("raw", "norm", "raw+2*norm"):
        method = TranslationMethod(
            "mh", epochs=4, chains=3, pick="lowest", energy=energy, lengths="top"
        )
        run = run_method(MODEL.given(SOURCES), method, seed=3)
        found = translations_of(run, method)
        early = 0
        for row, one in enumerate(found):
            samples = [kept for kept in run.samples if kept.template == row]
            assert len(samples) == 12

            def value(kept, energy=energy):
                parts = {"raw": kept.energy_raw, "norm": kept.energy_norm}
                whole = parts.get(energy, kept.energy_raw + 2 * kept.energy_norm)
                return whole / len(kept.ids)

            best = min(samples, key=value)
            assert (one.text, one.energy_raw) == (best.text, best.energy_raw)
            assert one.chain == best.chain - 3 * row
            early += best.epoch < 3
        assert early


def test_the_least_risk_is_the_one_most_like_the_others():
    def brute(some):
        gains = [
            sum(CHRF().sentence_score(one.text, [other.text]).score for other in some)
            for one in some
        ]
        return some[gains.index(max(gains))]

    method = TranslationMethod("mh", epochs=3, chains=5, pick="mbr", lengths="drawn")
    run = run_method(MODEL.given(SOURCES), method)
    for row, one in enumerate(translations_of(run, method)):
        ends = [kept for kept in run.samples if kept.template == row]
        assert one.text == brute(ends).text


GIVEN = MODEL.given(SOURCES)
DRAFTS = ["blue blue", "red", "green white red", "white white white white"]
FIXED = TranslationMethod("mh", start="drafts", epochs=3, chains=2)
SAMPLING = replace(FIXED, lengths="sampled", pick="lowest")


@pytest.mark.parametrize("method", [FIXED, SAMPLING, TranslationMethod("gibbs", start="drafts")])
def test_chains_start_from_their_drafts(method):
    run = run_method(GIVEN, method, DRAFTS, seed=2)
    replayer = Replayer(run, GIVEN)
    for chain in range(method.settled.chains * len(DRAFTS)):
        first = replayer.epoch(chain, 0)
        assert first.before == GIVEN.encode(DRAFTS[chain // method.settled.chains])
        assert first.agrees
    inputs = run.manifest.inputs
    assert inputs.texts == tuple(DRAFTS)
    other = run_method(GIVEN, method, DRAFTS[::-1], seed=2)
    assert run.manifest.signature != other.manifest.signature
    assert inputs.chosen == tuple((len(draft.split()),) * method.settled.chains for draft in DRAFTS)


def test_the_autoregressive_model_writes_the_drafts():
    writer = twin()
    method = TranslationMethod("mh", start="autoregressive", epochs=3)
    written = [one.text for one in translate(MODEL, SOURCES, TranslationMethod("ar"), writer)]
    assert drafts_of(GIVEN, writer) == written
    found = translate(MODEL, SOURCES, method, writer, seed=4)
    same = translate(MODEL, SOURCES, replace(method, start="drafts"), drafts=written, seed=4)
    assert found == same
    assert [one.text for one in found] != written
    with pytest.raises(InputError, match="start 'autoregressive' needs an autoregressive model"):
        translate(MODEL, SOURCES, method)


def test_a_draft_that_cannot_be_read_is_replaced(monkeypatch):
    writer = twin()
    long = [MODEL.encode("red")[0]] * (MODEL.max_length + 1)
    kept = MODEL.encode("red blue")
    monkeypatch.setattr(writer, "translate", lambda *_, **__: [kept, [], long, kept])
    drafts = drafts_of(GIVEN, writer)
    others = [one.text for one in translate(MODEL, SOURCES)]
    assert drafts == ["red blue", others[1], others[2], "red blue"]


METHOD = TranslationMethod("mh", lengths="sampled", epochs=4, chains=2, pick="lowest")


def test_chains_start_from_mask_predict_at_the_best_of_five_lengths():
    best = translate(MODEL, SOURCES, TranslationMethod("mask-predict", length_beam=5))
    run = maskov.sample(
        GIVEN, maskov.Gibbs(maskov.Site(maskov.MaskedConditional(temperature=0))),
        Schedule(epochs=1), chains=2, lengths="searched", start="mask-predict",
    )  # fmt: skip
    lengths = [len(one.text.split()) for one in best]
    assert [row for row, _ in run.manifest.inputs.chosen] == lengths
    assert all(len(set(row)) == 1 for row in run.manifest.inputs.chosen)
    # With everything rejected, chains stay where they started.
    never = Metropolis(Norm() + PredictedLength(), target_temperature=1e-9)
    stay = maskov.sample(
        GIVEN, never, Schedule(epochs=1), chains=1, lengths="searched", start="mask-predict"
    )
    before = [one.energy_norm for one in best]
    assert all(one.energy_norm <= was + 1e-9 for one, was in zip(stay.samples, before, strict=True))


def test_lengths_change_within_the_bounds_and_are_recorded():
    hot = replace(METHOD, target_temperature=4.0)
    run = run_method(GIVEN, hot, seed=1)
    inputs, lengths = run.manifest.inputs, np.asarray(run.traces["lengths"])
    assert inputs.sampled
    assert (lengths != lengths[0]).any()
    scores = GIVEN.length_scores()
    for row, (fewest, most) in enumerate(inputs.bounds):
        own = lengths[:, 2 * row : 2 * row + 2]
        assert fewest <= own.min()
        assert own.max() <= most
    for one in run.samples:
        assert len(one.ids) == lengths[one.epoch, one.chain]
        predicted = -float(scores[one.template, len(one.ids)])
        assert one.energies["predicted_length"] == pytest.approx(predicted, abs=1e-12)
        assert one.energies["target"] == pytest.approx(one.energy_norm + predicted / 2, abs=1e-9)
    assert "lengths:searched,sampled" in run.signature
    assert "energy:norm+0.5*predicted_length" in run.signature
    assert run.diagnose().groups
    assert all(
        Replayer(run, GIVEN).epoch(chain, epoch).agrees for chain in (0, 3) for epoch in (0, 3)
    )


def test_epochs_that_accept_everything_are_never_the_lowest():
    method = TranslationMethod("mh", lengths="sampled", epochs=3, pick="lowest", force_accept=2)
    run = run_method(GIVEN, method)
    forced = [one for one in run.samples if one.epoch < 2]
    assert all(math.isnan(one.energies["target"]) for one in forced)
    ends = [one.text for one in run.samples if one.epoch == 2]
    assert [one.text for one in translations_of(run, method)] == ends
