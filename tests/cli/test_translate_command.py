"""`maskov translate` as a user calls it: what is read, printed, kept and refused."""

from __future__ import annotations

import json

import pytest

from maskov import AutoregressiveTranslator, Run, TranslationMethod, load, translate
from maskov.config import ModelSource
from maskov.models import choose_device
from maskov.translation.methods import METHODS
from tiny_translation import LONGEST, SOURCES, WORDS, save, shelf

KEYS = ["source", "text", "energy_raw", "energy_norm", "chain"]
TOO_LONG = " ".join(["red"] * LONGEST)
FAST = ["--method", "mh", "--epochs", "3"]


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    """A folder of models that serve two pairs; the twin serves one of them."""
    return shelf(tmp_path_factory.mktemp("models"), twin=("de-en",))


@pytest.fixture(autouse=True)
def _among_models(monkeypatch, tmp_path, models):
    monkeypatch.setenv("MASKOV_MODELS", str(models))
    monkeypatch.chdir(tmp_path)


def _text(lines) -> bytes:
    return "".join(line + "\n" for line in lines).encode()


def _read(out: str) -> list[dict]:
    return [json.loads(line) for line in out.splitlines()]


def test_translations_are_json_lines_in_order(call, models):
    code, out, err = call("translate", "-", "--pair", "de-en", "--json", stdin=_text(SOURCES))
    assert code == 0
    lines = _read(out)
    assert all(list(line) == KEYS for line in lines)
    assert [line["source"] for line in lines] == SOURCES
    assert "epoch 10/10" in err
    expected = translate(load(models / "tiny-translation", "cpu"), SOURCES)
    assert out == "".join(one.to_json() + "\n" for one in expected)
    assert all(set(line["text"].split()) <= set(WORDS) for line in lines)


def test_five_lengths_are_tried_by_default(call, models):
    words = ["translate", "-", "--pair", "de-en", "--json", "-q"]
    out = call(*words, stdin=_text(SOURCES))[1]
    assert call(*words, "--length-beam", "5", stdin=_text(SOURCES))[1] == out
    one = call(*words, "--length-beam", "1", stdin=_text(SOURCES))[1]
    assert one != out
    every = call(*words, "--every-chain", stdin=_text(SOURCES[:1]))[1]
    assert [line["chain"] for line in _read(every)] == list(range(5))


def test_plain_texts_are_one_a_line_from_a_file_or_standard_input(call, tmp_path):
    (tmp_path / "in.txt").write_bytes(_text(SOURCES))
    words = ["--pair", "ro-en", *FAST]
    code, out, err = call("translate", "in.txt", *words, "-q")
    assert (code, err) == (0, "")
    assert len(out.splitlines()) == len(SOURCES)
    assert call("translate", "-", *words, stdin=_text(SOURCES))[1] == out
    asked = call("translate", "-", *words, "--json", stdin=_text(SOURCES))[1]
    assert [line["text"] for line in _read(asked)] == out.splitlines()
    # Windows' line ends and a mark in front are no text, nor is a line end that is missing.
    marked = b"\xef\xbb\xbf" + "\r\n".join(SOURCES).encode()
    assert call("translate", "-", *words, stdin=marked)[1] == out


def test_the_same_seed_gives_the_same_bytes_and_another_does_not(call):
    words = ["translate", "-", "--pair", "de-en", *FAST, "--json", "-q"]
    one = call(*words, "--seed", "5", stdin=_text(SOURCES))[1]
    assert call(*words, "--seed", "5", stdin=_text(SOURCES))[1] == one
    assert call(*words, "--seed", "6", stdin=_text(SOURCES))[1] != one
    assert call(*words, "--seed", "5", "--token-budget", "16", stdin=_text(SOURCES))[0] == 0


def test_empty_lines_are_kept_in_place(call):
    texts = ["", "red", "", "  ", "blue green", ""]
    code, out, _ = call("translate", "-", "--pair", "de-en", "-q", stdin=_text(texts))
    assert code == 0
    lines = out.split("\n")
    assert len(lines) == len(texts) + 1
    assert [bool(line) for line in lines[:-1]] == [bool(text.strip()) for text in texts]
    out = call("translate", "-", "--pair", "de-en", "-q", "--json", stdin=_text(texts))[1]
    assert [line["source"] for line in _read(out)] == texts
    nothing = {"source": "", "text": "", "energy_raw": 0.0, "energy_norm": 0.0, "chain": 0}
    assert _read(out)[0] == nothing


