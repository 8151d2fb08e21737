"""The command `rewrite`: what it prints, what it keeps, what it refuses."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import maskov
import tiny_models
from maskov import InputError, Run, RunError, rewriting
from maskov.energies.distances import words_changed
from odd_workers import files

WORDS = "the food is bad good very not slow nice room"
LINES = ["the food is bad", "the room is not nice", "very slow", "not good"]
ENERGIES = {"target", "raw", "norm", "edit"}


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    root = tmp_path_factory.mktemp("networks")
    tiny_models.build_masked(root / "masked", WORDS)
    tiny_models.build_classifier(root / "classifier", WORDS)
    (root / "lines.txt").write_text("\n".join(LINES) + "\n")
    return root


@pytest.fixture
def call(call, folders):
    """Run `rewrite` in this process; return its exit code, output and errors."""

    def run(*words: object, source: object = None, plain: object = None, **given):
        return call(*(plain or command(folders, source)), *words, **given)

    return run


@pytest.fixture
def _unsampled(monkeypatch):
    monkeypatch.setattr(rewriting, "execute", lambda *_, **__: pytest.fail("it was sampled"))


def command(folders: Path, source: object = None) -> list[object]:
    toward = f"classifier({folders / 'classifier'}, label=positive)+0.5*contains('good')"
    return ["rewrite", source or folders / "lines.txt", "--model", folders / "masked",
            "--toward", toward, "--device", "cpu", "--epochs", 4, "--chains", 3,
            "--batch", 2, "-q"]  # fmt: skip


def test_a_line_for_each_line(call, folders):
    code, out, err = call()
    assert (code, err) == (0, "")
    told = call("--json")[1]
    rows = [json.loads(line) for line in told.splitlines()]
    assert [row["text"] for row in rows] == out.splitlines()
    assert [row["source"] for row in rows] == LINES
    assert [row["line"] for row in rows] == list(range(len(LINES)))
    classifier = f"classifier({folders / 'classifier'}, label=positive)"
    for row in rows:
        assert list(row) == ["line", "source", "text", "changes", "chain", "epoch", "energies"]
        assert row["changes"] == words_changed(row["source"], row["text"])
        assert row["energies"].keys() == ENERGIES | {classifier, "contains('good')"}
        parts = row["energies"]
        whole = 0.3 * parts["norm"] + 20 * parts[classifier] + 10 * parts["contains('good')"]
        assert parts["target"] == pytest.approx(whole + 8 * parts["edit"])
        assert 0 <= row["chain"] < 3
        assert 0 <= row["epoch"] < 4
    assert any(row["changes"] for row in rows)
    # The lines of the first batch alone, which have chains of their own.
    first = {"source": "-", "stdin": "\n".join(LINES[:2]).encode()}
    assert call("--json", **first)[1].splitlines() == told.splitlines()[:2]
    assert call("--json", "--seed", 1, **first)[1].splitlines() != told.splitlines()[:2]


@pytest.mark.slow
def test_picks(rows):
    every, picked = rows("--every-chain"), rows()
    assert [row["chain"] for row in every] == [0, 1, 2] * len(LINES)
    last, first = rows("--every-chain", "--pick", "last"), rows("--pick", "last")
    assert all(row["epoch"] == 3 for row in last)
    assert first == last[::3]
    alike = rows("--pick", "mbr")
    for number in range(len(LINES)):
        own = slice(3 * number, 3 * number + 3)
        assert picked[number] == min(every[own], key=lambda one: one["energies"]["target"])
        assert alike[number] in last[own]


@pytest.mark.usefixtures("_unsampled")
@pytest.mark.parametrize(
    ("words", "lines", "phrase"),
    [
        ((), b"", "is empty"),
        ((), b"the food\n\xff\n", "not UTF-8 text (line 2)"),
        ((), b"the food\n\nthe moon\n", "line 3 holds '[UNK]'"),
        ((), b"the [MASK]\n", "line 1 holds a mask"),
        ((), b"the food\n" + b"very " * 40 + b"\n", "line 2 has 40 tokens"),
        (("--toward", "happy"), None, "unknown energy"),
        (("--toward", "classifier(wiki-judge, label=1)"), None, "not a classifier"),
        (("--toward", "classifier(CLASSIFIER, label=happy)"), None, "it has negative, positive"),
        (("--strength", "-1"), None, "0 or more"),
        (("--keep", "-1"), None, "0 or more"),
        (("--target-temperature", "0"), None, "above 0"),
        (("--epochs", "0"), None, "epoch"),
        (("--batch", "0"), None, "at least 1 line"),
        (("--moves", "walk"), None, "walk"),
        (("--pick", "best"), None, "unknown pick 'best'"),
        (("nowhere.txt",), None, "cannot read 'nowhere.txt'"),
    ],
)
def test_what_cannot_be_is_refused_before_any_line_is_sampled(
    words, lines, phrase, refused, folders
):
    words = [str(word).replace("CLASSIFIER", str(folders / "classifier")) for word in words]
    given = {} if lines is None else {"source": "-", "stdin": lines}
    assert phrase in refused("--out", "out", *words, **given)


@pytest.mark.parametrize(
    ("words", "phrase"),
    [("--chains 0", "chain"), ("--contains slow --max-changes 0", "neither holds 'slow'")],
)
def test_what_a_run_refuses(words, phrase, refused):
    assert phrase in refused(*words.split())


@pytest.mark.parametrize("every", [(), ("--every-chain",)])
def test_empty_lines_stay_empty(every, call, tmp_path):
    lines = ["the food is bad", "", "very slow", "  ", "", ""]
    given = {"source": "-", "stdin": "\n".join([*lines, ""]).encode()}
    words = ("--json", "--out", tmp_path / "out", *every)
    code, out, err = call(*words, **given)
    assert (code, err) == (0, "")
    rows = [json.loads(line) for line in out.splitlines()]
    each = 3 if every else 1
    assert [row["line"] for row in rows] == [line for line in range(6) for _ in range(each)]
    assert [row["source"] for row in rows[::each]] == lines
    assert [bool(row["text"].strip()) for row in rows[::each]] == [bool(t.strip()) for t in lines]
    assert call(*words, **given)[1] == out  # all of it was kept
    assert call(*every, source="-", stdin=b"\n")[:2] == (0, "\n" * each)
    masks = tmp_path / "masks"
    masks.write_text("#...\n\n.#\n\n\n\n")
    code, out, err = call("--freeze", masks, **given)
    assert code == 0, err
    assert out.startswith("the ")


def test_a_line_that_does_not_change_is_as_it_was(rows):
    (row,) = rows("--toward", "length(4)", "--keep", 1000, source="The  Food is BAD")
    assert (row["text"], row["changes"]) == ("The  Food is BAD", 0)


def test_texts_on_the_command_line_are_rewritten_as_those_of_a_file(call, folders):
    (folders / "one.txt").write_text("the food is bad\n")
    assert call("--json", source="the food is bad") == call("--json", source=folders / "one.txt")
    code, out, _ = call("very slow", source="not good")
    assert (code, len(out.splitlines())) == (0, 2)


@pytest.mark.parametrize("more", [(), ("--moves", "site,span"), ("--max-changes", 2)], ids=str)
def test_words_that_lines_must_hold_are_put_in(more, rows, folders):
    plain = ["rewrite", folders / "lines.txt", "--model", folders / "masked", "--device", "cpu",
             "--chains", 4, "--epochs", 3, "-q", "--every-chain"]  # fmt: skip
    found = rows("--contains", "slow", *more, plain=plain)
    assert all("slow" in row["text"].split() for row in found)
    if not more:  # a line that held it may stay, others have one change at least
        assert all(row["energies"]["edit"] >= (row["line"] != 2) for row in found)
        assert len({row["text"].split().index("slow") for row in found if row["line"] == 1}) > 1
    if "--max-changes" in more:
        assert max(row["energies"]["edit"] for row in found) <= 2


def test_a_target_or_a_word_must_be_given(call, folders):
    code, _, err = call(plain=["rewrite", "the food", "--model", folders / "masked"])
    assert (code, "--toward" in err, "--contains" in err) == (2, True, True)
    for options in ({}, {"keep": 2.0}):
        with pytest.raises(InputError, match="--contains"):
            maskov.rewrite("untrained", ["the man"], **options)


def test_a_word_that_no_chain_proposed_is_told(call, folders):
    loud = command(folders, "the food is bad")[:-1]
    code, out, err = call("--toward", "contains('slow')", "--keep", 1000, plain=loud)
    assert (code, out) == (0, "the food is bad\n")
    assert "1 of 1 lines still lack a word" in err
    assert "--contains 'slow'" in err


def _content(out: Path) -> dict[str, object]:
    """Return all that a folder came to."""
    runs = {run.name: files(run) for run in sorted((out / "runs").iterdir())}
    return {"lines": (out / "rewritten.jsonl").read_bytes(), **runs}


def test_a_folder_goes_on_where_it_was(call, tmp_path):
    out = tmp_path / "out"
    whole = call("--json", "--out", out)[1]
    kept = _content(out)
    assert kept["lines"].decode() == whole
    assert len(kept) == 1 + len(LINES) // 2  # a run of each batch
    assert call("--json", "--out", out)[1] == whole
    # Lines that are lost are picked again from the runs.
    (out / "rewritten.jsonl").unlink()
    assert call("--json", "--out", out)[1] == whole
    assert _content(out) == kept
    run = Run.open(out / "runs" / "00001")
    assert run.manifest.compares
    assert run.diagnose().groups == 2


def test_code_that_a_folder_names_is_not_imported(call, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    out = tmp_path / "out"
    assert call("--out", out)[0] == 0
    (tmp_path / "evilpart.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')\nE = int\n")
    file = out / "runs" / "00001" / "manifest.json"
    manifest = json.loads(file.read_text())
    for part in manifest["config"]["kernel"]["kernels"]:
        part["energy"] += "+evilpart:E()"
    file.write_text(json.dumps(manifest))
    shutil.rmtree(file.parent / "checkpoints")
    (out / "rewritten.jsonl").unlink()
    code, _, err = call("--out", out)
    assert (code, "the kernel is not the one" in err) == (2, True)
    for part in manifest["config"]["kernel"]["kernels"]:
        part["energy"] = part["energy"].removesuffix("+evilpart:E()")
    manifest["config"]["schedule"] |= {"burn_in": 1, "burn_in_energy": "evilpart:E()"}
    file.write_text(json.dumps(manifest))
    code, _, err = call("--out", out)
    assert (code, "this run uses 'evilpart:E'" in err) == (2, True)
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize("name", ["rewritten.jsonl.tmp", "rewritten.jsonl", "runs", "runs/00001"])
def test_links_in_a_folder_are_not_followed(name, call, refused, tmp_path):
    out, outside = tmp_path / "out", tmp_path / "outside"
    assert call("--out", out)[0] == 0
    (out / "rewritten.jsonl").unlink()
    if (out / name).is_dir():
        shutil.move(out / name, outside)
    else:
        outside.write_text("mine")
    before = {path: path.read_bytes() for path in (outside, *outside.rglob("*")) if path.is_file()}
    (out / name).symlink_to(outside)
    assert f"{name}' is a link" in refused("--out", "out")
    assert before == {path: path.read_bytes() for path in before}


def test_no_two_batches_of_any_seeds_have_the_same_random_numbers(folders, monkeypatch):
    model, seeds = maskov.load(folders / "masked", "cpu"), []

    def noted(plan, *others):
        seeds.append(plan.manifest.config.seed)
        return run(plan, *others)

    run = rewriting.execute
    monkeypatch.setattr(rewriting, "execute", noted)
    for seed in (0, 1, 2**64 - 1):
        maskov.rewrite(model, LINES, "edit", chains=1, epochs=1, batch=1, seed=seed)
    assert len(set(seeds)) == 3 * len(LINES)
    assert seeds[:: len(LINES)] == [0, 1, 2**64 - 1]


@pytest.mark.usefixtures("_unsampled")
@pytest.mark.parametrize(
    ("changed", "what"),
    [
        (("--keep", 3), "energy"),
        (("--fluency", "raw"), "energy"),
        (("--seed", 1), "seed"),
        (("--chains", 2), "chains"),
        (("--epochs", 5), "schedule"),
        (("--hot", 3), "schedule"),
        (("--pick", "mbr"), "pick"),
        (("--batch", 3), "batch"),
        (("--every-chain",), "every_chain"),
        (("--moves", "span:1,insert-delete:1"), "kernel"),
        (("--temperature", 0.9), "kernel"),
    ],
)
def test_other_options_are_refused(changed, what, call, refused, tmp_path):
    with pytest.raises(pytest.fail.Exception, match="sampled"):
        call("--out", tmp_path / "out")
    assert f"begun with another {what}: give another --out" in refused("--out", "out", *changed)


def test_other_lines_and_another_classifier_are_refused(call, folders, tmp_path):
    out, copy = tmp_path / "out", tmp_path / "classifier"
    shutil.copytree(folders / "classifier", copy)
    words = ("--toward", f"classifier({copy}, label=positive)", "--out", out)
    given, other = ("\n".join(lines).encode() for lines in (LINES[:2], LINES[1::-1]))
    assert call(*words, source="-", stdin=given)[0] == 0
    assert "begun with another texts" in call(*words, source="-", stdin=other)[2]
    tiny_models.build_classifier(copy, WORDS, ("positive", "negative"))
    assert "begun with another energy_models" in call(*words, source="-", stdin=given)[2]


DAMAGES = [
    lambda text: text[:-20],
    lambda text: text[: text.index("\n") + 1],
    lambda text: text + text,
    lambda text: text.replace('"line": 0', '"line": 7'),
    lambda text: text.replace("the food is bad", "the food is good"),
    lambda text: "[]\n",
    lambda text: '{"line": 0}\n',
    lambda text: "\x00\n",
    lambda text: text + "\n" * 100,
]


def test_damaged_lines_are_refused(call, refused, tmp_path):
    assert call("--out", tmp_path / "out")[0] == 0
    file = tmp_path / "out" / "rewritten.jsonl"
    whole = file.read_text()
    for damage in DAMAGES:
        file.write_text(damage(whole))
        assert "rewritten.jsonl' is damaged" in refused("--out", "out")


@pytest.mark.parametrize("text", [b"", b"{", b"[1]", b"null", b'"x"', b"\xff"])
def test_damaged_settings_are_refused(text, refused, tmp_path):
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "settings.json").write_bytes(text)
    assert "settings.json' is damaged: give another --out" in refused("--out", "out")


def test_a_folder_of_something_else_is_refused(call, refused, tmp_path):
    for name in ("out", "begun"):
        (tmp_path / name).mkdir()
    (tmp_path / "out" / "letter.txt").write_text("dear")
    assert "is not a folder of rewritings" in refused("--out", "out")
    (tmp_path / "file").write_text("dear")
    assert "file'" in refused("--out", "file")
    # What is left of a process that was killed before it began is nobody's.
    (tmp_path / "begun" / "settings.json.tmp").write_text("{")
    assert call("--out", tmp_path / "begun", source="-", stdin=LINES[0].encode())[0] == 0


def _begin(folders: Path, out: Path) -> subprocess.Popen[bytes]:
    words = [*map(str, command(folders)), "--json", "--epochs", "12", "--batch", "1",
             "--out", str(out)]  # fmt: skip
    return subprocess.Popen(
        [sys.executable, "-m", "maskov", *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )


def _kill_when(process: subprocess.Popen[bytes], holds) -> None:
    end = time.monotonic() + 120
    while process.poll() is None and not holds() and time.monotonic() < end:
        time.sleep(0.005)
    assert process.poll() is None, process.communicate()
    os.kill(process.pid, signal.SIGKILL)
    process.wait()


@pytest.mark.slow
def test_a_kill_loses_no_finished_line(folders, tmp_path):
    whole = _begin(folders, tmp_path / "whole")
    expected, _ = whole.communicate(timeout=240)
    assert whole.returncode == 0
    out = tmp_path / "killed"
    lines = out / "rewritten.jsonl"
    moments = [
        lambda: (out / "runs" / "00000" / "traces").exists(),  # before the run has begun
        lambda: (out / "runs" / "00002" / "manifest.json").exists(),  # in the middle of a run
        lambda: lines.exists() and len(lines.read_bytes().splitlines()) >= 4,  # between two
    ]
    finished = b""
    for moment in moments:
        process = _begin(folders, out)
        _kill_when(process, moment)
        printed = process.stdout.read()
        process.stdout.close()
        process.stderr.close()
        now = lines.read_bytes() if lines.exists() else b""
        # What was finished or printed is there, to the byte.
        assert expected.startswith(now)
        assert now.startswith(finished)
        assert now.startswith(printed[: printed.rfind(b"\n") + 1])
        finished = now
    assert finished.count(b"\n") >= 4
    again = _begin(folders, out)
    printed, _ = again.communicate(timeout=240)
    assert again.returncode == 0
    assert printed == expected
    assert _content(out) == _content(tmp_path / "whole")


@pytest.mark.slow
def test_a_signal_is_told(folders, tmp_path):
    process = _begin(folders, tmp_path / "out")
    file, end = tmp_path / "out" / "runs" / "00001" / "manifest.json", time.monotonic() + 120
    while not file.exists() and process.poll() is None and time.monotonic() < end:
        time.sleep(0.01)
    process.send_signal(signal.SIGINT)
    printed, err = process.communicate(timeout=120)
    assert process.returncode == 130
    assert b"finished lines are saved" in err
    assert (tmp_path / "out" / "rewritten.jsonl").read_bytes().startswith(printed)


@pytest.mark.slow
def test_workers_write_the_same_lines(call, tmp_path):
    given = {"source": "-", "stdin": "\n".join(LINES[:2]).encode()}
    whole = call("--json", "--resident", 3, **given)[1]
    words = ("--json", "--resident", 3, "--workers", 2, "--out", tmp_path / "out")
    assert call(*words, **given)[1] == whole
    assert len(whole.splitlines()) == 2


def test_in_python(folders, tmp_path):
    model = maskov.load(folders / "masked", "cpu")
    options = {"chains": 2, "epochs": 2, "keep": 0.0}
    found = maskov.rewrite(model, LINES[:2], "contains('good')", **options)
    assert [one.source for one in found] == LINES[:2]
    assert found[0].energies.keys() == {"target", "raw", "norm", "contains('good')"}
    assert maskov.rewrite(model, [], "contains('good')", **options) == []
    assert maskov.rewrite(model, [], "contains('good')", out=tmp_path / "o", **options) == []
    grouped = maskov.rewrite(model, LINES[:1], "edit", fluency="norm(groups=2)", **options)
    assert json.loads(grouped[0].to_json())["energies"].keys() == {"target", "edit"}
    with pytest.raises(InputError, match="at least 1 line"):
        maskov.rewrite(model, LINES, "edit", batch=0)


def test_a_line_separator_within_a_line_is_read_back(folders, tmp_path):
    model, texts = maskov.load(folders / "masked", "cpu"), ["very \x85slow", "not good"]
    options = {"chains": 1, "epochs": 1, "out": tmp_path / "out"}
    first = maskov.rewrite(model, texts, "edit", **options)
    assert [one.source for one in first] == texts
    assert maskov.rewrite(model, texts, "edit", **options) == first


def test_functions_of_ones_own(folders, tmp_path, monkeypatch):
    """By their import path they can be kept in a folder; a nameless one cannot."""
    (tmp_path / "own_expert.py").write_text("def short(texts):\n    return list(map(len, texts))\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    model = maskov.load(folders / "masked", "cpu")
    options = {"chains": 2, "epochs": 2, "out": tmp_path / "out"}
    first = maskov.rewrite(model, LINES[:2], "own_expert:short", **options)
    assert "own_expert:short" in first[0].energies
    assert maskov.rewrite(model, LINES[:2], "own_expert:short", **options) == first
    rewriter = rewriting.Rewriter(lambda texts: [0.0] * len(texts), chains=2, epochs=1)
    assert len(list(rewriter.rewrite(model, LINES[:1]))) == 1
    with pytest.raises((InputError, RunError), match="cannot be written to a run folder"):
        list(rewriter.rewrite(model, LINES[:1], out=tmp_path / "other"))
