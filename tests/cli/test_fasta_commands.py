"""Commands that read FASTA: names and mutations in everything they print and write."""

from __future__ import annotations

import csv
import json

import pytest

import maskov
from maskov import Record, Run
from maskov.config import ModelSource
from maskov.errors import Interrupted
from maskov.fasta import mutations
from tiny_proteins import save_bert, save_esm

PARENTS = ">one heavy\nEVQLVE\nSGGG*\n>two\ndiqmtq\n"
FAST = ["--epochs", "3", "--burn-in", "1", "--chains", "2", "--energy", "norm", "-q"]


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    root = tmp_path_factory.mktemp("models")
    save_bert(root / "bert")
    save_esm(root / "esm")
    return root


@pytest.fixture(params=["bert", "esm"])
def model(request, folders):
    folder = folders / request.param
    words = ["--model", str(folder), "--device", "cpu"]
    if request.param == "bert":
        words[1] += f"(tokenizer={folder / 'vocab.txt'})"
    return words


@pytest.fixture
def parents(tmp_path):
    (tmp_path / "parents.fa").write_text(PARENTS)
    return str(tmp_path / "parents.fa")


def lines_of(out: str) -> list[dict]:
    return [json.loads(line) for line in out.splitlines()]


def test_samples_carry_names_and_mutations(call, model, parents, tmp_path):
    folder = tmp_path / "run"
    code, out, err = call(
        "sample", *model, "--start-text", parents, *FAST, "--json", "--out", folder
    )
    assert code == 0, err
    found = lines_of(out)
    assert [row["name"] for row in found] == ["one heavy", "one heavy", "two", "two"]
    assert [len(row["ids"]) for row in found] == [10, 10, 6, 6]
    sequences = {record.name: record.sequence for record in maskov.read_fasta(parents)}
    library = maskov.read_fasta(folder / "samples.fa")
    names = ["one|0 heavy", "one|1 heavy", "two|2", "two|3"]
    assert [record.name for record in library] == names
    for row, record in zip(found, library, strict=True):
        assert record.sequence == row["text"].replace(" ", "").upper()
        assert row["mutations"] == mutations(sequences[row["name"]], record.sequence)
    assert any(row["mutations"] for row in found)
    with (folder / "mutations.csv").open() as file:
        table = list(csv.DictReader(file))
    assert [row["sample"] for row in table] == names
    assert [row["mutations"].split() for row in table] == [row["mutations"] for row in found]
    assert [int(row["count"]) for row in table] == [len(row["mutations"]) for row in found]
    assert [sample.name for sample in Run.open(folder).samples] == [row["name"] for row in found]


def test_thinned_samples_are_named_by_their_epoch_and_come_back(call, model, parents, tmp_path):
    folder = tmp_path / "run"
    code, out, err = call(
        "sample", *model, "--start-text", parents, *FAST, "--json", "--thin", 1, "--out", folder
    )
    assert code == 0, err
    names = [record.name for record in maskov.read_fasta(folder / "samples.fa")]
    for name, row in zip(names, lines_of(out), strict=True):
        first, *rest = row["name"].split()
        assert name == " ".join([f"{first}|{row['chain']}|{row['epoch']}", *rest])
    assert len(set(names)) == 8
    before = (folder / "samples.fa").read_bytes()
    (folder / "samples.fa").unlink()
    code, _, err = call("resume", folder, "-q")
    assert code == 0, err
    assert (folder / "samples.fa").read_bytes() == before


def test_the_table_names_parents_and_mutations(call, model, parents, tmp_path):
    folder = tmp_path / "run"
    code, out, err = call("sample", *model, "--start-text", parents, *FAST, "--out", folder)
    assert code == 0, err
    head, *rows = out.splitlines()
    assert head.split() == ["chain", "E_raw", "E_norm", "name", "mutations"]
    for row, sample in zip(rows, Run.open(folder).samples, strict=True):
        assert row.split()[3:] == [*sample.name.split(), *sample.mutations]


