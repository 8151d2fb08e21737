"""`maskov evaluate` of sequences: letters are words, records have names, a judge must be named."""

import json
import lzma
from dataclasses import asdict

import pytest
import transformers as hf

import maskov
import tiny_models
from maskov import InputError, Record, Schedule
from maskov.evaluation import evaluate, evaluate_run, self_bleu
from tiny_proteins import AMINO_ACIDS, SPECIAL, spaced_model

RECORDS = [Record("one heavy", "EVQLVESGGG"), Record("two", "DIQMTQ"), Record("three", "EVQLQE")]
FASTA = ">one heavy\nEVQLVE\nSGGG*\n>two\ndiqmtq\n>three\nEVQLQE\n"


def _words() -> hf.BertTokenizer:
    """Return a tokenizer that wants spaces between letters."""
    words = [*SPECIAL, *AMINO_ACIDS]
    return hf.BertTokenizer(vocab={w: i for i, w in enumerate(words)}, do_lower_case=False)


def _pairs() -> hf.GPT2Tokenizer:
    """Return byte pairs: some tokens are two letters, and a gap is a token, too."""
    tokens = ["<|endoftext|>", "Ġ", "-", *AMINO_ACIDS, "EV", "QL"]
    vocab = {token: number for number, token in enumerate(tokens)}
    return hf.GPT2Tokenizer(vocab=vocab, merges=[("E", "V"), ("Q", "L")])


KINDS = {"spaced": _words, "joined": tiny_models.esm, "pairs": _pairs}


@pytest.fixture(scope="module")
def judges(tmp_path_factory):
    root = tmp_path_factory.mktemp("judges")
    return {kind: str(tiny_models.build_gpt2(root / kind, make())) for kind, make in KINDS.items()}


@pytest.fixture
def file(tmp_path):
    (tmp_path / "library.fa").write_text(FASTA)
    return tmp_path / "library.fa"


@pytest.mark.parametrize(
    ("kind", "tokens"), [("spaced", 10 + 6 + 6), ("joined", 10 + 6 + 6), ("pairs", 8 + 6 + 4)]
)
def test_letters_are_words_whatever_the_judge_reads(call, judges, kind, tokens):
    code, out, err = call("evaluate", "-", "--judge", judges[kind], "--json", stdin=FASTA.encode())
    assert (code, err) == (0, "")
    found, judge = json.loads(out), maskov.Autoregressive(judges[kind])
    assert found == asdict(evaluate(RECORDS, judge))
    assert (found["sentences"], found["tokens"]) == (3, tokens)
    assert found["length"] == pytest.approx(22 / 3)
    # E V Q L S G, D I M T: ten letters of 22.
    assert found["distinct_1"] == 10 / 22
    spaced = [" ".join(record.sequence) for record in RECORDS]
    assert found["self_bleu"] == self_bleu(spaced).value > 0
    assert "|distinct:letters|" in found["signature"]
    assert ",exp,letters,n=3|" in found["signature"]
    plain = spaced if kind == "spaced" else [record.sequence for record in RECORDS]
    assert found["perplexity_per_token"] == evaluate(plain, judge).perplexity_per_token


@pytest.mark.parametrize(
    ("name", "content", "copies"),
    [
        ("t.fa", ">a\nEVQLV\nesggg*\n>a\nDIQ\nMT\n\n>\nQ\n", 1),
        ("t.fa.xz", ">a\nEVQLV\nESGGG\n>b\nDIQMTQ\n", 2),
        ("t.txt", "EVQLVESGGG\nE V Q L Q E\nDIQ\nMTQ\n", 2),
    ],
)
def test_copies_are_found_in_fasta_and_in_lines(
    call, file, judges, tmp_path, name, content, copies
):
    training = tmp_path / name
    data = content.encode()
    training.write_bytes(lzma.compress(data) if name.endswith("xz") else data)
    words = ["--judge", judges["joined"], "--training", training, "--json"]
    found = json.loads(call("evaluate", file, *words)[1])
    assert found["copied"] == copies / 3


def test_a_run_from_fasta_is_one_of_sequences(refused, tmp_path, judges):
    model = spaced_model(tmp_path / "bert")
    run = maskov.sample(
        model, texts=RECORDS, chains=2, schedule=Schedule(epochs=2), out=tmp_path / "run"
    )
    library = maskov.read_fasta(tmp_path / "run" / "samples.fa")
    for kind in ("spaced", "joined"):
        judge = maskov.Autoregressive(judges[kind])
        found = evaluate_run(run, judge)
        assert found.run_signature == run.signature
        assert found.length == pytest.approx(22 / 3)
        assert found.perplexity_per_token == evaluate(library, judge).perplexity_per_token
    told = refused("evaluate", tmp_path / "run")
    assert "the default judge reads English: give --judge" in told


def test_the_default_judge_and_references_are_refused(refused, file, tmp_path):
    assert "the default judge reads English: give --judge" in refused("evaluate", file)
    (tmp_path / "r.txt").write_text("a\nb\nc\n")
    lines = tmp_path / "r.txt"
    for words in ((file, "--references", lines), (lines, "--references", file)):
        assert "is FASTA, and --references compares translations" in refused("evaluate", *words)


def test_lines_and_records_do_not_mix(judges):
    judge = maskov.Autoregressive(judges["joined"])
    with pytest.raises(InputError, match="all lines, or all records"):
        evaluate([RECORDS[0], "EVQL"], judge)
    with pytest.raises(InputError, match="'a' is empty"):
        evaluate([Record("a", "")], judge)
