"""Which tokens of a text stay: positions, words, regular expressions and masks."""

import pytest

from maskov.errors import InputError
from maskov.starts import Layout
from maskov.texts import frozen_positions
from small import tiny_bert
from tiny_proteins import joined_model, spaced_model

MODEL = tiny_bert("red green blue river ##bank bridge 7 ,")
TEXTS = ["red River, blue riverbank", "bridge green 7"]


@pytest.mark.parametrize(
    ("rule", "expected"),
    [
        ("1", ((0,), (0,))),
        ("river", ((1,), ())),
        ("RIVER, bridge", ((1,), (0,))),
        ("riverbank", ((4, 5), ())),
        ("river, riverbank", ((1, 4, 5), ())),
        ("re:r[a-z]+b", ((4, 5), ())),
        ("re:d R", ((0, 1), ())),
        (["......", "#.x"], ((), (0, 2))),
        ([[False] * 5 + [True], (True, False, False)], ((5,), (0,))),
    ],
    ids=str,
)
def test_rules(rule, expected):
    assert frozen_positions(MODEL, TEXTS, rule) == expected


@pytest.mark.parametrize(
    ("rule", "expected"),
    [
        ("1-2", ((0, 1), (0, 1))),
        ("QL", ((2, 3), (1, 2))),
        ("q l, G", ((2, 3, 5, 6, 7), (1, 2))),
        ("GG", ((5, 6, 7), ())),
        ("re:Q.", ((2, 3), (1, 2))),
        ("re:^V|G$", ((7,), (0,))),
        (["##......", "..#"], ((0, 1), (2,))),
    ],
    ids=str,
)
@pytest.mark.parametrize("space", ["", " "])
def test_words_of_sequences_are_motifs(tmp_path, rule, expected, space):
    model = (spaced_model if space else joined_model)(tmp_path / "model")
    texts = [space.join("EVQLVGGG"), space.join("VQL")]
    assert frozen_positions(model, texts, rule, letters=True) == expected
    with pytest.raises(InputError, match="occurs in no text"):
        frozen_positions(model, texts, "EE", letters=True)


@pytest.mark.parametrize(
    ("rule", "reason"),
    [
        ("4", "text 2 has 3 tokens: there is no position 4"),
        ("0-2", "not a range"),
        ("1-3", "every token of text 2 is frozen"),
        ("white", "occurs in no text"),
        ("river,", "a word to freeze is empty"),
        ("re:white", "finds nothing"),
        ("re:(?=red)", "not a regular expression of RE2"),
        ("re:(", "not a regular expression"),
        ("re:" + "a" * 2000, "at most 1000"),
        ("re:.*", "every token of text 1"),
        (["......"], "1 lines of frozen tokens for 2 texts"),
        (["......", ".."], "text 2 has 3 tokens, its line of frozen ones 2 characters"),
    ],
    ids=lambda value: str(value)[:20],
)
def test_refusals(rule, reason):
    with pytest.raises(InputError, match=reason):
        Layout.of_texts(MODEL, TEXTS, 1, frozen_positions(MODEL, TEXTS, rule))
