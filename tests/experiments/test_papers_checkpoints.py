"""The paper's own setting, with checkpoints of its kinds in small, from folder to table.

None of the real files can be shipped. These have their formats: Hugging Face folders of BERT and
GPT-2, and fairseq's pickles of Mask-Predict with its dictionaries.
"""

import json
from dataclasses import replace

import pytest
from experiments.__main__ import main
from experiments.lib.context import CHECKPOINTS
from experiments.lib.settings import SETTINGS

from maskov.models import load
from tiny_experiments import TINY
from tiny_fairseq import write
from tiny_models import build, build_gpt2

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
