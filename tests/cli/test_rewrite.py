"""The command `rewrite`: what it prints, keeps in its folder, and refuses to go on with."""

import json
import re
import shutil

import numpy as np
import pytest

import maskov
import tiny_models
from json_files import edited
from maskov import InputError, Record, Run, RunError
from maskov.energies.counting import words_changed
from maskov.errors import Interrupted
from maskov.fasta import mutations, numbered, parse
from odd_workers import files

WORDS = "the food is bad good very not slow nice room"
LINES = ["the food is bad", "the room is not nice", "very slow", "not good"]
PARENTS = {"one heavy": "EVQLVESGGG", "two": "DIQMTQ", "three": "QVQLQE"}
CLASSIFIER = "classifier(@classifier, label=positive)"
FAST = "rewrite --model @masked --device cpu --epochs 4 --chains 3"
TOWARD = f"{FAST} -q --toward '{CLASSIFIER}+0.5*contains(\"good\")'"
ESM = "--model @esm --device cpu"
PROTEIN = "rewrite p.fa --epochs 3 --chains 2 --keep 1 -q --toward matches('A')"


@pytest.fixture(autouse=True)
def _texts(tmp_path):
    (tmp_path / "lines").write_text("".join(line + "\n" for line in LINES))
    (tmp_path / "two").write_text("".join(line + "\n" for line in LINES[:2]))
    (tmp_path / "p.fa").write_text(">one heavy\nEVQLVE\nSGGG*\n>two\ndiqmtq\n>three\nQVQLQE\n")


@pytest.fixture
def masked(home):
    return maskov.load(home / "masked", "cpu")


def test_a_line_for_each_line(printed, rows, home):
    found = rows(f"{TOWARD} lines")
    assert [row["source"] for row in found] == LINES
    classifier = CLASSIFIER.replace("@classifier", str(home / "classifier"))
    for number, row in enumerate(found):
        assert list(row) == ["line", "source", "text", "changes", "chain", "epoch", "energies"]
        assert row["line"] == number
        assert row["changes"] == words_changed(row["source"], row["text"])
        parts = row["energies"]
        assert parts.keys() == {"target", "raw", "norm", "edit", classifier, "contains('good')"}
        whole = 0.3 * parts["norm"] + 20 * parts[classifier] + 10 * parts["contains('good')"]
        assert parts["target"] == pytest.approx(whole + 8 * parts["edit"])
        assert (0 <= row["chain"] < 3, 0 <= row["epoch"] < 4) == (True, True)
    assert any(row["changes"] for row in found)
    first = rows(f"{TOWARD} two")
    assert rows(f"{TOWARD} -", stdin="\n".join(LINES[:2])) == first
    assert printed(TOWARD, *LINES[:2]).splitlines() == [row["text"] for row in first]
    assert rows(f"{TOWARD} two --seed 1") != first


@pytest.mark.slow
def test_picks(rows):
    every, picked = rows(f"{TOWARD} lines --every-chain"), rows(f"{TOWARD} lines")
    assert [row["chain"] for row in every] == [0, 1, 2] * len(LINES)
    last, first = (
        rows(f"{TOWARD} lines --every-chain --pick last"),
        rows(f"{TOWARD} lines --pick last"),
    )
    assert all(row["epoch"] == 3 for row in last)
    assert first == last[::3]
    alike = rows(f"{TOWARD} lines --pick mbr")
    for number in range(len(LINES)):
        own = slice(3 * number, 3 * number + 3)
        assert picked[number] == min(every[own], key=lambda one: one["energies"]["target"])
        assert alike[number] in last[own]


@pytest.mark.parametrize("every", ["", "--every-chain"])
def test_empty_lines_stay_empty(every, printed, rows, tmp_path):
    lines, each = ["the food is bad", "", "very slow", "  ", "", ""], 3 if every else 1
    stdin = "\n".join([*lines, ""])
    found = rows(f"{TOWARD} - --out out {every}", stdin=stdin)
    assert [row["line"] for row in found] == [line for line in range(6) for _ in range(each)]
    assert [row["source"] for row in found[::each]] == lines
    assert [bool(row["text"].strip()) for row in found[::each]] == [bool(t.strip()) for t in lines]
    assert rows(f"{TOWARD} - --out out {every}", stdin=stdin) == found  # all of it was kept
    assert printed(f"{TOWARD} - {every}", stdin="\n") == "\n" * each
    (tmp_path / "masks").write_text("#...\n\n.#\n\n\n\n")
    assert printed(f"{TOWARD} - --freeze masks", stdin=stdin).startswith("the ")


