"""Translations that start from drafts: given ones, or those of the autoregressive model."""

from dataclasses import replace

import pytest

from maskov import InputError, TranslationMethod, translate
from maskov.config import Inputs
from maskov.replay import Replayer
from maskov.runs.preparation import layout_of
from maskov.translation import drafts_of, run_method
from tiny_translation import SOURCES, conditional, twin

MODEL = conditional()
GIVEN = MODEL.given(SOURCES)
DRAFTS = ["blue blue", "red", "green white red", "white white white white"]
FIXED = TranslationMethod("mh", start="drafts", epochs=3, chains=2)
SAMPLING = replace(FIXED, lengths="sampled", pick="lowest")


@pytest.mark.parametrize("method", [FIXED, SAMPLING, TranslationMethod("gibbs", start="drafts")])
def test_chains_start_from_their_drafts(method):
    run = run_method(GIVEN, method, DRAFTS, seed=2)
    replayer = Replayer(run, GIVEN)
    for chain in range(method.many * len(DRAFTS)):
        first = replayer.epoch(chain, 0)
        assert first.before == GIVEN.encode(DRAFTS[chain // method.many])
        assert first.agrees
    inputs = run.manifest.inputs
    assert inputs.texts == tuple(DRAFTS)
    other = run_method(GIVEN, method, DRAFTS[::-1], seed=2)
    assert run.manifest.signature != other.manifest.signature
    assert inputs.chosen == tuple((len(draft.split()),) * method.many for draft in DRAFTS)


def test_lengths_stay_or_are_sampled():
    sizes = [len(draft.split()) for draft in DRAFTS for _ in range(2)]
    fixed = run_method(GIVEN, FIXED, DRAFTS)
    assert (fixed.traces["lengths"] == sizes).all()
    free = run_method(GIVEN, replace(SAMPLING, epochs=12, target_temperature=3.0), DRAFTS)
    moved = (free.traces["lengths"] != sizes).any(0)
    assert moved.reshape(len(DRAFTS), 2).any(1).all()


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


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"drafts": DRAFTS[:3]}, "there are 3 drafts of 4 lines"),
        ({"drafts": [*DRAFTS[:3], ""]}, "draft 4 is empty"),
        ({"drafts": [*DRAFTS[:3], "red <mask>"]}, "draft 4 holds a mask"),
        ({"drafts": DRAFTS, "start": "greedy"}, "--drafts or from --start, not both"),
        ({"drafts": DRAFTS, "lengths": "top"}, "drop --lengths top"),
        ({"drafts": DRAFTS, "method": "mask-predict"}, "'mask-predict' does not use --drafts"),
        ({"drafts": DRAFTS, "method": TranslationMethod("mh")}, "both or none"),
        ({"start": "drafts"}, "--drafts FILE"),
        ({"start": "autoregressive", "lengths": "searched"}, "drop --lengths searched"),
    ],
)
def test_what_is_refused(options, reason):
    with pytest.raises(InputError, match=reason):
        translate(MODEL, SOURCES, **{"method": "mh"} | options)


def test_lengths_of_a_manifest_are_those_of_its_drafts():
    texts = tuple(DRAFTS)
    sizes = [len(draft.split()) for draft in DRAFTS]
    good = Inputs(sources=tuple(SOURCES), texts=texts, chosen=tuple((size,) for size in sizes))
    assert [len(tokens) for tokens in layout_of(GIVEN, good, 1, 0).tokens] == sizes
    for wrong in (tuple((size + 1,) for size in sizes), tuple((size, size) for size in sizes)):
        with pytest.raises(InputError, match="not the lengths of the drafts"):
            layout_of(GIVEN, replace(good, chosen=wrong), 1, 0)