@pytest.mark.parametrize(
    "method", [[], FAST, ["--method", "ar"], ["--method", "greedy"]], ids=" ".join
)
def test_input_of_empty_lines_alone(call, method):
    words = ["translate", "-", "--pair", "de-en", "-q", *method]
    assert call(*words, stdin=b"\n\n") == (0, "\n\n", "")
    assert call(*words, stdin=b"\n") == (0, "\n", "")


def test_every_chain_can_be_printed(call):
    words = ["translate", "-", "--pair", "de-en", *FAST, "-c", "3", "--json", "-q"]
    everyone = _read(call(*words, "--every-chain", stdin=_text(SOURCES))[1])
    assert [line["chain"] for line in everyone] == [0, 1, 2] * len(SOURCES)
    assert [line["source"] for line in everyone] == [text for text in SOURCES for _ in range(3)]
    assert _read(call(*words, stdin=_text(SOURCES))[1]) == everyone[::3]
    picked = _read(call(*words, "--pick", "mbr", stdin=_text(SOURCES))[1])
    assert len(picked) == len(SOURCES)
    assert all(line in everyone for line in picked)


@pytest.mark.parametrize("method", [name for name in METHODS if name != "ar"])
def test_every_method_translates(call, method):
    words = ["--epochs", "2"] if "epochs" in METHODS[method] else []
    code, out, _ = call(
        "translate", "-", "--pair", "de-en", "--method", method, *words, "-q", stdin=b"red\n"
    )
    assert code == 0
    assert set(out.split()) <= set(WORDS)
    assert out.strip()


def test_every_option_reaches_its_method(call, models):
    given = {
        "energy": "norm", "epochs": 3, "temperature": 1.5, "target_temperature": 2.0, "anneal": 0.5,
        "target_floor": 0.5, "force_accept": 1, "block": 3, "block_anneal": 1.0, "chains": 3,
        "lengths": "drawn", "pick": "lowest",
    }  # fmt: skip
    words = [f"--{name.replace('_', '-')}={value}" for name, value in given.items()]
    out = call(
        "translate", "-", "--pair", "de-en", "--method", "block-mh", *words, "--json", "-q",
        stdin=_text(SOURCES),
    )[1]  # fmt: skip
    model = load(models / "tiny-translation", "cpu")
    expected = translate(model, SOURCES, TranslationMethod("block-mh", **given))
    assert out == "".join(one.to_json() + "\n" for one in expected)
    words = ["--iterations=3", "--length-beam=4", "--json", "-q"]
    out = call("translate", "-", "--pair", "de-en", *words, stdin=_text(SOURCES))[1]
    expected = translate(model, SOURCES, TranslationMethod(iterations=3, length_beam=4))
    assert out == "".join(one.to_json() + "\n" for one in expected)


def test_the_twin_writes(call, models, tmp_path):
    model = load(models / "tiny-translation", "cpu")
    words = ["translate", "-", "--method", "ar", "--json", "-q"]
    ways = [
        ["--pair", "de-en"],
        ["--model", models / "tiny-translation", "--twin", models / "tiny-twin"],
        ["--pair", "ro-en", "--twin", "tiny-twin"],
        ["--pair", "de-en", "--beam", "5", "--length-power", "1"],
    ]
    twin = AutoregressiveTranslator.load(models / "tiny-twin", choose_device("cpu"), "tiny-twin")
    expected = translate(model, SOURCES, TranslationMethod("ar"), twin)
    for way in ways:
        code, out, err = call(*words, *way, stdin=_text(SOURCES))
        assert (code, err) == (0, "")
        assert out == "".join(one.to_json() + "\n" for one in expected)
    other = save(tmp_path / "twin", seed=9, causal=True)
    out = call(*words, "--pair", "de-en", "--twin", other, stdin=_text(SOURCES))[1]
    assert [line["text"] for line in _read(out)] != [one.text for one in expected]


