"""The command `python -m experiments`, also with checkpoints of the paper's kinds in small."""

import json
import xml.dom.minidom
from dataclasses import replace

import pytest
from experiments.__main__ import main
from experiments.lib.context import CHECKPOINTS
from experiments.lib.settings import SETTINGS

from maskov.models import load
from maskov.ratings import export
from tiny_experiments import TINY
from tiny_fairseq import write
from tiny_models import build, build_gpt2


@pytest.fixture
def call(capfd, monkeypatch, context, tiny_models_by_role):
    """Run the command with tiny models in place of the quick setting's."""
    monkeypatch.setitem(SETTINGS, "quick", TINY)
    roles = tiny_models_by_role

    def run(*words, models=True):
        named = ["--model", roles["base"], "--judge", roles["judge"]]
        named += ["--translation", roles["de-en"], "--twin", roles["twin-de-en"]]
        given = [str(word) for word in words]
        capfd.readouterr()
        with pytest.raises(SystemExit) as ended:
            main([*given, *(named if models else [])])
        out, err = capfd.readouterr()
        return ended.value.code or 0, out, err

    return run


def test_one_result_is_written_in_every_form_and_found_again(call, context):
    words = ["figure1", "--quick", "--out", context.out, "--data", context.data]
    code, _, err = call(*words)
    assert code == 0
    assert "figure1: norm" in err
    found = json.loads((context.out / "figure1.json").read_text())
    assert found["complete"]
    assert all(cell["signature"].startswith("model:") for cell in found["cells"].values())
    assert all(row["n"] == 5 for row in found["comparison"])
    xml.dom.minidom.parse(str(context.out / "figure1.svg"))
    assert "figure1.svg" in (context.out / "figure1.md").read_text()
    assert (
        ". Degenerate Gibbs keeps degrading: its energy rises as it runs\n\n**"
        in (context.out / "README.md").read_text()
    )
    before = (context.out / "figure1.json").read_bytes()
    code, _, err = call(*words)
    assert code == 0
    assert "figure1: norm" not in err
    assert (context.out / "figure1.json").read_bytes() == before


def test_ratings_come_from_a_study_of_the_texts_that_were_written(call, context, tmp_path):
    words = ["table6", "--quick", "--out", context.out]
    assert call(*words)[0] == 0
    text = (context.out / "table6.md").read_text()
    assert "| MH, E_raw: coherence, 1–4 | not run (2.05) |" in text
    files = sorted((context.out / "texts").glob("*.txt"))
    texts = {file.stem: file.read_text().splitlines() for file in files}
    key, sheet = export(tmp_path / "study", texts, "csv", per_run=3)[::2]
    code, _, err = call(*words, "--ratings", sheet, key)
    assert code == 2
    assert "no ratings of this result's texts" in err
    sheet.write_text(sheet.read_text().replace(',"","","",', ',"4","2","",'))
    assert call(*words, "--ratings", sheet, key)[0] == 0
    found = json.loads((context.out / "table6.json").read_text())
    rated = [row for row in found["comparison"] if row["quantity"] == "coherence"]
    assert [row["ours"] for row in rated if row["x"] == "base"] == [4, 4, 4]
    assert [row["ours"] for row in rated if row["x"] == "large"] == [None, None, None]


def test_figures_and_pages_are_drawn_again_from_json_alone(call, context):
    call("counterexample", "--quick", "--out", context.out)
    kept = (context.out / "counterexample.svg").read_bytes()
    for name in ("counterexample.svg", "counterexample.md", "README.md"):
        (context.out / name).unlink()
    code, _, _ = call("report", "--out", context.out, models=False)
    assert code == 0
    assert (context.out / "counterexample.svg").read_bytes() == kept
    assert "**held**" in (context.out / "README.md").read_text()


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        ("table9 --quick --out x", "unknown result 'table9'"),
        ("table1 --quick --full --out x", "give only one of --quick"),
        ("table1 --quick", "give --out DIR"),
        ("table1 --quick --out x --training x", "--training needs --title"),
        ("table1 --paper --out x", "--paper needs --checkpoints"),
        ("report --out x", "contains no results"),
    ],
)
def test_bad_input_is_one_sentence(call, words, reason, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    code, out, err = call(*words.split(), models=False)
    assert (code, out) == (2, "")
    assert reason in err
    assert err.count("\n") == 1
    assert not list(tmp_path.glob("x/*"))


LINES = ["low er .", "lo@@ w er est .", "er low est .", "est er ."]


@pytest.fixture
def shelf(tmp_path):
    """Return the folder of all that the paper used, and put test sets beside it."""
    root = tmp_path / "checkpoints"
    root.mkdir()
    for role in ("base", "large"):
        build("bert", root / CHECKPOINTS[role][0])
    build_gpt2(root / CHECKPOINTS["judge"][0], load(str(root / "bert-base-uncased")).tokenizer)
    for pair in ("de-en", "ro-en"):
        folder = root / CHECKPOINTS[pair][0]
        folder.mkdir()
        write(folder)
    for name in SETTINGS["paper"].sets:
        for language in (name[-4:-2], name[-2:]):
            (tmp_path / f"{name}.{language}").write_text("".join(line + "\n" for line in LINES))
    return root


@pytest.fixture
def reproduced(shelf, monkeypatch, capfd):
    """Run results in the paper's setting, its sizes cut down; return what was written."""
    small = replace(SETTINGS["paper"], text=TINY.text, translation=TINY.translation)
    monkeypatch.setitem(SETTINGS, "paper", small)

    def run(*names):
        out = shelf.parent / "out"
        for name in names:
            words = [name, "--paper", "--checkpoints", shelf, "--data", shelf.parent, "--out", out]
            with pytest.raises(SystemExit) as ended:
                main(list(map(str, words)))
            assert not ended.value.code, capfd.readouterr().err
        return {file.stem: json.loads(file.read_text()) for file in out.glob("*.json")}

    return run


def test_checkpoints_of_the_paper_fill_its_tables(reproduced):
    found = reproduced("table6", "figure1")
    table, figure = found["table6"], found["figure1"]
    assert table["complete"]
    used = {(role, one["name"]) for cell in table["cells"].values() if "models" in cell
            for role, one in cell["models"].items()}  # fmt: skip
    assert used == {(role, CHECKPOINTS[role][0]) for role in ("base", "large", "judge")}
    rows = {(row["series"], row["x"]): row for row in table["comparison"]
            if row["quantity"] == "perplexity"}  # fmt: skip
    assert {x for _, x in rows} == {"base", "large"}
    assert all(row["ours"] > 1 for row in rows.values())
    assert figure["complete"]
    models = [cell["models"] for cell in figure["cells"].values()]
    assert all(one["de-en"]["name"] == CHECKPOINTS["de-en"][0] for one in models)
    assert all(cell["sentences"] == TINY.translation.sentences for cell in figure["cells"].values())
