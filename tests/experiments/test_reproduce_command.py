"""The command `python -m experiments`: JSON, Markdown, figures and the page of claims."""

import json
import xml.dom.minidom

import pytest
from experiments.__main__ import main
from experiments.lib.settings import SETTINGS

from maskov.ratings import export
from tiny_experiments import TINY


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