def test_a_run_folder_is_kept_and_can_be_resumed(call, tmp_path):
    words = ["translate", "-", "--pair", "de-en", *FAST, "-c", "2", "--every-chain", "--json", "-q"]
    code, out, _ = call(*words, "--out", "run", stdin=_text(["", *SOURCES]))
    assert code == 0
    run = Run.open(tmp_path / "run")
    assert run.finished
    assert list(run.manifest.inputs.sources) == SOURCES
    assert run.manifest.config.model.source.name == "tiny-translation"
    before = (tmp_path / "run" / "samples.jsonl").read_bytes()
    code, again, _ = call("resume", "run", "--json", "-q")
    assert code == 0
    assert again.encode() == before
    assert [line["text"] for line in _read(again)] == [line["text"] for line in _read(out)[1:]]
    assert call("diagnose", "run", "--json")[0] == 0
    code, out, err = call("translate", "-", "--pair", "de-en", "--out", "run", stdin=b"red\n")
    assert (code, out) == (2, "")
    assert "already holds a run" in err


def test_a_folder_is_found_again_from_anywhere(call, models, tmp_path, monkeypatch):
    monkeypatch.chdir(models)
    words = ["translate", "-", "-m", "./tiny-translation", "-q", "--out", tmp_path / "run"]
    assert call(*words, stdin=b"red\n")[0] == 0
    source = Run.open(tmp_path / "run").manifest.config.model.source
    assert source == ModelSource(str(models / "tiny-translation"))


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        ("", "give the languages, such as --pair de-en, or --model."),
        ("--pair en-de", "no model translates 'en-de'; use one of de-en, ro-en"),
        ("--pair ro-en --method ar", "no model translates 'ro-en'; use one of de-en"),
        ("--pair de-en --method beam", "unknown method 'beam'"),
        ("--pair de-en --method mh --pick best", "unknown --pick"),
        ("--pair de-en --method mh --lengths long", "unknown --lengths"),
        ("--pair de-en --method mh --pick mbr", "give --chains 3 or more"),
        ("--pair de-en --epochs 3", "'mask-predict' does not use --epochs"),
        ("--pair de-en --method greedy --iterations 3", "'greedy' does not use --iterations"),
        ("--pair de-en --method gibbs --energy norm", "'gibbs' does not use --energy"),
        ("--pair de-en --method mh --beam 3", "'mh' does not use --beam"),
        ("--pair de-en --method ar --chains 2", "'ar' does not use --chains"),
        ("--pair de-en --method ar --out run", "makes no use of --out: drop it"),
        ("--pair de-en --method ar --token-budget 9", "drop it"),
        ("--pair de-en --twin tiny-twin", "makes no use of --twin"),
        ("--pair de-en --token-budget 0", "--token-budget must be at least 1"),
        ("--pair de-en --method block-mh --block 0", "--block must be at least 1"),
        ("--pair de-en --seed -1 --out run", "seed"),
        ("--pair de-en --precision half", "unknown precision"),
        ("--pair de-en --device abacus", "not available"),
        ("--model untrained", "'untrained' is not a translation model: it has no source"),
        ("--model tiny-twin", "is autoregressive"),
        ("--model ./nowhere", "'./nowhere'"),
        ("--pair de-en --method ar --twin tiny-translation", "needs an autoregressive one"),
        ("--pair de-en --method ar --twin ./nowhere", "'nowhere' is not a translation model"),
        ("--pair de-en --length-beam 99", "has only 10 lengths"),
        ("--pair de-en --method mh --drafts -", "cannot both come from standard input"),
        ("--pair de-en --method mh --drafts nowhere.txt", "cannot read 'nowhere.txt'"),
        ("--pair de-en --drafts nowhere.txt", "cannot read 'nowhere.txt'"),
        ("--pair de-en --method mh --start drafts", "--drafts FILE"),
        ("--pair ro-en --method mh --lengths sampled", "--energy norm+0.5*predicted_length"),
    ],
)
def test_translate_refuses(refused, words, reason):
    assert reason in refused("translate", "-", "-q", *words.split(), stdin=b"red\n")


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "is empty"),
        (b"red\nblue\n\xff\xfe\n", "is not UTF-8 text (line 3)"),
        (_text(["red", TOO_LONG]), f"line 2 has {LONGEST} tokens"),
        (_text(["", "red", "", " ", TOO_LONG]), f"line 5 has {LONGEST} tokens"),
    ],
)
@pytest.mark.parametrize("method", ["mask-predict", "mh", "ar"])
def test_texts_that_cannot_be_read_are_named_by_their_line(refused, content, reason, method):
    words = ["--pair", "de-en", "--method", method, "-q"]
    assert reason in refused("translate", "-", *words, stdin=content)


