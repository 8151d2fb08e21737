"""Bad input: one clear sentence on standard error, exit code 2, nothing written, no traceback."""

from __future__ import annotations

import fcntl
import os

import pytest
import torch

from forked import Forked
from maskov.cli import main
from small import on_untrained

FAST = ["--epochs", "2", "--chains", "2", "--length", "5"]


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        ("--model ./nowhere", "no masked language model './nowhere'"),
        ("--kernel metropolis", "unknown kernel 'metropolis'"),
        ("--delayed -3", "more and more"),
        ("--delayed near", "numbers of positions"),
        ("--delayed 2 --kernel gibbs", "accepts everything"),
        ("--delayed near --kernel gibbs", "numbers of positions"),
        ("--delayed auto", "numbers of positions"),
        ("--moves span(block=2)", "takes sizes"),
        ("--moves site(blok=2)", "takes order, block, block_anneal"),
        ("--moves insert-delete(3)", "takes no arguments"),
        ("--moves site(block=x)", "are numbers"),
        ("--moves site(order=left-to-right),insert-delete", "have no order"),
        ("--kernel gibbs --moves span", "gibbs moves sites"),
        ("--kernel gibbs --energy norm", "drop --energy"),
        ("--kernel gibbs --energy raw", "drop --energy"),
        ("--kernel mask-predict --energy norm", "drop --energy"),
        ("--precision half", "unknown precision 'half'"),
        ("--precision bfloat16 --model counterexample", "is a float64 table"),
        ("--replicas 0", "2 to 16"),
        ("--replicas 2 --kernel gibbs", "Metropolis-Hastings"),
        ("--replicas 2 --kernel mask-predict", "Metropolis-Hastings"),
        ("--replicas 1,hot", "1,0.87,0.75"),
        ("--replicas many", "1,0.87,0.75"),
        ("--replicas 0.9,0.5", "fall from 1"),
        ("--resident 0", "--resident must be at least 1"),
        ("--energy heat", "unknown energy 'heat'"),
        ("--energy raw+", "unknown energy"),
        ("--energy x*raw", "unknown energy"),
        ("--energy autoregressive(./nowhere)", "no causal language model"),
        ("--proposal temperature=0", "temperature of 0"),
        ("--proposal temperature=-1", "0 or more"),
        ("--proposal temperature=hot", "such as temperature=0.8"),
        ("--proposal heat=1", "such as temperature=0.8"),
        ("--proposal top_p=1.5", "top-p"),
        ("--proposal top_p=0", "top-p"),
        ("--proposal top_k=0", "top-k"),
        ("--proposal epsilon=2", "epsilon"),
        ("--target-temperature 0", "target temperature"),
        ("--target-temperature -2", "target temperature"),
        ("--moves site(block=6)", "does not fit into the shortest sequence"),
        ("--moves site(block=0)", "block"),
        ("--moves site(order=backwards)", "unknown order"),
        ("--moves site(order=replacement)", "unknown order"),
        ("--start nowhere", "unknown start"),
        ("--length 0", "not a range"),
        ("--length 9:3", "not a range"),
        ("--length five", "not a number or a range"),
        ("--length 5:", "not a number or a range"),
        ("--length 1000", "out of range"),
        ("--chains 0", "at least one chain"),
        ("--epochs 0", "at least one epoch"),
        ("--burn-in 2", "burn-in must leave"),
        ("--force-accept 3", "forced for 0 to 2"),
        ("--target-temperature 1:-1", "rate must be 0 or more"),
        ("--target-temperature 1:0.1:0.5:3", "START:FALL:FLOOR"),
        ("--target-temperature 1:0.1:2", "below its floor"),
        ("--thin 5", "no sample would be kept"),
        ("--target-temperature 1:nan", "finite"),
        ("--checkpoint-every nan", "0 seconds or more"),
        ("--chains 99999999999", "more than one run can trace"),
        ("--device meta", "not available"),
        ("--model untrained(tokenizer=nowhere)", "drop the tokenizer"),
        ("--seed -3", "seed"),
        ("--token-budget 0", "--token-budget"),
        ("--device abacus", "not available"),
        ("--kernel gibbs --target-temperature 0.5", "no target"),
        ("--kernel gibbs --target-temperature 1:0.1", "no target"),
        ("--kernel mask-predict --proposal top_p=0.5", "drop --proposal"),
        ("--kernel mask-predict --moves site(block=2)", "drop --moves"),
        ("--kernel mask-predict --start greedy", "starts from all masked"),
        ("--start-text ./nowhere", "cannot read"),
    ],
)
def test_sample_refuses(refused, words, reason):
    assert reason in refused("sample", *FAST, "--out", "run", *words.split())


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "is empty"),
        (b"the cat\n\nthe dog\n", "line 2 is empty"),
        (b"the [MASK] sat", "holds a mask"),
        (b"[CLS] the cat", "[CLS]"),
        (b"the " * 200, "has 200 tokens"),
        (b"the cat\n\xff\xfe\n", "not UTF-8 text (line 2)"),
    ],
)
def test_score_refuses(refused, content, reason):
    assert reason in refused("score", "-", "--json", stdin=content)