def test_a_line_that_does_not_change_is_as_it_was_and_what_it_lacks_is_told(call, rows):
    (row,) = rows(f"{FAST} -q --toward length(4) --keep 1000 'The  Food is BAD'")
    assert (row["text"], row["changes"]) == ("The  Food is BAD", 0)
    code, out, err = call(f"{FAST} 'the food is bad' --toward contains('slow') --keep 1000")
    assert (code, out) == (0, "the food is bad\n")
    assert "1 of 1 lines still lack a word" in err
    assert "--contains 'slow'" in err


@pytest.mark.parametrize("more", ["", "--moves site,span", "--max-changes 2"])
def test_words_that_lines_must_hold_are_put_in(more, rows):
    found = rows(f"{FAST} lines --contains slow --chains 4 -q --every-chain {more}")
    assert all("slow" in row["text"].split() for row in found)
    if not more:  # a line that held it may stay, others have one change at least
        assert all(row["energies"]["edit"] >= (row["line"] != 2) for row in found)
        assert len({row["text"].split().index("slow") for row in found if row["line"] == 1}) > 1
    if "--max-changes" in more:
        assert max(row["energies"]["edit"] for row in found) <= 2


def test_a_target_or_a_word_must_be_given(refused, masked):
    assert re.search("--toward.*--contains", refused("rewrite 'the food' --model @masked"))
    for options in ({}, {"keep": 2.0}):
        with pytest.raises(InputError, match="--contains"):
            maskov.rewrite(masked, ["the food"], **options)


def test_a_folder_is_a_run_that_the_same_command_continues(printed, rows, tmp_path):
    out, line = tmp_path / "out", f"{TOWARD} lines --json --out out"
    whole, kept = printed(line), files(out)
    assert (printed(line), files(out)) == (whole, kept)
    shutil.rmtree(out / "checkpoints")  # its chains start again
    (out / "samples.jsonl").unlink()
    assert printed(line) == whole
    assert files(out)["samples.jsonl"] == kept["samples.jsonl"]
    run = Run.open(out)
    assert run.manifest.compares
    assert run.diagnose().groups == len(LINES)
    # Another pick of what is finished needs no other run.
    assert rows(f"{line} --pick last") == rows(f"{TOWARD} lines --pick last")


# Other words, and what of the run they change.
OTHERS = {
    "--keep 3": "kernel", "--fluency raw": "kernel", "--seed 1": "seed", "--chains 2": "chains",
    "--epochs 5": "schedule", "--hot 3": "schedule", "--freeze food": "inputs",
    "--moves span:1,insert-delete:1": "kernel", "--temperature 0.9": "kernel",
}  # fmt: skip


def test_other_options_are_refused(printed, refused):
    line = f"{TOWARD} lines --out out"
    printed(line)
    for words, what in OTHERS.items():
        assert f"begun with another {what}: give another --out" in refused(f"{line} {words}")
    assert "begun with another inputs" in refused(f"{TOWARD} two --out out")


def test_another_classifier_is_refused(home, call, refused, tmp_path):
    shutil.copytree(home / "classifier", tmp_path / "copy")
    line = f"{FAST} two -q --toward 'classifier({tmp_path}/copy, label=positive)' --out out"
    assert call(line)[0] == 0
    tiny_models.build_classifier(tmp_path / "copy", WORDS, ("positive", "negative"))
    assert "begun with another energy_models" in refused(line)


def test_code_that_a_folder_names_is_not_imported(call, refused, tmp_path):
    line, out = f"{TOWARD} lines --out out", tmp_path / "out"
    assert call(line)[0] == 0
    (tmp_path / "evilpart.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')\nE = int\n")
    before = (out / "manifest.json").read_text()
    shutil.rmtree(out / "checkpoints")
    for name in ("kernel", "schedule"):
        (out / "manifest.json").write_text(before)
        with edited(out / "manifest.json") as manifest:
            if name == "kernel":
                manifest["config"]["kernel"]["kernels"][0]["energy"] += "+evilpart:E()"
            else:
                manifest["config"]["schedule"] |= {"burn_in": 1, "burn_in_energy": "evilpart:E()"}
        assert f"begun with another {name}" in refused(line)
    assert not (tmp_path / "ran").exists()


