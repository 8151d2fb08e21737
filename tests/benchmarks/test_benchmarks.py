"""`python -m benchmarks`: every command, whole, at a tiny size; products as torch counts them."""

import json

import pytest
import torch
from benchmarks.__main__ import main
from benchmarks.flops import flops_per_pass
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

import maskov
import tiny_models
from benchmarks import overhead, rounds, samplers, scoring, translate
from maskov.translation import METHODS, TranslationMethod
from tiny_translation import WORDS, save

TINY = ["--model", "untrained", "--device", "cpu"]
RUN = ["--chains", "3", "--length", "4", "--epochs", "3"]


@pytest.fixture
def call(capsys, monkeypatch, tmp_path):
    """Run a command in this process; return what it wrote and printed."""
    for module in (samplers, overhead):
        monkeypatch.setattr(module, "in_process", lambda task, *arguments: task(*arguments))

    def command(name, *words):
        out = tmp_path / f"{name}.json"
        main([name, "--out", str(out), *words])
        return json.loads(out.read_text()), capsys.readouterr().out

    return command


def test_samplers_side_by_side(call):
    words = [*TINY, *RUN, "--burn-in", "1", "--seconds", "0.02"]
    found, printed = call("samplers", *words)
    assert [row["name"] for row in found["rows"]] == [*samplers.PLAIN, *samplers.VARIANTS]
    rows = {row["name"]: row for row in found["rows"]}
    plain, law = rows["algorithm 1"], rows[samplers.REFERENCE]
    assert plain["passes_per_step"] == 2 * 4 + 1 > law["passes_per_step"]
    assert plain["novel_per_step"] == law["novel_per_step"] == law["novel_seen"] / law["steps"]
    assert law["steps"] == 3 * 4 * 2
    for row in found["rows"]:
        assert row["novel_per_second"] == pytest.approx(
            row["novel_per_step"] * row["steps"] / row["seconds"]
        )
        assert row["share_of_ceiling"] == pytest.approx(row["teraflops"] / found["teraflops"])
        assert row["tokens_per_second"] == pytest.approx(row["passes"] * 6 / row["seconds"])
    assert "novel_per_second" in printed
    assert "never trained" in printed
    assert found["machine"].keys() >= {"device", "processor", "cores", "threads"}


@pytest.mark.parametrize("engine", ["rounds", "lock-step", "windows"])
def test_rounds_of_every_kind(call, engine, monkeypatch, tmp_path):
    few = {"moves": "span,insert-delete", "epochs": 1, "chains": 1, "lengths": "sampled"}
    row = rounds.Translations(TranslationMethod("mh", **few), 2)
    monkeypatch.setitem(rounds.ROWS, "sampled lengths", row)
    monkeypatch.setattr(translate, "SENTENCES", [" ".join(WORDS[:2]), WORDS[0]])
    rows = ["--rows", "default", "sites", "mixed", "sampled lengths", "--seconds", "0.02"]
    small = ["--chains", "2", "--length", "4:5", "--engine", engine, "--limit", "inf"]
    small += ["--translator", str(save(tmp_path / "model"))]
    found, printed = call("rounds", *TINY, *small, *rows)
    assert found["rows"].keys() == set(rows[1:5])
    assert all(one["passes_per_second"] > 0 for one in found["rows"].values())
    assert "mixed" in printed


def test_scoring_beside_minicons(call, monkeypatch):
    pytest.importorskip("minicons", reason="minicons is not installed (the extra bench)")
    words = [*TINY, "--seconds", "0.01", "--sentences", "4"]
    score = call("scoring", *words)[0]["score"]
    assert (score["agree"], score["compared"]) == (True, 4)
    assert [row["name"] for row in score["rows"]] == ["maskov", "minicons"]
    monkeypatch.setattr(scoring, "minicons_scorer", lambda *_: lambda texts: [12.0] * len(texts))
    assert call("scoring", *words)[0]["score"]["agree"] is False


def test_the_papers_run(call):
    words = ["--moves", "span", "--burn-in", "1", "--burn-in-energy", "raw(groups=2)"]
    words += ["--profile", "2"]
    found, printed = call("paper", *TINY, *RUN, "--delayed", "1", "--seconds", "0.01", *words)
    assert found["passes_per_step"] == pytest.approx(found["passes"] / found["steps"])
    ceiling = found["teraflops"] / found["ceiling_teraflops"]
    assert found["share_of_ceiling"] == pytest.approx(ceiling)
    assert len(found["progress"]) == 3
    assert "aten::" in printed


def test_the_encoder(call):
    words = ["--model", "bert-1x64-shaped", "--passes", "4", "--repeat", "1", "--seconds", "0.01"]
    found, _ = call("encoder", "--device", "cpu", *words)
    assert found["ratio"] == pytest.approx(found["huggingface_ms"] / found["ours_ms"])
    assert 4 * 17 <= found["tokens"] <= 4 * 47


def test_translation(call, monkeypatch, tmp_path):
    assert {method.name for method in translate.METHODS.values()} == set(METHODS)
    assert len({len(line.split()) for line in translate.sources(16)}) > 8
    monkeypatch.setattr(translate, "SENTENCES", [" ".join(WORDS[:2]), WORDS[0]])
    model, twin = save(tmp_path / "model"), save(tmp_path / "twin", causal=True)
    found, _ = call(
        "translate", "--model", str(model), "--twin", str(twin), "--sentences", "3",
        "--methods", "greedy", "mh raw", "ar greedy",
    )  # fmt: skip
    assert list(found["rows"]) == ["greedy", "mh raw", "ar greedy"]
    for row in found["rows"].values():
        assert row["sentences_per_second"] == pytest.approx(3 / row["seconds"])


def test_overhead(call):
    words = ["--model", "untrained", *RUN, "--resident", "2", "--repeat", "1", "--load", "30"]
    found, _ = call("overhead", *words, "--only", "checkpoints", "resume", "load")
    assert found["checkpoints"]["count"] > 0
    assert found["resume"]["sampling"] > 0
    assert [row["chains"] for row in found["load"].values()] == [3, 30]


@pytest.mark.parametrize(
    ("words", "phrase"),
    [
        ("samplers --burn-in 12", "--burn-in"),
        ("samplers --over chains", "--values"),
        ("scoring --model counterexample", "not a Hugging Face model"),
        ("scoring --precision tf32 --device cpu", "tf32"),
        ("scoring --model bert-2x100-shaped", "steps of 64"),
        ("nothing", "usage"),
    ],
)
def test_refusals(capsys, words, phrase):
    with pytest.raises(SystemExit) as ended:
        main(words.split())
    assert ended.value.code == 2
    assert phrase in "".join(capsys.readouterr())


FAMILIES = ["bert", "roberta", "esm", "modernbert"]


@pytest.fixture
def _plain_attention():
    """Have attention done by plain products: torch does not count its fused one on a CPU."""
    with sdpa_kernel(SDPBackend.MATH):
        yield


@pytest.mark.usefixtures("_plain_attention")
@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("length", [3, 11])
def test_a_whole_forward_is_counted_as_torch_counts_it(family, length, tmp_path):
    network = maskov.load(str(tiny_models.build(family, tmp_path)), "cpu").network
    ids = torch.full((4, length + 2), 5)
    with FlopCounterMode(display=False) as counter, torch.no_grad():
        network(input_ids=ids)
    expected = 4 * flops_per_pass(network.config, length)
    # Rotary angles are a product, too, of a size that does not matter; no other family has any.
    slack = 0.005 if family in ("modernbert", "esm") else 0
    assert counter.get_total_flops() == pytest.approx(expected, rel=slack, abs=0)
