"""Commands that read FASTA: names and mutations in everything they print and write."""

import csv

import pytest

import maskov
from maskov import Run
from maskov.fasta import mutations

PARENTS = ">one heavy\nEVQLVE\nSGGG*\n>two\ndiqmtq\n"
FAST = "--epochs 3 --burn-in 1 --chains 2 --energy norm -q"
ESM = f"--model @esm --device cpu {FAST}"
BERT = f"--model '@bert(tokenizer=@bert/vocab.txt)' --device cpu {FAST}"
STRANGE = set("XBUZO.-")


@pytest.fixture(autouse=True)
def _files(tmp_path):
    (tmp_path / "parents.fa").write_text(PARENTS)
    (tmp_path / "one.fa").write_text(">a\nEVQLVESGGG\n")
    (tmp_path / "strange.fa").write_text(">a\nEVXLVU.SG\n>b\nEVQL\n")
    (tmp_path / "loop.fa").write_text(">loop\nEV__VE\n")


@pytest.fixture(params=[ESM, BERT], ids=["esm", "bert"])
def model(request):
    return request.param


def joined(row: dict) -> str:
    return row["text"].replace(" ", "")


def test_samples_carry_names_and_mutations(model, rows, printed, tmp_path):
    found = rows(f"sample --start-text parents.fa {model} --out run")
    assert [row["name"] for row in found] == ["one heavy", "one heavy", "two", "two"]
    assert [len(row["ids"]) for row in found] == [10, 10, 6, 6]
    sequences = {record.name: record.sequence for record in maskov.read_fasta("parents.fa")}
    library = maskov.read_fasta("run/samples.fa")
    names = ["one|0 heavy", "one|1 heavy", "two|2", "two|3"]
    assert [record.name for record in library] == names
    for row, record in zip(found, library, strict=True):
        assert record.sequence == joined(row).upper()
        assert row["mutations"] == mutations(sequences[row["name"]], record.sequence)
    assert any(row["mutations"] for row in found)
    with open("run/mutations.csv") as file:
        table = list(csv.DictReader(file))
    assert [row["sample"] for row in table] == names
    assert [row["mutations"].split() for row in table] == [row["mutations"] for row in found]
    assert [int(row["count"]) for row in table] == [len(row["mutations"]) for row in found]
    samples = Run.open("run").samples
    assert [one.name for one in samples] == [row["name"] for row in found]
    head, *lines = printed(f"sample --start-text - {model}", stdin=PARENTS).splitlines()
    assert head.split() == ["chain", "E_raw", "E_norm", "name", "mutations"]
    for line, one in zip(lines, samples, strict=True):
        assert line.split()[3:] == [*one.name.split(), *one.mutations]
    score = model.replace(FAST, "--energy norm")
    scored = rows(f"score parents.fa {score}")
    assert [(row["name"], row["text"]) for row in scored] == list(sequences.items())
    assert all(len(row["terms"]) == len(row["text"]) for row in scored)
    shown = printed(f"score parents.fa {score}")
    assert shown.split("\n")[0].split() == ["E_raw", "E_norm", "name"]
    assert "one heavy" in shown


def test_thinned_samples_are_named_by_their_epoch_and_come_back(rows, printed, tmp_path):
    found = rows(f"sample --start-text parents.fa {ESM} --thin 1 --out run")
    names = [record.name for record in maskov.read_fasta("run/samples.fa")]
    for name, row in zip(names, found, strict=True):
        first, *rest = row["name"].split()
        assert name == " ".join([f"{first}|{row['chain']}|{row['epoch']}", *rest])
    assert len(set(names)) == 8
    library = tmp_path / "run" / "samples.fa"
    before = library.read_bytes()
    library.unlink()
    printed("resume run -q")
    assert library.read_bytes() == before


def test_motifs_and_letters_are_written_without_spaces(model, rows):
    words = "--contains ESG --avoid 'C, KK' --allow 1-2:EVQ"
    for row in rows(f"sample --start-text one.fa {model} {words}"):
        text = joined(row)
        assert ("ESG" in text, "C" in text, "KK" in text) == (True, False, False)
        assert set(text[:2]) <= set("EVQ")
    for rule in ("QLV", "re:Q.V"):
        found = rows(f"sample --start-text one.fa {model} --freeze {rule}")
        assert {joined(row)[2:5] for row in found} == {"QLV"}
    words = "--energy 'norm + 2*hamming' --avoid 'X, B, Z, U, O, -, .'"
    found = rows(f"sample --start-text one.fa {ESM} {words}")
    assert not {letter for row in found for letter in row["text"]} & STRANGE


def test_only_amino_acids_are_proposed_unless_others_are_named(rows):
    # Nearly even, so that no letter that may be drawn is missing among 384.
    flat = "--target-temperature 20 --proposal temperature=20"
    words = f"sample {ESM} --length 12 --chains 32 --epochs 6 {flat}"
    assert not {letter for row in rows(words) for letter in row["text"]} & STRANGE
    found = rows(f"{words} --out run --model '@esm(extra_letters=\"U-\")'")
    assert {letter for row in found for letter in row["text"]} & STRANGE == set("U-")
    assert "extra-letters:U-" in Run.open("run").signature
    assert len(maskov.resume("run")) == 32


def test_other_letters_of_given_sequences_stay_and_are_scored(call, rows, printed, home):
    err = call(f"sample --start-text strange.fa {ESM.removesuffix('-q')}")[2]
    assert "never proposed stay as they are: '.', 'U', 'X'" in err
    found = rows(f"sample --start-text strange.fa {ESM}")
    for row in found:
        held = {place: sign for place, sign in enumerate(joined(row)) if sign in STRANGE}
        assert held == ({2: "X", 5: "U", 6: "."} if row["name"] == "a" else {})
    assert any(row["mutations"] for row in found)
    words = "--freeze 1-2 --moves site,insert-delete --length-prior none"
    for row in rows(f"sample --start-text strange.fa {ESM} {words}"):
        kept = "".join(sign for sign in joined(row) if sign in STRANGE)
        assert (joined(row)[:2], kept) == ("EV", "XU." if row["name"] == "a" else "")
    out = printed("rewrite strange.fa --model @esm --device cpu --toward length(9) -n 3 -q")
    assert [sign for sign in out if sign in STRANGE] == ["X", "U", "."]
    assert call("score strange.fa --model @esm --json")[::2] == (0, "")
    for row in rows(f"infill EX__U {ESM}"):
        assert (joined(row)[:2], joined(row)[4:]) == ("EX", "U")
    assert maskov.score(maskov.load(home / "esm", "cpu"), ["EVX"])[0].unknown == 0


def test_an_underscore_is_a_blank_wherever_templates_are_read(model, rows, home):
    texts = [joined(row) for row in rows(f"infill EV__VE {model}")]
    assert {(text[:2], text[4:], len(text)) for text in texts} == {("EV", "VE", 6)}
    assert [joined(row) for row in rows(f"infill - {model}", stdin="EV__VE\n")] == texts
    named = rows(f"infill loop.fa {model}")
    assert [(row["name"], joined(row)) for row in named] == [("loop", text) for text in texts]
    sized = rows(f"infill 'E V _ [MASK{{1,2}}] V E' {model} --length-prior none")
    assert {len(row["ids"]) for row in sized} <= {6, 7}
    esm = maskov.load(home / "esm", "cpu")
    run = maskov.infill(esm, "EV__VE", texts=["EVQLVE"], chains=2, epochs=2, progress=False)
    assert {(one.text[:3], one.text[-3:]) for one in run} == {("E V", "V E")}
