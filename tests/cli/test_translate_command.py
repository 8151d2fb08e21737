"""`maskov translate` as a user calls it: what is read, printed and kept."""

import pytest

from maskov import AutoregressiveTranslator, LinearSchedule, Run, TranslationMethod, load, translate
from maskov.config import ModelSource
from maskov.models import choose_device
from tiny_translation import SOURCES, WORDS, save

DE = "translate - --pair de-en -q"
MH = f"{DE} --method mh --epochs 3"
TEXT = "".join(line + "\n" for line in SOURCES)


@pytest.fixture
def shelf(home):
    return home / "shelf"


@pytest.fixture
def model(shelf):
    return load(shelf / "tiny-translation", "cpu")


def _lines(translations) -> str:
    return "".join(one.to_json() + "\n" for one in translations)


def test_translations_are_json_lines_in_order(call, rows, model):
    code, out, err = call("translate - --pair de-en --json", stdin=TEXT)
    assert (code, "epoch 10/10" in err) == (0, True)
    assert out == _lines(translate(model, SOURCES))
    lines = rows(DE, stdin=TEXT)
    assert [line["source"] for line in lines] == SOURCES
    for line in lines:
        assert list(line) == ["source", "text", "energy_raw", "energy_norm", "chain"]
        assert set(line["text"].split()) <= set(WORDS)
    # Five lengths are tried by default.
    assert rows(f"{DE} --length-beam 5", stdin=TEXT) == lines
    assert rows(f"{DE} --length-beam 1", stdin=TEXT) != lines
    every = rows(f"{DE} --every-chain", stdin=SOURCES[0])
    assert [line["chain"] for line in every] == list(range(5))


def test_texts_come_from_a_file_or_standard_input(printed, rows, tmp_path):
    (tmp_path / "in.txt").write_text(TEXT)
    out = printed("translate in.txt --pair ro-en --method mh --epochs 3 -q")
    line = MH.replace("de-en", "ro-en")
    assert printed(line, stdin=TEXT) == out
    assert [row["text"] for row in rows(line, stdin=TEXT)] == out.splitlines()
    # Windows' line ends and a mark in front are no text, nor is a line end that is missing.
    assert printed(line, stdin="\ufeff" + "\r\n".join(SOURCES)) == out
    seeded = [printed(f"{line} --seed {seed}", stdin=TEXT) for seed in (5, 5, 6)]
    assert seeded[0] == seeded[1] != seeded[2]
    printed(f"{line} --token-budget 16", stdin=TEXT)


def test_empty_lines_are_kept_in_place(printed, rows):
    texts = ["", "red", "", "  ", "blue green", ""]
    stdin = "".join(text + "\n" for text in texts)
    lines = printed(DE, stdin=stdin).split("\n")
    assert [bool(line) for line in lines] == [*(bool(text.strip()) for text in texts), False]
    found = rows(DE, stdin=stdin)
    assert [line["source"] for line in found] == texts
    nothing = {"source": "", "text": "", "energy_raw": 0.0, "energy_norm": 0.0, "chain": 0}
    assert found[0] == nothing
    for method in ("", "--method mh --epochs 3", "--method ar", "--method greedy"):
        assert printed(f"{DE} {method}", stdin="\n\n") == "\n\n"


def test_every_option_reaches_its_method(printed, model):
    given = {
        "energy": "norm", "epochs": 3, "temperature": 1.5, "force_accept": 1, "chains": 3,
        "target_temperature": "2:0.5:0.5", "moves": "site(block=3, block_anneal=1)",
        "lengths": "drawn", "pick": "lowest",
    }  # fmt: skip
    for name, options in (
        ("block-mh", given),
        ("mask-predict", {"iterations": 3, "length_beam": 4}),
    ):
        words = [f"--{key.replace('_', '-')}={value}" for key, value in options.items()]
        out = printed(f"{DE} --json --method {name}", *words, stdin=TEXT)
        if "target_temperature" in options:
            options["target_temperature"] = LinearSchedule(2.0, 0.5, 0.5)
        assert out == _lines(translate(model, SOURCES, TranslationMethod(name, **options)))


def test_the_autoregressive_model_writes(printed, rows, model, shelf, tmp_path):
    twin = AutoregressiveTranslator.load(shelf / "tiny-twin", choose_device("cpu"), "tiny-twin")
    expected = _lines(translate(model, SOURCES, TranslationMethod("ar"), twin))
    for way in (
        "--pair de-en", f"--model {shelf}/tiny-translation --autoregressive {shelf}/tiny-twin",
        "--pair ro-en --autoregressive tiny-twin", "--pair de-en --beam 5 --length-power 1",
    ):  # fmt: skip
        assert printed(f"translate - --method ar --json -q {way}", stdin=TEXT) == expected
    save(tmp_path / "twin", seed=9, causal=True)
    assert printed(f"{DE} --method ar --json --autoregressive ./twin", stdin=TEXT) != expected


def test_a_run_folder_is_kept_and_can_be_resumed(rows, printed, refused, shelf, tmp_path):
    found = rows(f"{MH} -c 2 --every-chain --out run", stdin="\n" + TEXT)
    run = Run.open(tmp_path / "run")
    assert run.finished
    assert list(run.manifest.inputs.sources) == SOURCES
    assert run.manifest.config.model.source.name == "tiny-translation"
    again = printed("resume run --json -q")
    assert again == (tmp_path / "run" / "samples.jsonl").read_text()
    assert [line["text"] for line in rows("resume run -q")] == [line["text"] for line in found[1:]]
    printed("diagnose run --json")
    assert "already holds a run" in refused(f"{DE} --out run", stdin="red\n")
    # A folder of a model is found again from anywhere.
    (tmp_path / "link").symlink_to(shelf)
    printed("translate - -m ./link/tiny-translation -q --out other", stdin="red\n")
    source = Run.open(tmp_path / "other").manifest.config.model.source
    assert source == ModelSource(str(shelf / "tiny-translation"))


def test_sampled_lengths_are_weighed_by_the_autoregressive_model_where_there_is_one(printed, shelf):
    line = "translate - --method mh --epochs 3 --lengths sampled --seed 3 -q"
    ways = {
        "run": "",
        "spelled": "--energy norm+0.5*autoregressive(tiny-twin) --start autoregressive",
        "short": "--energy norm+0.5*autoregressive --start autoregressive",
        # By its folder it is another name, which is found from everywhere.
        "named": "--energy norm+0.5*autoregressive --start autoregressive --autoregressive "
        f"{shelf}/tiny-twin",
    }
    outs = {printed(f"{line} --pair de-en {more} --out {name}", stdin="red\nblue green\n")
            for name, more in ways.items()}  # fmt: skip
    assert len(outs) == 1
    assert len({Run.open(name).signature for name in ("run", "spelled", "short")}) == 1
    assert f"autoregressive({shelf}/tiny-twin)" in Run.open("named").manifest.energy
    # With another energy, or a model that is named alone, there is none.
    for name, more in {
        "energy": "--pair de-en --energy norm+0.5*predicted_length",
        "alone": f"--model {shelf}/tiny-translation",
    }.items():
        printed(f"{line} {more} --out {name}", stdin="red\nblue green\n")
        manifest = Run.open(name).manifest
        assert (manifest.inputs.texts, manifest.energy_models) == (None, {})
        assert "norm+0.5*predicted_length" in manifest.signature
