"""The antibody experiment on tiny stand-ins for models and data."""

from __future__ import annotations

import json
import math

import pytest
from experiments.antibody import main, proposal

import maskov
from maskov import Record
from tiny_antibodies import write_antiberty, write_sapiens

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
    main(["scores", str(data), "--out", str(tmp_path / "s.json"), "--rows", "3", "--device", "cpu"])
    found = json.loads((tmp_path / "s.json").read_text())
    assert found["sequences"] == 4
    assert found["largest_relative_difference"] < 1e-4


@pytest.mark.slow
def test_samples_of_the_lattice_follow_its_law(data, tmp_path):
    words = ["--places", "2", "--chains", "8", "--epochs", "200", "--device", "cpu"]
    main(["lattice", str(data), "--out", str(tmp_path / "l.json"), *words])
    found = json.loads((tmp_path / "l.json").read_text())
    assert found["sequences"] == 4
    # 1,440 correlated draws; a wrong law on four sequences is far off.
    assert found["total_variation"] < 0.1
    assert found["of_independent_draws"] < 0.03


def test_humanisation_keeps_what_is_marked(data, tmp_path):
    out = tmp_path / "out"
    words = ["--epochs", "3", "--chains", "1", "--device", "cpu", "--energy", "norm(groups=2)"]
    main(
        [
            "humanise",
            str(data),
            "--out",
            str(out),
            "--evaluator",
            f"{tmp_path}/evaluator.py",
            *words,
        ]
    )
    found = json.loads((out / "humanise.json").read_text())
    for curve in found["curves"].values():
        assert set(curve) == {"chosen on", "rest", "all"}
        assert all(row["cdr"] == 0 for part in curve.values() for row in part)
        mutations = [row["mutations"] for row in curve["all"]]
        assert mutations == sorted(mutations)
        assert mutations[-1] > 0
    made = {record.name: record.sequence for record in maskov.read_fasta(out / "humanised.fa")}
    assert made["one VH"][2:4] == "QL"
    assert set(found["published"]) >= {"humab", "sapiens1"}


def test_the_best_letter_is_taken_where_the_parents_is_rare():
    from collections import Counter

    seen = [Counter({"E": 9, "Q": 1}), Counter({"V": 1, "I": 3, "L": 6})]
    assert proposal("EV", seen, 0.5) == "EL"
    assert proposal("EV", seen, 0.05) == "EV"
