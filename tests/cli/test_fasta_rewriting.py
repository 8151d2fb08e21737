"""`rewrite` reads FASTA: names and mutations, what it keeps, and what sequences cannot have."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time

import pytest

import maskov
from maskov import InputError, Record, Run, rewriting
from maskov.energies.distances import words_changed
from maskov.errors import Interrupted
from maskov.fasta import mutations, numbered
from maskov.rewriting import Rewriter
from tiny_proteins import save_bert, save_esm

PARENTS = {"one heavy": "EVQLVESGGG", "two": "DIQMTQ", "three": "QVQLQE"}
FASTA = ">one heavy\nEVQLVE\nSGGG*\n>two\ndiqmtq\n>three\nQVQLQE\n"
FAST = ["--epochs", 3, "--chains", 2, "--keep", 1, "-q"]
KEYS = ["line", "source", "text", "changes", "chain", "epoch", "energies", "name", "mutations"]


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    root = tmp_path_factory.mktemp("models")
    save_bert(root / "bert")
    save_esm(root / "esm")
    (root / "parents.fa").write_text(FASTA)
    return root


@pytest.fixture(params=["bert", "esm"])
def call(call, request, folders):
    """Run `rewrite` in this process; return its exit code, output and errors."""
    folder = folders / request.param
    model = ["--model", folder, "--device", "cpu"]
    if request.param == "bert":
        model[1] = f"{folder}(tokenizer={folder / 'vocab.txt'})"

    def run(*words: object, source: object = None, **given):
        source = source or folders / "parents.fa"
        return call("rewrite", source, "--toward", "matches('A')", *model, *FAST, *words, **given)

    return run


def rows_of(out: str) -> list[dict]:
    return [json.loads(line) for line in out.splitlines()]


def records_of(out: str) -> list[tuple[str, str]]:
    return [(one.name, one.sequence) for one in maskov.fasta.parse(out.split("\n"), "-")]


def test_rewritings_have_names_and_mutations(call):
    code, out, err = call("--json")
    assert (code, err) == (0, "")
    rows = rows_of(out)
    assert {row["name"]: row["source"] for row in rows} == PARENTS
    assert [row["line"] for row in rows] == [0, 1, 2]
    for row in rows:
        assert list(row) == KEYS
        assert len(row["text"]) == len(row["source"])
        assert row["mutations"] == mutations(row["source"], row["text"])
        assert row["changes"] == words_changed(" ".join(row["source"]), " ".join(row["text"]))
        # A letter is a token, so both distances are one.
        assert row["changes"] == row["energies"]["edit"]
    assert any(row["mutations"] for row in rows)
    code, out, err = call()
    assert (code, err) == (0, "")
    assert records_of(out) == [(row["name"], row["text"]) for row in rows]


def test_chains_are_parts_of_names(call):
    rows = rows_of(call("--json", "--every-chain")[1])
    printed = records_of(call("--every-chain")[1])
    assert [name for name, _ in printed] == [numbered(p, c) for p in PARENTS for c in range(2)]
    assert printed[1][0] == "one|1 heavy"
    assert printed == [(numbered(row["name"], row["chain"]), row["text"]) for row in rows]


def test_standard_input_is_known_by_its_first_line(call):
    assert call(source="-", stdin=FASTA.encode()) == call()


def test_lengths_that_change_leave_no_mutations(call):
    code, out, err = call("--json", "--moves", "insert-delete", "--keep", 0)
    assert (code, err) == (0, "")
    rows = rows_of(out)
    assert [list(row) for row in rows] == [KEYS[:-1]] * 3
    assert any(len(row["text"]) != len(row["source"]) for row in rows)
    for row in rows:
        assert row["changes"] == words_changed(" ".join(row["source"]), " ".join(row["text"]))
    printed = records_of(call("--moves", "insert-delete", "--keep", 0)[1])
    assert printed == [(row["name"], row["text"]) for row in rows]


def test_constraints_and_frozen_letters(call, tmp_path):
    (tmp_path / "masks").write_text("###.......\n..#..#\n#.....\n")
    words = ["--freeze", tmp_path / "masks", "--max-changes", 2, "--avoid", "K, WW", "--allow",
             "2:VILMA", "--keep", 0, "--batch", 2]  # fmt: skip
    code, out, err = call("--json", "--every-chain", *words)
    assert (code, err) == (0, "")
    held = {"one heavy": [0, 1, 2], "two": [2, 5], "three": [0]}
    rows = rows_of(out)
    for row in rows:
        text, parent = row["text"], row["source"]
        assert all(text[place] == parent[place] for place in held[row["name"]])
        assert len(row["mutations"]) <= 2
        assert "K" not in text
        assert "WW" not in text
        assert text[1] in "VILMA"
    assert any(row["mutations"] for row in rows)
    same = rows_of(call("--json", "--freeze", "re:^..|QL", "--keep", 0)[1])
    assert all(row["text"][:2] == row["source"][:2] for row in same)
    assert same[0]["text"][2:4] == same[2]["text"][2:4] == "QL"


@pytest.mark.parametrize(
    ("words", "content", "phrase"),
    [
        ((), ">a\nEVQL\n>b\nEV-QL\n", "'b' has a gap '-' at position 3"),
        ((), ">a\nEVJQ\n", "'a' has 'J' at position 3"),
        ((), ">a\nEV*QL\n", "'a' has '*' at position 3"),
        ((), "EVQL\n", "no header"),
        ((), ">a\nEVQL\n>a\nEVQL\n", "two records 'a'"),
        ((), ">a\n\n", "the record 'a'"),
        ((), ">a\n" + "EVQL" * 100, "'a' has 400 tokens"),
        (("--toward", "contains('A', 'NG')"), FASTA, "write 'N G'"),
        (("--fluency", "norm+avoids('NG')"), FASTA, "write 'N G'"),
        (("--toward", "autoregressive"), FASTA, "'wiki-judge' reads English"),
        (("--fluency", "norm+autoregressive"), FASTA, "'wiki-judge' reads English"),
        (("--freeze", "1-9"), FASTA, "text 2 has 6 tokens"),
    ],
)
@pytest.mark.parametrize("call", ["bert"], indirect=True)
def test_what_cannot_be_is_refused_before_any_record_is_sampled(
    words, content, phrase, refused, tmp_path, monkeypatch
):
    monkeypatch.setattr(rewriting, "execute", lambda *_, **__: pytest.fail("it was sampled"))
    (tmp_path / "given.fa").write_text(content)
    assert phrase in refused("--out", "out", *words, source="given.fa")


def test_letters_are_words_of_experts(call):
    """Models of proteins write spaces between letters."""
    toward = "contains('A', 'C C')+avoids('V')+repeats+hamming(unit=words)"
    code, out, err = call("--json", "--toward", toward, "--moves", "site")
    assert (code, err) == (0, "")
    for row in rows_of(out):
        energies, text = row["energies"], row["text"]
        assert energies["contains('A', 'C C')"] == ("A" not in text) + ("CC" not in text)
        assert energies["avoids('V')"] == text.count("V")
        assert energies["hamming(unit=words)"] == len(row["mutations"])
        letters = list(filter(str.isalnum, text))
        assert energies["repeats"] == sum(
            letter in letters[max(0, place - 4) : place] for place, letter in enumerate(letters)
        )


@pytest.mark.parametrize("expert", ["contains('A')", "avoids('A')", "repeats", "edit(unit=words)"])
def test_experts_of_words_need_spaces(expert, folders, monkeypatch):
    model = maskov.load(folders / "esm", "cpu")
    monkeypatch.setattr(model, "decode", lambda ids: "".join(model.token_strings(ids)))
    with pytest.raises(InputError, match=r"counts words, and .* without spaces"):
        maskov.rewrite(model, [Record("a", "EVQL")], expert, epochs=1, chains=1)


@pytest.mark.parametrize("call", ["esm"], indirect=True)
def test_models_of_words_take_no_fasta(refused):
    assert "single letters" in refused("--model", "untrained")


def test_a_folder_goes_on_where_it_was(call, tmp_path):
    out = tmp_path / "out"
    words = ("--batch", 2, "--out", out)
    whole = call("--json", *words)[1]
    file = out / "rewritten.jsonl"
    assert file.read_text() == whole
    assert call("--json", *words)[1] == whole
    printed = call(*words)[1]
    assert records_of(printed) == [(row["name"], row["text"]) for row in rows_of(whole)]
    # The runs are those of named sequences, too.
    run = Run.open(out / "runs" / "00000")
    assert run.manifest.inputs.names == ("one heavy", "two")
    assert (run.store.path / "samples.fa").exists()
    # The lines of a whole batch are kept, others are picked again.
    file.write_text("".join(whole.splitlines(keepends=True)[:2]))
    assert call("--json", *words)[1] == whole
    file.unlink()
    assert call("--json", *words)[1] == whole


@pytest.mark.parametrize("call", ["esm"], indirect=True)
def test_other_names_and_damaged_lines_are_refused(call, refused, tmp_path):
    out, words = tmp_path / "out", ("--out", tmp_path / "out")
    assert call(*words)[0] == 0
    renamed = FASTA.replace("two", "second").encode()
    assert "begun with another texts" in call(*words, source="-", stdin=renamed)[2]
    lines = b"EVQLVESGGG\nDIQMTQ\nQVQLQE\n"
    plain = call(*words, "--moves", "site:6,span(2:3):2", source="-", stdin=lines)[2]
    assert "begun with another texts" in plain
    file = out / "rewritten.jsonl"
    text = file.read_text()
    for damaged in (
        text.replace('"name": "two"', '"name": "to"'),
        text.replace(', "name": "two"', ""),
        text.replace("DIQMTQ", "DIQMTT", 1),
        text.replace('"text": "', '"text": 5, "other": "', 1),
        text.replace('"chain": ', '"chain": "x", "n": ', 1),
    ):
        assert damaged != text
        file.write_text(damaged)
        assert "rewritten.jsonl' is damaged" in refused(*words)
    row = json.loads(text.splitlines()[0])
    file.write_text(text.replace(json.dumps(row["text"]), "5", 1))
    assert "is damaged" in call(*words)[2]


def test_what_was_stopped_ends_the_same(folders, tmp_path):
    model = maskov.load(folders / "esm", "cpu")
    records = [Record(name, sequence) for name, sequence in PARENTS.items()]
    options = {"chains": 2, "epochs": 2, "keep": 1.0, "batch": 1}
    toward = "matches('A')"
    whole = maskov.rewrite(model, records, toward, out=tmp_path / "whole", **options)
    lines = tmp_path / "cut" / "rewritten.jsonl"
    with pytest.raises(Interrupted):
        maskov.rewrite(
            model, records, toward, out=tmp_path / "cut",
            stop=lambda: lines.exists() and len(lines.read_text().splitlines()) == 1, **options,
        )  # fmt: skip
    finished = lines.read_bytes()
    assert (tmp_path / "whole" / "rewritten.jsonl").read_bytes().startswith(finished)
    assert maskov.rewrite(model, records, toward, out=tmp_path / "cut", **options) == whole
    assert lines.read_bytes() == (tmp_path / "whole" / "rewritten.jsonl").read_bytes()


@pytest.mark.slow
def test_a_kill_loses_no_finished_record(folders, tmp_path):
    """What was printed before a kill is whole, and the same command prints the rest, too."""

    def begin(out) -> subprocess.Popen[bytes]:
        words = [
            "rewrite", folders / "parents.fa", "--model", folders / "esm", "--device", "cpu",
            "--toward", "matches('A')", "--epochs", 12, "--batch", 1, "--out", out, "-q",
        ]  # fmt: skip
        return subprocess.Popen(
            [sys.executable, "-m", "maskov", *map(str, words)], stdout=subprocess.PIPE
        )

    whole = begin(tmp_path / "whole")
    expected, _ = whole.communicate(timeout=240)
    assert whole.returncode == 0
    process = begin(tmp_path / "cut")
    manifest = tmp_path / "cut" / "runs" / "00001" / "manifest.json"
    end = time.monotonic() + 120
    while process.poll() is None and not manifest.exists() and time.monotonic() < end:
        time.sleep(0.005)
    assert process.poll() is None
    os.kill(process.pid, signal.SIGKILL)
    printed, _ = process.communicate()
    assert expected.startswith(printed)
    assert printed.startswith(b">one heavy\n")
    assert printed.endswith(b"\n")
    again = begin(tmp_path / "cut")
    assert again.communicate(timeout=240)[0] == expected


def test_in_python(folders):
    model = maskov.load(folders / "esm", "cpu")
    records = [Record(name, sequence) for name, sequence in PARENTS.items()]
    options = {"chains": 2, "epochs": 2, "keep": 1.0}
    found = maskov.rewrite(
        model, records, lambda texts: [text.count("E") for text in texts], **options
    )
    assert [one.name for one in found] == list(PARENTS)
    assert all(one.mutations == mutations(one.source, one.text) for one in found)
    frozen = maskov.rewrite(model, records, "hamming", freeze="1-3", **options)
    assert all(one.text[:3] == one.source[:3] for one in frozen)
    # A Rewriter has moves of its own, by default some that change the length.
    free = list(Rewriter("hamming", chains=1, epochs=1).rewrite(model, records))
    assert [(one.name, one.mutations) for one in free] == [(name, None) for name in PARENTS]
    lines = maskov.rewrite(model, ["EVQL"], "hamming", **options)
    assert (lines[0].name, lines[0].mutations) == (None, None)
    assert not {"name", "mutations"} & json.loads(lines[0].to_json()).keys()
    with pytest.raises(InputError, match="all lines, or all records"):
        maskov.rewrite(model, [records[0], "EVQL"], "hamming", **options)
