"""The commands as a user calls them: what they print, where, and with which exit code."""

import json
import re
from collections import Counter

import click
import pytest
from typer.main import get_command
from typer.testing import CliRunner

from maskov import Run
from maskov.cli import app
from maskov.ui.report import build, to_html, to_markdown
from small import few_discarded_chains

FAST = "sample --epochs 2 --chains 2 --length 5"
FILL = "infill -n 20 -c 4 --workers 0"


def test_samples_go_to_standard_output_and_progress_to_standard_error(call):
    code, out, err = call(f"{FAST} --json")
    assert code == 0
    lines = [json.loads(line) for line in out.splitlines()]
    assert [line["chain"] for line in lines] == [0, 1]
    for line in lines:
        assert {"chain", "text", "tokens", "ids", "energy_raw", "energy_norm"} <= line.keys()
        assert len(line["ids"]) == len(line["tokens"]) == 5
    assert "epoch 2/2" in err
    assert "never trained" in err
    assert "\x1b[" not in err
    assert call(f"{FAST} --json --quiet") == (0, out, "")
    assert call(FAST)[1].split()[:4] == ["chain", "E_raw", "E_norm", "text"]
    assert call(f"{FAST} --json -q --seed 6")[1] != out


@pytest.mark.parametrize(
    ("words", "kernel", "steps"),
    [("--energy norm --moves site", "mh", 20), ("-k gibbs", "gibbs", 20),
     ("-k mask-predict", "mask-predict", 4)],
)  # fmt: skip
def test_a_run_folder_diagnoses_itself_and_is_resumed(words, kernel, steps, printed, tmp_path):
    out = printed(f"{FAST} {words} --out run --json -q")
    assert (tmp_path / "run" / "samples.jsonl").read_text() == out
    found = json.loads(printed("diagnose run --json"))
    assert (found["kernel"], found["chains"], found["steps"]) == (kernel, 2, steps)
    assert found["leaves_invariant"] is (kernel == "mh")
    assert 0 <= found["novel_rate"] <= found["acceptance_rate"] <= 1
    for name in ("proposed_novel_rate", "passes_per_step", "energy_raw_mean", "energy_norm_mean",
                 "energy_raw_standard_error", "energy_norm_standard_error"):  # fmt: skip
        assert isinstance(found[name], float)
    assert "acceptance rate" in printed("diagnose run")
    assert printed("resume run --json -q") == out


def test_every_starting_text_has_its_chains_and_the_run_says_so(call, tmp_path):
    (tmp_path / "texts").write_text("the cat sat\nthe dog ran on\n")
    code, out, err = call("sample --start-text texts -n 1 -c 2 --json --out run")
    found = [json.loads(line) for line in out.splitlines()]
    assert [(row["template"], len(row["ids"])) for row in found] == [(0, 3)] * 2 + [(1, 4)] * 2
    assert (code, err.split("\n")[0]) == (0, "note: 2 texts start 2 chains each: 4 chains")
    signature = Run.open(tmp_path / "run").signature
    assert "|start:texts|texts:#" in signature
    assert "start:masked" not in signature


CITIES = "the city of the river\nthe old city\n"


@pytest.mark.parametrize(
    ("rule", "held"), [("city, river", [[1, 4], [2]]), ("masks", [[1], [0, 2]])]
)
def test_samples_keep_what_is_frozen(rule, held, rows, printed, tmp_path):
    (tmp_path / "masks").write_text(".#...\n#.#\n")
    (tmp_path / "texts").write_text(CITIES)
    words = [line.split() for line in CITIES.splitlines()]
    for one in rows("sample -n 2 -c 2 --start-text texts --out run --freeze", rule):
        given = words[one["template"]]
        for place in held[one["template"]]:
            assert one["tokens"][place] == given[place]
    assert [list(places) for places in Run.open("run").manifest.inputs.frozen] == held
    printed("diagnose run")
    printed("report run --format md")
    free = "--freeze city --moves span,insert-delete --length-prior none"
    found = rows(f"sample -n 2 -c 2 --start-text texts {free}")
    assert all("city" in one["tokens"] for one in found)


