"""Distinct n-grams by hand, self-BLEU against sacreBLEU itself."""

import random
import statistics
from itertools import pairwise

import pytest
import sacrebleu

from maskov.evaluation.texts import distinct, self_bleu, subset

TEXTS = [
    "the cat sat on the mat .",
    "the cat sat on the mat .",
    "the the the the cat",
    "A dog, (not a cat) ran off!",
    "off",
    "nothing in common here",
    "the dog sat on the cat and the mat .",
]


def test_distinct_by_hand():
    texts = ["a b a b", "a  b c", "d"]
    assert distinct(texts, 1) == 4 / 8
    # ab ba ab, ab bc: none across sentences, and none of the lone word.
    assert distinct(texts, 2) == 3 / 5
    assert distinct(texts, 3) == 3 / 3
    assert distinct(["a b"], 3) is None


def directly(texts):
    """Return the mean and its error from one call of sacreBLEU for each text."""
    scores = [
        sacrebleu.sentence_bleu(text, texts[:i] + texts[i + 1 :]).score
        for i, text in enumerate(texts)
    ]
    return statistics.mean(scores), statistics.stdev(scores) / len(scores) ** 0.5


def random_texts(seed):
    generator = random.Random(seed)
    return [
        " ".join(generator.choices(["a", "b", "c.", "d,e", "-"], k=generator.randint(1, 9)))
        for _ in range(generator.randint(2, 12))
    ]


@pytest.mark.parametrize("texts", [TEXTS, *map(random_texts, range(20))])
def test_self_bleu_is_what_sacrebleu_says(texts):
    found = self_bleu(texts)
    value, error = directly(texts)
    assert found.value == pytest.approx(value, abs=1e-9)
    assert found.standard_error == pytest.approx(error, abs=1e-9)


def test_copies_of_one_sentence_are_all_alike_and_strangers_are_not():
    assert self_bleu(["one and the same sentence"] * 3).value == pytest.approx(100)
    assert self_bleu(["a b c d", "e f g h"]).value == 0


def test_at_most_so_many_sentences_evenly_spaced():
    assert subset(["a", "b"], 2) == ["a", "b"]
    assert subset(list("abcdefg"), 3) == ["a", "c", "e"]
    chosen = [int(text) for text in subset([str(i) for i in range(1234)])]
    assert len(chosen) == 500
    assert {later - earlier for earlier, later in pairwise(chosen)} == {2, 3}
