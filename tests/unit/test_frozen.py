"""Which tokens of a text stay: positions, words, regular expressions and masks."""

import json
from dataclasses import asdict

import pytest

import maskov
from maskov.config import Inputs, from_json
from maskov.errors import InputError
from maskov.runs.preparation import inputs_of, layout_of
from maskov.starts import Layout
from maskov.texts import frozen_positions
from small import random_table, tiny_bert
from tiny_models import PROTEINS, build
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


def test_tables_and_other_tokenizers():
    table = random_table(3)
    assert frozen_positions(table, ["a b a"], "a") == ((0, 2),)
    assert frozen_positions(table, ["a b a"], "re:b") == ((1,),)
    shipped = maskov.load("wiki-small", "cpu")
    text = "In 1984 the riverside bridges were Rebuilt ."
    tokens = shipped.token_strings(shipped.encode(text))
    (found,) = frozen_positions(shipped, [text], "re:[0-9]+|rebuilt|Rebuilt")
    assert "".join(tokens[place] for place in found).replace("##", "") == "1984rebuilt"


def test_a_sign_for_each_residue(tmp_path):
    model, text = maskov.load(build("esm", tmp_path), "cpu"), PROTEINS[1].replace(" ", "")
    for rule in ([".#" + "." * (len(text) - 2)], "2", "re:A", "re:[AC]"):
        assert frozen_positions(model, [text], rule) == ((1,),)


def test_regions_between_frozen_tokens():
    texts = ["red green blue river bridge 7", "red green"]
    inputs = inputs_of(MODEL, None, texts, None, "best", 1, 0, True, ["..#..#", ".."])
    layout = layout_of(MODEL, inputs, 1, 0)
    assert layout.region == [[0, 0, -1, 1, 1, -1], [0, 0]]
    assert layout.bounds == [[(1, 4), (1, 4)], [(1, 4)]]
    assert layout.widths == [(4, 10), (1, 4)]
    # Where the model has no room for twice as many, they share what there is.
    long = " ".join(["red"] * 28)
    inputs = inputs_of(MODEL, None, [long], None, "best", 1, 0, True, "3,4")
    layout = layout_of(MODEL, inputs, 1, 0)
    assert layout.bounds == [[(1, 2), (1, 25)]]
    assert layout.width <= MODEL.max_length


TWO = {"texts": ["a", "b"]}
DRAFTS = {"sources": ["red", "blue"], "texts": ["red red", "green"], "chosen": [[2], [1]]}
SAMPLED = {"sources": ["red"], "chosen": [[3]], "sampled": True}


@pytest.mark.parametrize(
    ("inputs", "reason"),
    [
        (TWO | {"frozen": [[0], []]}, None),
        (TWO | {"frozen": [[0], [1], [2]]}, "as many entries"),
        (TWO | {"frozen": [[1, 0], []]}, "not in order"),
        (TWO | {"frozen": [[-1], []]}, "between 0"),
        (TWO | {"frozen": [0, 1]}, "'frozen.0'"),
        ({"length": [3, 3], "frozen": [[0]]}, "goes with texts"),
        (DRAFTS, None),
        (DRAFTS | {"texts": ["red red"]}, "as many entries as the sources"),
        (DRAFTS | {"names": ["a", "b"]}, "'inputs.names' go with texts"),
        (DRAFTS | {"frozen": [[0], []]}, "'inputs.frozen' goes with texts"),
        (SAMPLED | {"bounds": [[1, 4]]}, None),
        (SAMPLED, "go with sampled lengths"),
        (SAMPLED | {"bounds": [[1, 4], [1, 4]]}, "as many entries as the sources"),
        (SAMPLED | {"bounds": [[1, 2]]}, "leave out a length"),
    ],
    ids=str,
)
def test_what_a_manifest_may_say_of_its_inputs(inputs, reason):
    if reason is None:
        assert asdict(from_json(Inputs, json.dumps(inputs)))
        return
    with pytest.raises(InputError, match=reason):
        from_json(Inputs, json.dumps(inputs))