@pytest.fixture
def _short_tuning(monkeypatch):
    few_discarded_chains(monkeypatch)


@pytest.mark.usefixtures("_short_tuning")
def test_blanks_of_unknown_length_are_filled_with_the_moves_they_need(rows, printed):
    found = rows("infill 'the [MASK{1,3}] of [MASK*]' -n 2 -c 2 --out run")
    run = Run.open("run")
    assert run.manifest.config.length_prior == "flat"
    moves = [part["move"]["part"] for part in run.manifest.config.kernel["kernels"]]
    assert moves == ["span", "resize", "resize"]
    for number, line in enumerate(found):
        first, second = run.traces["sizes"][-1, number]
        assert 1 <= first <= 3
        assert 1 <= second <= 8
        assert len(line["tokens"]) == 2 + first + second
        assert (line["tokens"][0], line["tokens"][1 + first]) == ("the", "of")
    printed("diagnose run")
    printed("report run --format md")


def test_a_name_is_kept_in_the_run_folder_and_shown_by_reports(printed):
    name = "Second <b>try</b>"
    printed(f"{FAST} -q --out run --name", name)
    run = Run.open("run")
    report = build([run])
    assert run.manifest.name == report["title"] == report["runs"][0]["label"] == name
    assert "<h1>Second &lt;b&gt;try&lt;/b&gt;</h1>" in (page := to_html(report))
    assert name not in page
    assert "# Second \\<b\\>try\\</b\\>" in to_markdown(report)
    labels = [one["label"] for one in build([run, run])["runs"]]
    assert labels == [f"{name} (1)", f"{name} (2)"]


WORDS = "sample --model counterexample --length 2 --workers 0"


@pytest.mark.parametrize(
    ("options", "verdict", "advice"),
    [
        ("-n 12", "too short to tell: 6 traced epochs", "--epochs 24, or --until converged"),
        ("-n 40 -k gibbs", "no target: ", "--kernel mh"),
        ("-n 40 -c 2", "not converged: ", "--epochs "),
        ("-n 120 -c 40", "converged: nested R-hat 1.0", None),
    ],
)
def test_a_run_ends_with_a_verdict_and_advice(options, verdict, advice, call, tmp_path):
    code, _, err = call(f"{WORDS} {options} --out run")
    lines = err.splitlines()
    assert (code, lines[-1].startswith("model:counterexample")) == (0, True)
    found = Run.open(tmp_path / "run").diagnose().verdict
    assert lines[-2 if advice is None else -3 :][: len(found.lines())] == found.lines()
    assert found.lines()[0].startswith(verdict)
    assert ("try next" in err) is (advice is not None)
    if advice is not None:
        assert lines[-2].startswith(f"try next: {advice}")
    if found.state == "not converged":
        epochs = int(found.advice.split("--epochs ")[1].split(",")[0])
        wanted = 8 + found.times_longer * 32  # the burn-in stays
        assert wanted <= epochs <= 1.1 * wanted + 1
    assert call("resume run")[2].splitlines()[-2:] == lines[-2:]


def test_the_counterexample_can_be_sampled_and_verified(rows, printed):
    assert all(len(row["ids"]) == 2 for row in rows("sample -m counterexample -n 3 -c 2"))
    for line in printed("verify --json").splitlines():
        one = json.loads(line)
        assert (one["invariance_error"] < 1e-10) is one["claims_invariance"]


# infill: each distinct text, how often it was drawn, and its energy.


@pytest.fixture
def table(printed):
    """Run `infill`; return its whole table."""

    def run(words: str):
        head, *lines = printed(f"{FILL} {words} -q --top-k 1000").splitlines()
        names = head.split()
        return [dict(zip(names, line.split(None, len(names) - 1), strict=True)) for line in lines]

    return run


