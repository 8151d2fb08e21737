"""`python -m benchmarks`: every command, whole, at a tiny size."""

import json

import pytest
from benchmarks.__main__ import main
from benchmarks.models import SENTENCES, load_model
from benchmarks.tools import in_process

from benchmarks import overhead, samplers, scoring, translate
from maskov.errors import InputError
from maskov.translation import METHODS
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


def test_samplers_over_a_grid_are_drawn(call, tmp_path):
    words = [*TINY, "--chains", "2", "--length", "2", "--epochs", "2", "--burn-in", "1"]
    over = ["--over", "length", "--values", "2", "5"]
    found, _ = call("samplers", *words, "--seconds", "0.01", *over)
    assert [point["value"] for point in found["points"]] == ["2", "5"]
    assert [point["steps"] for point in found["points"]] == [2 * 2, 2 * 5]
    main(["plot", str(tmp_path / "samplers.json")])
    assert "novel moves per second" in (tmp_path / "samplers.svg").read_text()


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


@pytest.mark.slow
def test_overhead_of_processes_and_versions_in_turn(call):
    words = ["--model", "untrained", *RUN, "--resident", "2", "--repeat", "1"]
    found, _ = call("overhead", *words, "--only", "workers", "start")
    assert len({row["samples"] for row in found["workers"].values() if row["threads"] == 1}) == 1
    assert found["start"].keys() == {"--version", "--help", "sample --help"}
    scored = ["scoring", *TINY, "--seconds", "0.01", "--sentences", "4"]
    both, printed = call("versions", "src", "src", "--repeat", "1", "--", *scored)
    assert len(both["old"]) == len(both["new"]) == 1
    assert "sentences_per_second" in printed


@pytest.mark.slow
def test_a_measurement_in_a_process_of_its_own():
    assert in_process(len, "four") == 4
    with pytest.raises(InputError, match="steps of 64"):
        in_process(load_model, "bert-2x100-shaped", "cpu")


def test_a_shape_is_what_it_is_called_and_knows_the_sentences():
    model = load_model("bert-1x64-shaped", "cpu")
    config = model.network.config
    assert (config.num_hidden_layers, config.hidden_size) == (1, 64)
    assert "random weights" in model.caution
    assert len(set(SENTENCES)) == 256
    assert all(model.tokenizer.unk_token_id not in model.encode(text) for text in SENTENCES)


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
