"""BLEU and chrF against sacreBLEU called directly, and what is said where they have no meaning."""

import random
import sys

import numpy as np
import pytest
from sacrebleu.metrics import BLEU, CHRF

from maskov.errors import InputError
from maskov.evaluation import compare

REFERENCES = [
    "A man in an orange hat is looking at something.",
    "A dog runs across the green grass in front of a fence.",
    "Five people wearing winter jackets, in the snow.",
    "People are fixing the roof of a house.",
    "A man in light clothes photographs a group of men.",
]
TRANSLATIONS = [
    "A man with an orange hat looks at something.",
    "A dog runs over green grass before a white fence.",
    "Five people in winter jackets stand in the snow.",
    "People repair a roof.",
    "A man dressed lightly photographs a group of men in suits.",
]


def test_the_numbers_are_those_of_sacrebleu():
    found = compare(TRANSLATIONS, REFERENCES)
    bleu, chrf = BLEU(), CHRF()
    words = bleu.corpus_score(TRANSLATIONS, [REFERENCES], n_bootstrap=1000)
    letters = chrf.corpus_score(TRANSLATIONS, [REFERENCES], n_bootstrap=1000)
    assert found.sentences == 5
    assert (found.bleu, found.bleu_interval) == (words.score, words._ci)
    assert (found.brevity_penalty, found.length_ratio) == (words.bp, words.sys_len / words.ref_len)
    assert found.chrf == letters.score
    # sacreBLEU's own resamples of chrF are in single precision.
    assert found.chrf_interval == pytest.approx(letters._ci, rel=1e-4)
    assert found.bleu_signature == str(bleu.get_signature())
    assert found.chrf_signature == str(chrf.get_signature())
    # Far from the ends, so that none of the above is equal for want of anything to count.
    assert 10 < found.bleu < 90
    assert 10 < found.chrf < 90
    assert 0 < found.brevity_penalty < 1
    assert found.bleu_interval > 1
    assert found.chrf_interval > 1
    assert found.notes == []


def test_the_signatures_say_how_the_intervals_came_about():
    found = compare(TRANSLATIONS, REFERENCES, resamples=50)
    for signature in (found.bleu_signature, found.chrf_signature):
        assert {"nrefs:1", "bs:50", "seed:12345", "case:mixed"} < set(signature.split("|"))
    assert {"tok:13a", "smooth:exp"} < set(found.bleu_signature.split("|"))
    assert {"nc:6", "nw:0"} < set(found.chrf_signature.split("|"))


def test_the_same_texts_are_perfect():
    found = compare(REFERENCES, REFERENCES)
    assert found.bleu == pytest.approx(100)
    assert found.chrf == pytest.approx(100)
    assert found.brevity_penalty == found.length_ratio == 1
    assert found.bleu_interval == pytest.approx(0, abs=1e-9)
    assert found.chrf_interval == pytest.approx(0, abs=1e-9)


def test_two_calls_agree_and_leave_the_global_generator_alone():
    # Python's own generator cannot be watched here: the types checked in tests draw from it.
    before = repr(np.random.get_state())  # noqa: NPY002 - the global state is what is tested
    first = compare(TRANSLATIONS, REFERENCES)
    assert repr(np.random.get_state()) == before  # noqa: NPY002
    np.random.random()  # noqa: NPY002
    random.random()
    assert compare(TRANSLATIONS, REFERENCES) == first


def test_another_seed_of_sacrebleu_is_used_and_signed(monkeypatch):
    monkeypatch.setenv("SACREBLEU_SEED", "7")
    found = compare(TRANSLATIONS, REFERENCES)
    directly = BLEU().corpus_score(TRANSLATIONS, [REFERENCES], n_bootstrap=1000)
    assert found.bleu_interval == directly._ci
    assert "|seed:7|" in found.bleu_signature
    assert "|seed:7|" in found.chrf_signature


@pytest.mark.parametrize("seed", ["none", "", "-1", "x"])
def test_a_seed_that_cannot_be_repeated_is_refused(monkeypatch, seed):
    monkeypatch.setenv("SACREBLEU_SEED", seed)
    with pytest.raises(InputError, match=f"SACREBLEU_SEED is '{seed}'"):
        compare(TRANSLATIONS, REFERENCES)


def test_an_empty_translation_is_scored_at_its_place():
    """Dropped, it would shift all that come after it, or not count as a bad one."""
    texts = ["", *REFERENCES[1:]]
    found = compare(texts, REFERENCES)
    assert found.bleu == BLEU().corpus_score(texts, [REFERENCES]).score
    # All words that are there are right: what is missing costs by the length alone.
    assert found.bleu == pytest.approx(100 * found.brevity_penalty)
    assert found.brevity_penalty < 1


@pytest.mark.parametrize("empty", [1, 3, 4])
def test_resamples_of_empty_translations_alone_are_scored_too(empty):
    """sacreBLEU's own chrF breaks on them: it averages numpy's zeros and plain ones."""
    texts = [""] * empty + REFERENCES[empty:]
    found = compare(texts, REFERENCES)
    assert found.chrf == CHRF().corpus_score(texts, [REFERENCES]).score
    assert 0 < found.chrf_interval <= 50


def test_nothing_at_all_scores_nothing():
    nothing = compare([""] * 5, REFERENCES)
    assert nothing.bleu == nothing.chrf == nothing.brevity_penalty == nothing.length_ratio == 0


def test_a_single_sentence_has_no_interval():
    found = compare(TRANSLATIONS[:1], REFERENCES[:1])
    assert found.bleu_interval is None
    assert found.chrf_interval is None
    assert "bs:" not in found.bleu_signature + found.chrf_signature
    assert found.bleu == BLEU().corpus_score(TRANSLATIONS[:1], [REFERENCES[:1]]).score


def test_texts_that_look_tokenised_are_noted_instead_of_warned_of(caplog):
    text = "a dog runs over the grass ."
    assert compare([text] * 99, [text] * 99, resamples=2).notes == []
    assert "look tokenised" in compare([text] * 100, [text] * 100, resamples=2).notes[0]
    assert caplog.records == []


@pytest.mark.parametrize("count", [0, 4, 6])
def test_each_reference_needs_one_translation(count):
    with pytest.raises(InputError, match=f"translations is {count}, that of references 5;"):
        compare((TRANSLATIONS * 2)[:count], REFERENCES)


@pytest.mark.parametrize("references", [[], [""], ["", " \t"]])
def test_references_without_a_word_are_refused(references):
    with pytest.raises(InputError, match="references are empty"):
        compare(["a"] * len(references), references)


def test_without_sacrebleu_the_extra_is_named(monkeypatch):
    for name in ("sacrebleu", "sacrebleu.metrics.bleu"):
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(InputError, match=r"pip install '\.\[evaluate\]'"):
        compare(TRANSLATIONS, REFERENCES)