def test_fills_of_chains_are_counted_over_all_draws_most_frequent_first(table, rows):
    """The draws are those that `--thin 1` keeps, so that both must agree."""
    words = "'she [MASK{1,3}]' --length-prior none"
    kept, found = rows(f"{FILL} {words} --thin 1"), table(words)
    counts = Counter(one["text"].strip() for one in kept)
    assert len(kept) > 40
    assert {row["text"].strip(): int(row["count"]) for row in found} == counts
    numbers = [int(row["count"]) for row in found]
    assert numbers == sorted(numbers, reverse=True)
    energy = {one["text"].strip(): one["energy_raw"] for one in kept}
    for row in found:
        assert float(row["probability"]) == pytest.approx(int(row["count"]) / len(kept), abs=6e-5)
        assert float(row["energy"]) == pytest.approx(energy[row["text"].strip()], abs=0.006)
    assert [row["chain"] for row in rows(f"{FILL} {words}")] == [0, 1, 2, 3]


def test_fills_are_printed_with_their_probabilities(call, rows, tmp_path):
    (tmp_path / "templates").write_text("the [MASK] sat\nno [MASK] [.3.]\n")
    code, out, err = call("infill templates --top-k 3")
    head, *lines = out.splitlines()
    assert head.split() == ["template", "probability", "error", "energy", "text"]
    assert (code, len(lines)) == (0, 6)
    assert "tokens in the blanks" in err
    assert "no [MASK] [.3.]: " in err
    for row in rows("infill templates --top-k 3"):
        assert {"template", "text", "words", "probability", "error", "energy"} <= row.keys()
    assert call("infill 'the [MASK] sat' -c 2 --whole-words")[0] == 2


def test_templates_are_told_apart_and_keep_their_words(table, rows, tmp_path):
    (tmp_path / "templates").write_text("the [MASK] sat\nno [MASK]\n")
    found = table("templates")
    for number, word in (("1", "the"), ("2", "no")):
        own = [row for row in found if row["template"] == number]
        assert {row["text"].split()[0] for row in own} == {word}
        assert sum(float(row["probability"]) for row in own) == pytest.approx(1, abs=0.01)
    stdin = (tmp_path / "templates").read_bytes()
    for source, given in (("templates", b""), ("-", stdin)):
        kept = rows(f"infill {source} -n 1 -c 3", stdin=given)
        assert [row["template"] for row in kept] == [0, 0, 0, 1, 1, 1]
    for row in rows("infill 'the [MASK] [MASK] on the mat .' -n 2 -c 8"):
        assert (row["tokens"][0], row["tokens"][3:]) == ("the", ["on", "the", "mat", "."])
        assert "[MASK]" not in row["tokens"]


def test_texts_are_scored_from_arguments_files_and_standard_input(printed, rows, tmp_path):
    texts = ["the cat sat on the mat .", "the dog"]
    content = "".join(text + "\n" for text in texts)
    (tmp_path / "texts").write_text(content)
    found = rows("score -e norm texts")
    assert [line["text"] for line in found] == texts
    for line in found:
        assert line["energy"] == pytest.approx(sum(line["terms"]))
        assert len(line["tokens"]) == len(line["terms"])
    assert rows("score -e norm -", stdin=content) == rows("score -e norm", *texts) == found
    assert [row["text"] for row in rows("score no texts")] == ["no", *texts]


def test_energies_add_up_and_the_judge_is_the_shipped_one(rows):
    def energy(words):
        return rows(f"score 'the cat sat on the mat .' {words}")[0]["energy"]

    mixed = 0.5 * energy("-e raw") + 2 * energy("-e norm")
    assert energy("-e 0.5*raw+2*norm") == pytest.approx(mixed, abs=1e-4)
    named = energy("-e autoregressive(wiki-judge)")
    assert energy("-e autoregressive -m wiki-any") == named
    assert energy("-e autoregressive -m wiki-judge") == named
    # The two share their vocabulary, so the sum has a term for each token.
    both = energy("-e norm+autoregressive -m wiki-any")
    assert both == pytest.approx(named + energy("-e norm -m wiki-any"))


