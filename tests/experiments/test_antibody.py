"""The antibody experiment on tiny stand-ins for models and data."""

import json
import math

import pytest
from experiments.studies.antibody.__main__ import main

import maskov
from maskov import Record
from tiny_proteins import write_antiberty, write_sapiens

HEAVY = ["EVQLVESG", "EVKLVESG", "EVQLVDSG"]
# What `humab_eval.py` has, in few lines.
EVALUATOR = """
def fasta(path):
    lines = path.read_text().split()
    return {f"{a[1:]} {b}": c for a, b, c in zip(lines[::3], lines[1::3], lines[2::3])}

def cdrs():
    return {"one VH": {2, 3}, "one VL": {0}, "two VH": set(), "two VL": {4}}

def scores(system, parent, lab, marks):
    pairs = [(s, p, lab[n]) for n, p in parent.items() for s in [system[n]]]
    made = [(a, c) for s, p, e in pairs for a, b, c in zip(s, p, e) if a != b]
    inside = sum(system[n][i] != p[i] for n, p in parent.items() for i in marks[n])
    right = sum(a == c for a, c in made)
    return dict(mutations=len(made), precision=right / max(len(made), 1), recall=0.5, cdr=inside)
"""


@pytest.fixture
def data(tmp_path, monkeypatch):
    site = tmp_path / "site"
    monkeypatch.syspath_prepend(str(site))
    write_antiberty(site)
    write_sapiens(site)
    folder = tmp_path / "data"
    (folder / "humab25").mkdir(parents=True)
    (folder / "cr6261_h1_kd.csv").write_text("heavy,fitness\n" + "".join(f"{h},1\n" for h in HEAVY))
    model = maskov.load("antiberty", "cpu", "float64")
    rows = ["heavy,light,heavy_perplexity,light_perplexity"]
    for heavy in HEAVY:
        both = [Record("h", heavy), Record("l", "DIQMTQ")]
        found = [
            math.exp(one.energy / len(one.terms))
            for one in maskov.score(model, both, maskov.Norm())
        ]
        rows.append(f"{heavy},DIQMTQ,{found[0]},{found[1]}")
    (folder / "d44_antiberty_perplexity.csv").write_text("\n".join(rows) + "\n")
    pairs = "".join(f">{n} VH\nEVQLVESG\n>{n} VL\nDIQMTQ\n" for n in ("one", "two"))
    names = ["parental", "experimental", "humab", "straight_grafts", "vernier_grafts"]
    for name in [*names, *(f"sapiens{k}" for k in range(1, 6))]:
        (folder / "humab25" / f"{name}.fa").write_text(pairs)
    (tmp_path / "evaluator.py").write_text(EVALUATOR)
    return folder


def test_scores_agree_with_what_was_published(data, tmp_path):
    work, out = tmp_path / "work", tmp_path / "s.json"
    words = [str(data), str(work), "--out", str(out), "--device", "cpu"]
    main(["scores", *words, "--rows", "1"])
    main(["scores", *words, "--rows", "3"])
    found = json.loads(out.read_text())
    assert found["sequences"] == 4
    assert found["largest_relative_difference"] < 1e-4
    assert set(json.loads((work / "perplexities.json").read_text())) == {*HEAVY, "DIQMTQ"}


@pytest.fixture
def ranked(data, tmp_path):
    words = ["--device", "cpu", "--evaluator", f"{tmp_path}/evaluator.py"]
    main(["rank", str(data), str(tmp_path / "work"), *words])
    chains = ["--chains", "1", "--epochs", "3", "--energy", "norm(groups=2)", "--keep", "0.5"]
    main(["rank", str(data), str(tmp_path / "work"), *words, *chains])
    return words


def test_humanisation_keeps_what_is_marked(data, ranked, tmp_path):
    out = tmp_path / "out"
    main(["humanise", str(data), str(tmp_path / "work"), "--out", str(out), *ranked[2:]])
    found = json.loads((out / "humanise.json").read_text())
    assert set(found["curves"]) == {"antiberty", "masked", "one-pass", "samples", "product"}
    assert found["weights"].keys() == {"antiberty", "masked", "one-pass", "samples"}
    assert max(found["weights"].values()) == 1
    assert {row["system"] for row in found["points"]} >= {"humab", "sapiens1"}
    for part in ("chosen on", "rest", "all"):
        assert found["kept"][part]["cdr"] == 0
    made = {record.name: record.sequence for record in maskov.read_fasta(out / "humanised.fa")}
    assert made["one VH"][2:4] == "QL"
    assert made["one VL"][0] == "D"