def test_texts_from_standard_input_are_known_by_their_first_line(call, model):
    code, out, err = call(
        "sample", *model, "--start-text", "-", *FAST, "--json", stdin=PARENTS.encode()
    )
    assert code == 0, err
    assert {row["name"] for row in lines_of(out)} == {"one heavy", "two"}


def test_changing_lengths_have_names_and_no_mutations(call, model, parents, tmp_path):
    folder = tmp_path / "run"
    words = [*FAST, "--moves", "site,insert-delete", "--json", "--out", folder]
    words += ["--length-prior", "none"]
    code, out, err = call("sample", *model, "--start-text", parents, *words)
    assert code == 0, err
    assert all("name" in row and "mutations" not in row for row in lines_of(out))
    assert (folder / "samples.fa").exists()
    assert not (folder / "mutations.csv").exists()


def test_motifs_and_letters_are_written_without_spaces(call, model, tmp_path):
    (tmp_path / "p.fa").write_text(">a\nEVQLVESGGG\n")
    words = ["--contains", "ESG", "--avoid", "C, KK", "--allow", "1-2:EVQ", "--json"]
    code, out, err = call("sample", *model, "--start-text", tmp_path / "p.fa", *FAST, *words)
    assert code == 0, err
    for row in lines_of(out):
        text = row["text"].replace(" ", "")
        assert "ESG" in text
        assert "C" not in text
        assert "KK" not in text
        assert set(text[:2]) <= set("EVQ")


def test_motifs_can_be_frozen(call, model, tmp_path):
    (tmp_path / "p.fa").write_text(">a\nEVQLVESGGG\n")
    for rule in ("QLV", "re:Q.V"):
        words = ["--start-text", tmp_path / "p.fa", "--freeze", rule, "--json"]
        code, out, err = call("sample", *model, *FAST, *words)
        assert code == 0, err
        assert {row["text"].replace(" ", "")[2:5] for row in lines_of(out)} == {"QLV"}


STRANGE = set("XBUZO.-")


def joined(row: dict) -> str:
    return row["text"].replace(" ", "")


def test_only_amino_acids_are_proposed_unless_others_are_named(call, folders, tmp_path):
    named, quiet = folders / "esm", ["--device", "cpu", "--energy", "norm", "-q", "--json"]
    model = ["--model", named, *quiet]
    words = ["--length", 12, "--chains", 8, "--epochs", 6, "--proposal", "temperature=3"]
    code, out, err = call("sample", *model, *words)
    assert code == 0, err
    assert not {letter for row in lines_of(out) for letter in row["text"]} & STRANGE
    folder = tmp_path / "run"
    code, out, err = call(
        "sample", *quiet, "-m", f"{named}(extra_letters='U-')", *words, "--out", folder
    )
    assert code == 0, err
    assert {letter for row in lines_of(out) for letter in row["text"]} & STRANGE == set("U-")
    assert "extra-letters:U-" in Run.open(folder).signature
    assert len(maskov.resume(folder)) == 8
    for letters, reason in (("J", "'J' is not an extra letter"), ("XX1", "'1' is not an extra")):
        code, _, err = call("sample", "-m", f"{named}(extra_letters={letters})", *words)
        assert (code, reason in err) == (2, True)
    code, _, err = call("sample", "-m", "untrained(extra_letters=X)")
    assert (code, "drop extra_letters" in err) == (2, True)
    for words in (["--contains", "AX"], ["--allow", "1:AX"]):
        code, _, err = call("sample", *model, *words)
        assert (code, "extra_letters=X" in err) == (2, True)