def test_words_have_the_sum_of_their_tokens(rows, printed):
    line = "score 'The cat sat on the mat.' -m wiki-any"
    (found,) = rows(line)
    assert found["words"] == ["The", "cat", "sat", "on", "the", "mat."]
    assert found["tokens"][-2:] == ["mat", "."]
    assert found["word_terms"][-1] == pytest.approx(sum(found["terms"][-2:]))
    assert sum(found["word_terms"]) == pytest.approx(found["energy"])
    assert printed(f"{line} --words").split()[-2:] == ["mat.", f"{found['word_terms'][-1]:.2f}"]
    assert "words" not in printed(line)


def test_unknown_tokens_are_pointed_out(call):
    bert = "-m '@bert(tokenizer=@bert/vocab.txt)' --json"
    code, out, err = call(f"score EVQLVESGGG {bert}")
    assert err == "note: line 1: 1 of 1 tokens is unknown; separate residues by spaces?\n"
    assert (code, json.loads(out)["unknown"]) == (0, 1)
    code, out, err = call(f"score 'E V Q L' {bert}")
    assert (code, err, "unknown" in json.loads(out)) == (0, "", False)
    err = call("score -m wiki-any 'the cat' 'the ☃ ☃ sat'", *["☃ sat"] * 6)[2]
    assert err.startswith("note: line 2: 2 of 4 tokens are unknown\n")
    assert err.splitlines()[-1] == "note: 2 more lines have unknown tokens"
    assert err.count("\n") == 6


def test_the_models_are_listed(printed):
    found = {row["name"]: row for row in map(json.loads, printed("models --json").splitlines())}
    assert found["tiny-translation"]["pairs"] == ["de-en", "ro-en"]
    assert (found["tiny-twin"]["kind"], found["tiny-twin"]["pairs"]) == (
        "autoregressive",
        ["de-en"],
    )
    lines = printed("models").splitlines()
    named = [line.split(None, 1)[1].strip() for line in lines if "(default" in line]
    assert named == ["wiki-any (default)", "wiki-judge (default judge of evaluate)"]
    assert any("autoregressive: random weights" in line for line in lines)
    assert printed("--version").startswith("maskov ")


def help_of(command: str) -> str:
    environment = {"COLUMNS": "100", "TERMINAL_WIDTH": "100"}
    result = CliRunner().invoke(app, [*command.split(), "--help"], env=environment)
    assert result.exit_code == 0
    return result.output


def panels(text: str) -> dict[str, list[str]]:
    """Return the options of each panel by its title."""
    found: dict[str, list[str]] = {}
    for line in text.splitlines():
        if title := re.match(r"╭─ (.+?) ─", line):
            found[title[1]] = []
        elif name := re.match(r"│ [ *]*(--[\w-]+)", line):
            found[list(found)[-1]].append(name[1])
    return found


@pytest.mark.parametrize("command", [
    "", "sample", "infill", "rewrite", "translate", "score", "evaluate", "resume", "diagnose",
    "report", "serve", "verify", "models", "rate", "rate export", "rate import",
])  # fmt: skip
def test_help_shows_few_options_first_and_no_types_of_flags(command):
    text = help_of(command)
    assert "bool" not in text.lower()
    found = panels(text)
    found.pop("Arguments", None)
    if command in ("sample", "infill", "rewrite", "translate"):
        assert 7 <= len(found.pop("Options")) <= 11
        assert all(title.startswith("Advanced: ") for title in found)
    if command == "sample":
        assert sum(map(len, found.values())) > 20


def test_sample_has_few_options():
    command = get_command(app).commands["sample"]
    names = {one.name for one in command.get_params(click.Context(command))}
    assert {"model", "moves", "seed", "help"} <= names
    assert len(names) <= 42