def test_output_that_cannot_be_written_is_one_sentence():
    with open("/dev/full", "w") as full:
        process = Forked(["models", "--json"], before=lambda: os.dup2(full.fileno(), 1))
        assert process.end() == (2, "", "maskov: no space left on device.\n")


@pytest.mark.parametrize(
    ("words", "phrase"),
    [
        (["score", "nowhere.txt"], "cannot read 'nowhere.txt'"),
        (["resume", "nowhere"], "no run folder"),
        (["diagnose", "nowhere"], "no run folder"),
        (["infill", "nowhere.txt"], "neither a template nor a file"),
        (["sample", "--start-text", "nowhere.txt"], "cannot read"),
        (["infill", "the [MASK] xyzzy", "--out", "run"], "[UNK]"),
        (["infill", "[MASK] " * 200, "--out", "run"], "has 200 tokens"),
        (["infill", "the [SEP] [MASK]", "--out", "run"], "[SEP]"),
        (["infill", "templates.txt"], "template 2 has no blank"),
        (["score", "the [MASK] sat", "-e", "autoregressive", "-m", "wiki-judge"], "special token"),
        (["score", "the cat [SEP]", "-e", "autoregressive", "-m", "wiki-judge"], "special token"),
        # Writing below a file fails for every user, also for one that no permission stops.
        (["sample", *FAST, "--out", "/dev/null/run"], "cannot write the run folder"),
    ],
)
def test_other_commands_refuse(refused, tmp_path, words, phrase):
    (tmp_path / "templates.txt").write_text("the [MASK]\nthe cat\n")
    assert phrase in refused(*words)


def test_a_folder_that_holds_something_is_not_overwritten(refused, tmp_path):
    folder = tmp_path / "mine"
    folder.mkdir()
    (folder / "thesis.tex").write_text("precious")
    assert "already holds something else" in refused("sample", *FAST, "--out", "mine")
    assert (folder / "thesis.tex").read_text() == "precious"
    (tmp_path / "file").write_text("precious")
    assert "already holds something else" in refused("sample", *FAST, "--out", "file")


def test_a_full_disk_is_one_sentence_and_leaves_nothing(tmp_path):
    """A limit on file sizes stands for the disk: the write fails in the middle of a file."""
    import resource

    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (60, 60))

    folder = tmp_path / "run"
    words = on_untrained(["sample", *FAST, "--out", str(folder)])
    code, _, err = Forked(words, before=limit).end()
    assert code == 2
    assert "cannot write the run folder" in err
    assert "Traceback" not in err
    assert not folder.exists()


def test_weights_that_are_not_numbers_are_one_sentence(refused, tmp_path):
    from small import tiny_bert

    model = tiny_bert(dtype=torch.float32)
    model.network.bert.embeddings.word_embeddings.weight.data.fill_(torch.nan)
    model.network.save_pretrained(tmp_path / "model")
    model.tokenizer.save_pretrained(tmp_path / "model")
    assert "NaN" in refused("score", "-", "--model", "model", stdin=b"red green")
    assert "NaN" in refused("sample", *FAST, "--model", "model", "--quiet")


def test_debug_shows_the_traceback():
    from maskov.errors import InputError

    with pytest.raises(InputError):
        main(["sample", "--proposal", "top_p=3", "--debug"])


def test_a_reader_that_goes_away_is_not_a_crash():
    """As with `| head -1`; the pipe holds far less than there is to write."""
    reader, writer = os.pipe()
    fcntl.fcntl(writer, fcntl.F_SETPIPE_SZ, 4096)

    def write_to_the_pipe():
        os.dup2(writer, 1)
        os.close(writer)
        os.close(reader)

    words = ["sample", "--json", "-q", "-n", "1", "-c", "200", "--length", "3", "-k", "gibbs"]
    process = Forked(on_untrained(words), before=write_to_the_pipe)
    os.close(writer)
    with open(reader, "rb", buffering=0) as lines:
        assert lines.readline().startswith(b"{")
    assert process.end() == (1, "", "")