def test_other_letters_of_given_sequences_stay_and_are_scored(call, folders, tmp_path):
    model = ["--model", folders / "esm", "--device", "cpu"]
    file = tmp_path / "p.fa"
    file.write_text(">a\nEVXLVU.SG\n>b\nEVQL\n")
    code, out, err = call("sample", *model, "--start-text", file, *FAST[:-1], "--json")
    assert code == 0, err
    assert "never proposed stay as they are: '.', 'U', 'X'" in err
    for row in lines_of(out):
        held = {place: sign for place, sign in enumerate(joined(row)) if sign in STRANGE}
        assert held == ({2: "X", 5: "U", 6: "."} if row["name"] == "a" else {})
    assert any(row["mutations"] for row in lines_of(out))
    words = ["--start-text", file, "--freeze", "1-2", "--moves", "site,insert-delete"]
    code, out, err = call("sample", *model, *words, "--length-prior", "none", *FAST, "--json")
    assert code == 0, err
    for row in lines_of(out):
        kept = "".join(sign for sign in joined(row) if sign in STRANGE)
        assert (joined(row)[:2], kept) == ("EV", "XU." if row["name"] == "a" else "")
    code, out, err = call("rewrite", *model, file, "--toward", "length(9)", *FAST[4:6], "-q")
    assert code == 0, err
    assert [sign for sign in out if sign in STRANGE] == ["X", "U", "."]
    code, out, err = call("score", *model, file, "--json")
    assert (code, err) == (0, "")
    for row in lines_of(call("infill", *model, "EX__U", *FAST, "--json")[1]):
        assert (joined(row)[:2], joined(row)[4:]) == ("EX", "U")
    assert maskov.score(maskov.load(folders / "esm", "cpu"), ["EVX"])[0].unknown == 0


def test_models_of_letters_that_are_not_proteins_keep_their_letters(tmp_path):
    from maskov.models.tokens import other_letters

    none = maskov.load("untrained").forbidden[:0]
    for letters in ("ACGTN-", "ACDEFGHIKLMNPQRSTVWYabc", "ACDEFGHIKLMNPQRSTVWY"):
        assert not other_letters(letters, none.new_zeros(len(letters)))
    letters = "ACDEFGHIKLMNPQRSTVWYX-"
    assert other_letters(letters, none.new_zeros(len(letters))) == {20, 21}


def test_workers_are_sent_the_letters(folders):
    from maskov.models.serialization import PickledModel

    model = maskov.load(folders / "esm", "cpu", extra_letters="XU")
    sent = PickledModel.of(model).unpack(model.device)
    assert sent.extra_letters == "UX"
    assert sent.fingerprint() == model.fingerprint()
    assert sent.fingerprint() != maskov.load(folders / "esm", "cpu").fingerprint()


def test_an_underscore_is_a_blank_wherever_templates_are_read(call, model, folders):
    code, out, err = call("infill", *model, "EV__VE", *FAST, "--json")
    assert code == 0, err
    texts = [joined(row) for row in lines_of(out)]
    assert {(text[:2], text[4:], len(text)) for text in texts} == {("EV", "VE", 6)}
    code, out, err = call("infill", *model, "-", *FAST, "--json", stdin=b"EV__VE\n")
    assert [joined(row) for row in lines_of(out)] == texts
    code, out, err = call("infill", *model, "E V _ [MASK{1,2}] V E", *FAST, "--json")
    assert code == 0, err
    assert {len(row["ids"]) for row in lines_of(out)} <= {6, 7}
    esm = maskov.load(folders / "esm", "cpu")
    run = maskov.infill(esm, "EV__VE", texts=["EVQLVE"], chains=2, epochs=2, progress=False)
    assert {(one.text[:3], one.text[-3:]) for one in run} == {("E V", "V E")}
    for words in (["score", "EV__VE"], ["sample", "--start-text", "-"], ["rewrite", "-"]):
        more = ["--toward", "length(6)"] if words[0] == "rewrite" else []
        for stdin in (b"EV__VE\n", b">a\nEV__VE\n"):
            code, _, err = call(*words, *model, *more, stdin=stdin)
            assert (code, "has a blank '_'" in err) == (2, True), err
    code, _, err = call("infill", "the _ man .", "-m", "wiki-small")
    assert (code, "no blank" in err) == (2, True)
    code, _, err = call("infill", "no_such.txt", "-m", "untrained")
    assert (code, "cannot read 'no_such.txt'" in err or "neither" in err) == (2, True)


