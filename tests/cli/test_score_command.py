"""`score` with texts on the command line: words beside tokens, unknown tokens pointed out."""

from __future__ import annotations

import json

import pytest

from maskov.models.tokens import words_of
from tiny_proteins import save_bert

MODEL = ["--model", "untrained", "--energy", "norm"]


def test_texts_on_the_command_line_are_scored_as_those_of_a_file(call, tmp_path):
    texts = ["the cat sat", "the dog ."]
    (tmp_path / "texts").write_text("".join(text + "\n" for text in texts))
    code, out, _ = call("score", *texts, *MODEL, "--json")
    assert code == 0
    assert [json.loads(line)["text"] for line in out.splitlines()] == texts
    assert call("score", tmp_path / "texts", *MODEL, "--json")[1] == out
    mixed = call("score", "no", tmp_path / "texts", *MODEL, "--json")[1]
    assert [json.loads(line)["text"] for line in mixed.splitlines()] == ["no", *texts]


@pytest.mark.parametrize("name", ["nowhere.txt", "no/where", "parents.fasta"])
def test_a_file_that_is_not_there_is_no_text(name, refused):
    assert f"cannot read '{name}'" in refused("score", name, *MODEL)


def test_texts_and_fasta_do_not_mix(refused, tmp_path):
    (tmp_path / "one.fa").write_text(">one\nEVQL\n")
    assert "not both" in refused("score", "the cat", "one.fa", *MODEL)


def test_words_have_the_sum_of_their_tokens(call):
    code, out, _ = call("score", "The cat sat on the mat.", "-m", "wiki-small", "--json")
    assert code == 0
    found = json.loads(out)
    assert found["words"] == ["The", "cat", "sat", "on", "the", "mat."]
    assert found["tokens"][-2:] == ["mat", "."]
    assert found["word_terms"][-1] == pytest.approx(sum(found["terms"][-2:]))
    assert sum(found["word_terms"]) == pytest.approx(found["energy"])
    shown = call("score", "The cat sat on the mat.", "-m", "wiki-small", "--words")[1].split()
    assert shown[:5] == ["E_raw", "E_norm", "text", "words,", "E_raw"]
    assert shown[-2:] == ["mat.", f"{found['word_terms'][-1]:.2f}"]
    assert "words" not in call("score", "The cat", "-m", "wiki-small")[1]


@pytest.mark.parametrize(
    ("energy", "head"),
    [
        ("raw", ["E_raw", "E_norm"]),
        ("norm", ["E_raw", "E_norm"]),
        ("raw+0.5*norm", ["raw+0.5*norm", "E_raw", "E_norm"]),
        ("norm(groups=2)", ["norm(groups=2)"]),
        ("autoregressive(wiki-judge)", ["autoregressive"]),
    ],
)
def test_the_table_says_which_energies_it_has(energy, head, call):
    words = ["score", "the cat sat", "the dog", "--model", "untrained", "--energy", energy]
    code, out, err = call(*words)
    assert code == 0, err
    first, *rows = out.splitlines()
    assert first.split() == [*head, "text"]
    found = [json.loads(line) for line in call(*words, "--json")[1].splitlines()]
    for row, one in zip(rows, found, strict=True):
        assert [f"{value:.4f}" for value in one["energies"].values()] == row.split()[: len(head)]
        assert one["energies"].get(energy.partition("(wiki")[0]) == pytest.approx(one["energy"])


@pytest.mark.parametrize(
    ("text", "tokens", "words"),
    [
        ("The cat's mat.", ["the", "cat", "'", "s", "mat", "."], [0, 1, 1, 1, 2, 2]),
        ("  a b", ["a", "b"], [0, 1]),
        ("unbelievable", ["un", "##believ", "##able"], [0, 0, 0]),
        ("qqq un", ["[UNK]", "un", "##x"], [0, 1, 1]),
        ("ab c", ["Ġa", "q", "Ġc"], [0, 0, 1]),
        ("ab c", ["a@@", "x", "c"], [0, 0, 1]),
        ("", [], []),
    ],
)
def test_tokens_belong_to_words(text, tokens, words):
    assert words_of(text, tokens) == words


def test_unknown_tokens_are_pointed_out(call, tmp_path):
    save_bert(tmp_path / "bert")
    model = ["-m", f"{tmp_path / 'bert'}(tokenizer={tmp_path / 'bert' / 'vocab.txt'})"]
    code, out, err = call("score", "EVQLVESGGG", *model, "--json")
    assert code == 0
    assert err == "note: line 1: 1 of 1 tokens is unknown; separate residues by spaces?\n"
    assert json.loads(out)["unknown"] == 1
    code, out, err = call("score", "E V Q L", *model, "--json")
    assert (code, err) == (0, "")
    assert "unknown" not in json.loads(out)
    code, _, err = call("score", "the cat", "the ☃ ☃ sat", "-m", "wiki-small")
    assert (code, err) == (0, "note: line 2: 2 of 4 tokens are unknown\n")
    code, _, err = call("score", *["☃ sat"] * 7, "-m", "wiki-small")
    assert err.splitlines()[-1] == "note: 2 more lines have unknown tokens"
    assert err.count("\n") == 6