def test_in_python(masked, tmp_path, monkeypatch):
    options = {"chains": 2, "epochs": 2, "keep": 0.0}
    found = maskov.rewrite(masked, LINES[:2], "contains('good')", **options)
    assert [one.source for one in found] == LINES[:2]
    assert found[0].energies.keys() == {"target", "raw", "norm", "contains('good')"}
    assert maskov.rewrite(masked, [], "contains('good')", out=tmp_path / "o", **options) == []
    grouped = maskov.rewrite(masked, LINES[:1], "edit", fluency="norm(groups=2)", **options)
    assert json.loads(grouped[0].to_json())["energies"].keys() == {"target", "edit"}
    # A line separator within a line is read back.
    texts, options = ["very \x85slow", "not good"], {"chains": 1, "epochs": 1}
    first = maskov.rewrite(masked, texts, "edit", out=tmp_path / "out", **options)
    assert [one.source for one in first] == texts
    assert maskov.rewrite(masked, texts, "edit", out=tmp_path / "out", **options) == first
    # A function can be kept in a folder by its import path; one without a name cannot.
    (tmp_path / "own_expert.py").write_text("def short(texts):\n    return list(map(len, texts))\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    again = [
        maskov.rewrite(masked, LINES[:2], "own_expert:short", out=tmp_path / "own", **options)
        for _ in range(2)
    ]
    assert again[0] == again[1]
    assert "own_expert:short" in again[0][0].energies
    with pytest.raises((InputError, RunError), match="cannot be written to a run folder"):
        maskov.rewrite(masked, LINES[:1], lambda _: [0.0], out=tmp_path / "other", **options)


def test_what_was_stopped_ends_the_same(home, tmp_path):
    model = maskov.load(home / "esm", "cpu")
    records = [Record(name, sequence) for name, sequence in PARENTS.items()]
    options = {"toward": "matches('A')", "chains": 2, "epochs": 2, "keep": 1.0, "resident": 2}
    whole = maskov.rewrite(model, records, out=tmp_path / "whole", **options)
    cut, steps = tmp_path / "cut", tmp_path / "cut" / "traces.npy"
    with pytest.raises(Interrupted):
        maskov.rewrite(
            model, records, out=cut, **options,
            stop=lambda: steps.exists() and np.load(steps)["steps"].any(),
        )  # fmt: skip
    assert not Run.open(cut).finished
    assert maskov.rewrite(model, records, out=cut, **options) == whole
    assert files(cut) == files(tmp_path / "whole")


@pytest.fixture(params=[ESM, "--model '@bert(tokenizer=@bert/vocab.txt)' --device cpu"])
def protein(request):
    return f"{PROTEIN} {request.param}"


def records_of(out: str) -> list[tuple[str, str]]:
    return [(one.name, one.sequence) for one in parse(out.split("\n"), "-")]


def test_sequences_have_names_and_mutations(protein, rows, printed, tmp_path):
    found = rows(protein)
    assert {row["name"]: row["source"] for row in found} == PARENTS
    for row in found:
        assert list(row)[-2:] == ["name", "mutations"]
        assert len(row["text"]) == len(row["source"])
        assert row["mutations"] == mutations(row["source"], row["text"])
        # A letter is a token, so both distances are one.
        changes = words_changed(" ".join(row["source"]), " ".join(row["text"]))
        assert row["changes"] == row["energies"]["edit"] == changes
    assert any(row["mutations"] for row in found)
    pairs = [(row["name"], row["text"]) for row in found]
    assert records_of(printed(protein)) == pairs
    stdin = (tmp_path / "p.fa").read_bytes()
    assert records_of(printed(protein.replace("p.fa", "-"), stdin=stdin)) == pairs
    every = rows(f"{protein} --every-chain")
    shown = records_of(printed(f"{protein} --every-chain"))
    assert shown == [(numbered(row["name"], row["chain"]), row["text"]) for row in every]
    assert shown[1][0] == "one|1 heavy"
    free = rows(f"{protein} --moves insert-delete --keep 0")
    assert any(len(row["text"]) != len(row["source"]) for row in free)
    assert all("name" in row and "mutations" not in row for row in free)


def test_a_folder_of_sequences_keeps_their_names(printed, refused, tmp_path):
    line, given = f"{PROTEIN} {ESM} --out out", tmp_path / "p.fa"
    whole = printed(line)
    assert printed(line) == whole
    run = Run.open(tmp_path / "out")
    assert run.manifest.inputs.names == tuple(PARENTS)
    assert (run.store.path / "samples.fa").exists()
    given.write_text(given.read_text().replace("two", "second"))
    assert "begun with another inputs" in refused(line)