def test_chains_start_from_drafts(call, tmp_path):
    (tmp_path / "texts").write_text("red\n\nblue green\n")
    (tmp_path / "drafts").write_text("blue\n\nwhite red\n")
    words = ["--pair", "de-en", *FAST, "--seed", "3", "-q"]
    code, out, err = call("translate", "texts", *words, "--drafts", "drafts", "--out", "run")
    assert (code, err) == (0, "")
    assert [len(line.split()) for line in out.split("\n")] == [1, 0, 2, 0]
    assert Run.open(tmp_path / "run").manifest.inputs.texts == ("blue", "white red")
    drafts = (tmp_path / "drafts").read_bytes()
    assert call("translate", "texts", *words, "--drafts", "-", stdin=drafts) == (0, out, "")


def test_chains_start_from_the_twins_translation(call, tmp_path):
    (tmp_path / "texts").write_text("red\n\nblue green\n")
    words = ["texts", "--pair", "de-en", "--twin", "tiny-twin", "-q"]
    code, written, _ = call("translate", *words, "--method", "ar")
    assert code == 0
    code, _, err = call("translate", *words, *FAST, "--start", "autoregressive", "--out", "run")
    assert (code, err) == (0, "")
    assert Run.open(tmp_path / "run").manifest.inputs.texts == tuple(written.split("\n")[:3:2])


def test_sampled_lengths_are_weighed_by_the_twin_where_there_is_one(call, models, tmp_path):
    (tmp_path / "texts").write_text("red\nblue green\n")
    words = ["translate", "texts", *FAST, "--lengths", "sampled", "--seed", "3", "-q"]
    code, out, _ = call(*words, "--pair", "de-en", "--out", "run")
    assert code == 0
    spelled = ["--energy", "norm+0.5*autoregressive(tiny-twin)", "--start", "autoregressive"]
    assert call(*words, "--pair", "de-en", *spelled, "--out", "spelled") == (0, out, "")
    one, two = (Run.open(tmp_path / name).manifest for name in ("run", "spelled"))
    assert one.signature == two.signature
    # With another energy, or a model that is named alone, there is none.
    others = {
        "energy": ["--pair", "de-en", "--energy", "norm+0.5*predicted_length"],
        "alone": ["--model", models / "tiny-translation"],
    }
    for name, more in others.items():
        assert call(*words, *more, "--out", name)[0] == 0
        manifest = Run.open(tmp_path / name).manifest
        assert (manifest.inputs.texts, manifest.energy_models) == (None, {})
        assert "norm+0.5*predicted_length" in manifest.signature


def test_a_file_that_is_not_there(refused):
    assert "cannot read 'nowhere.txt'" in refused("translate", "nowhere.txt", "--pair", "de-en")


def test_without_any_model_it_is_said_where_they_are(refused, monkeypatch, tmp_path):
    monkeypatch.setenv("MASKOV_MODELS", str(tmp_path / "nowhere"))
    assert "MASKOV_MODELS" in refused("translate", "-", "--pair", "de-en", stdin=b"red\n")


@pytest.mark.parametrize(
    "words", ["sample --length 4", "sample --kernel gibbs", "infill [MASK]", "score -"]
)
def test_other_commands_say_to_translate(refused, words):
    told = refused(*words.split(), "--model", "tiny-translation", stdin=b"red\n")
    assert "`maskov translate`" in told


def test_the_models_are_listed(call):
    found = {line["name"]: line for line in _read(call("models", "--json")[1])}
    assert found["tiny-translation"]["kind"] == "translation"
    assert found["tiny-translation"]["pairs"] == ["de-en", "ro-en"]
    assert (found["tiny-twin"]["kind"], found["tiny-twin"]["pairs"]) == ("twin", ["de-en"])
    assert "untrained" in found
    out = call("models")[1]
    assert "tiny-translation" in out
    assert "twin: random weights" in out