def test_strange_letters_can_be_avoided_and_changes_can_cost(call, folders, parents):
    model = ["--model", folders / "esm", "--device", "cpu"]
    words = ["--avoid", "X, B, Z, U, O, -, .", "--energy", "norm + 2*hamming", "--json"]
    code, out, err = call("sample", *model, "--start-text", parents, *FAST, *words)
    assert code == 0, err
    assert not {letter for row in lines_of(out) for letter in row["text"]} & set("XBZUO-.")


def test_score_reads_a_library(call, model, parents):
    code, out, err = call("score", parents, *model, "--energy", "norm", "--json")
    assert code == 0, err
    found = lines_of(out)
    assert [row["name"] for row in found] == ["one heavy", "two"]
    assert [row["text"] for row in found] == ["EVQLVESGGG", "DIQMTQ"]
    assert all(len(row["terms"]) == len(row["text"]) for row in found)
    code, out, _ = call("score", parents, *model, "--energy", "norm")
    assert out.split("\n")[0].split() == ["E_raw", "E_norm", "name"]
    assert "one heavy" in out


def test_templates_fill_the_blanks_of_a_record(call, model, tmp_path):
    (tmp_path / "t.fa").write_text(">loop\nEV__VE\n")
    code, out, err = call("infill", *model, tmp_path / "t.fa", *FAST, "--json")
    assert code == 0, err
    for row in lines_of(out):
        text = row["text"].replace(" ", "")
        assert (text[:2], text[4:], row["name"]) == ("EV", "VE", "loop")


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (">a\nEV-QL\n", "'a' has a gap '-' at position 3"),
        (">a\nEVQL\n>b\nEVXQ\n", "'b' has 'X' at position 3"),
        ("EVQL\n", "no header"),
        (">a\nEVQL\n>a\nEVQL\n", "two records 'a'"),
        (">a\n" + "EVQL" * 100, "'a' has 400 tokens"),
    ],
)
@pytest.mark.parametrize("command", ["sample", "score"])
def test_bad_records_are_refused_by_name(call, folders, tmp_path, content, words, command):
    file = tmp_path / "bad.fa"
    file.write_text(content)
    model = ["--model", f"{folders / 'bert'}(tokenizer={folders / 'bert' / 'vocab.txt'})"]
    given = ["score", file] if command == "score" else ["sample", "--start-text", file, *FAST]
    code, out, err = call(*given, *model)
    assert (code, out) == (2, "")
    assert words in err


def test_word_models_take_no_fasta(call, parents):
    code, _, err = call("score", parents, "--model", "untrained")
    assert code == 2
    assert "single letters" in err


def test_a_run_that_was_stopped_ends_with_the_same_library(folders, tmp_path):
    model = maskov.load(folders / "esm", "cpu")
    texts = [Record("a", "EVQLVE"), Record("b", "DIQM")]
    settings = {"schedule": maskov.Schedule(epochs=6, burn_in=2), "chains": 2, "thin": 2}
    source = ModelSource(str(folders / "esm"))
    maskov.sample(model, texts=texts, out=tmp_path / "whole", source=source, **settings)
    asked = iter(range(10**9))
    with pytest.raises(Interrupted):
        maskov.sample(
            model, texts=texts, out=tmp_path / "cut", source=source, stop=lambda: next(asked) > 40,
            checkpoint_every=0, **settings,
        )  # fmt: skip
    assert not (tmp_path / "cut" / "samples.fa").exists()
    maskov.resume(tmp_path / "cut")
    for name in ("samples.jsonl", "samples.fa", "mutations.csv"):
        assert (tmp_path / "cut" / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()


def test_python_takes_records(folders):
    model = maskov.load(folders / "esm", "cpu")
    run = maskov.sample(model, texts=[Record("a", "EVQLVE")], chains=2, passes=40)
    assert [sample.name for sample in run.samples] == ["a", "a"]
    assert all(sample.mutations is not None for sample in run.samples)
    with pytest.raises(maskov.InputError, match="all lines, or all records"):
        maskov.sample(model, texts=[Record("a", "EVQLVE"), "EV"], chains=2)
