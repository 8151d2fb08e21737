"""FASTA files are read as they are found, and refused with the record's name and the place."""

import pytest
from hypothesis import given, strategies as st

import maskov
from maskov import InputError, Record
from maskov.fasta import mutations, parse, spelled, to_fasta
from mutations import damaged, examples, or_refused
from tiny_proteins import joined_model, spaced_model


@pytest.fixture(scope="module")
def spaced(tmp_path_factory):
    return spaced_model(tmp_path_factory.mktemp("spaced") / "bert")


@pytest.fixture(scope="module")
def joined(tmp_path_factory):
    return joined_model(tmp_path_factory.mktemp("joined") / "esm")


def read(text: str) -> list[Record]:
    return parse(text.split("\n"), "a.fa")


def test_names_lines_case_stops_spaces_and_line_ends():
    text = "\n>one heavy chain\r\nevql\r\nVES G\r\n\r\n> two\nDIQ\nM*\n>three\rAC\rDE"
    assert read(text) == [
        Record("one heavy chain", "EVQLVESG"),
        Record("two", "DIQM"),
        Record("three", "ACDE"),
    ]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("EVQL\n", "'a.fa' has no header"),
        ("\n\n", "no record"),
        (">\nEVQL", "line 1 of 'a.fa' has no name"),
        (">a\nE\n>a\nQ", "two records 'a' (line 3)"),
        (">a\n\n>b\nQ", "the record 'a' of 'a.fa' is empty"),
    ],
)
def test_what_is_no_fasta_is_refused_in_a_sentence(text, words):
    with pytest.raises(InputError) as refused:
        read(text)
    assert words in str(refused.value)
    assert str(refused.value).endswith(".")


def test_a_file_is_read_and_written(tmp_path):
    records = [Record("a", "E" * 170), Record("b c", "Q")]
    file = tmp_path / "a.fa"
    file.write_bytes(b"\xef\xbb\xbf" + to_fasta(records).replace("\n", "\r\n").encode())
    assert maskov.read_fasta(file) == records
    with pytest.raises(InputError, match="cannot read"):
        maskov.read_fasta(tmp_path / "none.fa")


def test_letters_are_separated_as_the_tokenizer_wants(spaced, joined):
    record = Record("a", "EVQLVESG")
    assert spelled(spaced, record) == "E V Q L V E S G"
    assert spelled(joined, record) == "EVQLVESG"
    for model in (spaced, joined):
        assert model.token_strings(model.encode(spelled(model, record))) == list("EVQLVESG")


@pytest.mark.parametrize("kind", ["spaced", "joined"])
def test_blanks_of_templates_are_masks(request, kind):
    model = request.getfixturevalue(kind)
    ids = model.encode(spelled(model, Record("a", "E_QL"), blanks=True))
    assert [place for place, token in enumerate(ids) if token == model.mask_id] == [1]
    assert len(ids) == 4
    with pytest.raises(InputError, match="'a' has a blank '_' at position 2"):
        spelled(model, Record("a", "E_QL"))


def test_mutations_are_named_as_usual():
    assert mutations("EVQL", "EVQL") == []
    assert mutations("EVQL", "DVQK") == ["E1D", "L4K"]


GOOD = b">one heavy\nEVQLVESGGG\nLVQPGG*\n\n>two\r\nDIQMTQ\r\n"


@given(
    st.one_of(
        damaged(GOOD),
        st.text(alphabet=">*-_ \r\n\tEVQLxé;\u2028\x00", max_size=60).map(str.encode),
        st.binary(max_size=40),
    )
)
@examples(400)
def test_any_file_is_read_or_refused_in_one_sentence(content):
    text = content.decode("utf-8", "replace")
    records = []
    with or_refused(InputError, naming=["a.fa"]):
        records = parse(text.split("\n"), "a.fa")
        assert records
    assert len({record.name for record in records}) == len(records)
    for record in records:
        assert record.sequence
        assert record.name == " ".join(record.name.split())
    # A stop that ended a sequence is gone, so that a second one may be taken for it.
    if records and not any(
        record.sequence.endswith("*") or ">" in record.sequence for record in records
    ):
        assert parse(to_fasta(records).split("\n"), "a.fa") == records
