"""Populations, independent draws, likelihoods and evidence, as a user calls them."""

from __future__ import annotations

import csv
import json
import math
from dataclasses import replace

import pytest
import torch

import maskov
import tiny_translation
from maskov import Run
from maskov.exact import all_states
from maskov.models.scorer import Scorer
from maskov.types import Sequences

POPULATION = "sample --energy 0.7*ordered+0.3*norm --particles 6 --populations 3 --length 5"
EVIDENCE = "evidence --particles 8 --populations 2"
TEXTS = "the cat sat on\nthe dog ran on\n"


def test_draws_are_said_to_be_independent(call, tmp_path):
    code, out, err = call("sample --energy ordered(left-to-right) --chains 5 --length 4 --out run")
    assert code == 0
    assert len(out.splitlines()) == 6
    assert "independent draws" in err
    assert "passes/step 4.00" in err
    run = Run.open(tmp_path / "run")
    assert run.manifest.kernel == "draws"
    assert run.manifest.epochs == 1
    # With moves they are chains of the same energy.
    assert "kernel:mh" in call("sample --energy ordered --moves site -c 2 -n 2 --length 4")[2]


def test_populations_end_with_log_z_and_a_verdict(call, printed, tmp_path):
    out = printed(f"{POPULATION} --target-temperature 0.8 --out run --json -q")
    lines = [json.loads(line) for line in out.splitlines()]
    assert [line["population"] for line in lines] == [n // 6 for n in range(18)]
    assert {line["weight"] for line in lines} == {1 / 6}
    found = json.loads(printed("diagnose run --json"))["diagnosis"]
    (figures,) = found["populations"]
    assert len(figures["each"]) == 3
    assert figures["log_z"] == pytest.approx(
        math.log(sum(map(math.exp, figures["each"])) / 3), abs=1e-9
    )
    assert found["verdict"]["state"] in ("converged", "not converged")
    # Shares of tokens, in proportion to each population's estimate of Z.
    weight = [math.exp(one - figures["log_z"]) / 3 for one in figures["each"]]
    assert {one["position"] for one in figures["tokens"]} == set(range(5))
    for one in figures["tokens"]:
        held = [line["tokens"][one["position"]] == one["token"] for line in lines]
        shares = [sum(held[n : n + 6]) / 6 for n in (0, 6, 12)]
        share = sum(w * s for w, s in zip(weight, shares, strict=True))
        scatter = sum((w * (s - share)) ** 2 for w, s in zip(weight, shares, strict=True))
        assert one["share"] == pytest.approx(share)
        assert one["error"] == pytest.approx(math.sqrt(scatter * 3 / 2))
    assert "log Z" in printed("diagnose run")
    run = Run.open(tmp_path / "run")
    assert "population:6,from=ordered" in run.signature
    assert "|T:0.8|" in run.signature
    assert run.manifest.epochs == len(run.manifest.config.kernel["path"])
    assert printed("resume run --json -q") == out


def test_passes_are_the_budget_of_a_particle(printed):
    for passes in (60, 240):
        printed(f"{POPULATION} --populations 1 --passes {passes} --out run{passes} -q")
    short, long = (Run.open(f"run{passes}").manifest.epochs for passes in (60, 240))
    assert long > 2 * short


def test_scores_of_ordered_energies_are_likelihoods(call, printed):
    texts = ["the man walked home", "the dog was there"]
    code, _, err = call("score --energy ordered", *texts)
    assert code == 0
    assert "nats per token" in err
    assert "bits per byte" in err
    lines = printed("score --energy ordered(orders=2) --json", *texts).splitlines()
    for line, text in zip(map(json.loads, lines), texts, strict=True):
        assert line["nats_per_token"] == pytest.approx(line["energy"] / len(line["tokens"]))
        bits = line["energy"] / math.log(2) / len(text)
        assert line["bits_per_byte"] == pytest.approx(bits)
    assert "nats_per_token" not in json.loads(printed("score --json", texts[0]))


def test_evidence_as_a_table_json_csv_and_a_picture(call, printed, tmp_path):
    (tmp_path / "texts.txt").write_text(TEXTS)
    ask = f"{EVIDENCE} texts.txt -e norm -e ordered --target-temperature 1,1.5"
    code, out, err = call(f"{ask} --figure path.svg --csv")
    assert code == 0, err
    rows = list(csv.DictReader(out.splitlines()))
    targets = [(row["energy"], row["temperature"]) for row in rows]
    assert list(dict.fromkeys(targets)) == [
        ("norm", "1.0"), ("norm", "1.5"), ("ordered", "1.0"), ("ordered", "1.5"),
    ]  # fmt: skip
    assert "uniform" not in err
    assert (tmp_path / "path.svg").stat().st_size > 1000
    ask = f"{EVIDENCE} texts.txt -e ordered --target-temperature"
    found = json.loads(printed(f"{ask} 1,1.5 --json"))
    assert [target["exact"] for target in found["targets"]] == [True, False]
    assert found["targets"][0]["lengths"][0]["log_z"] == 0
    out, err = call(f"{ask} 1")[1:]
    assert out.split()[:2] == ["energy", "T"]
    assert "0, exactly" in out
    assert "uniform over all tokens" in err
    words = ["the cat sat .", "the dog sat on a mat ."]
    told = str(maskov.evidence("untrained", words, "ordered"))
    assert told.startswith("energy ")
    assert "0, exactly" in told
    assert "uniform over all tokens" in told
    assert "a gap of" in call(f"{EVIDENCE} --length 3 -e ordered --bounds")[2]


def test_evidence_of_pairs_is_given_each_source(refused, printed, tmp_path):
    tiny_translation.save(tmp_path / "tiny")
    texts = [" ".join(tiny_translation.WORDS[:2])] * 2
    pairs = ["--sources", tiny_translation.SOURCES[0], "--sources", tiny_translation.SOURCES[1]]
    ask = f"{EVIDENCE} --particles 40 --populations 6 --model tiny -e norm -e ordered"
    found = json.loads(printed(f"{ask} --json", *pairs, *texts))["targets"]
    ask = "score --model tiny --energy ordered --json"
    scores = [json.loads(line)["energy"] for line in printed(ask, *pairs, *texts).splitlines()]
    assert [one["energy"] for one in found[1]["lengths"]] == pytest.approx(scores)
    assert abs(scores[0] - scores[1]) > 1e-6
    # Z of all translations of either source, enumerated.
    model = maskov.load(str(tmp_path / "tiny")).given(tiny_translation.SOURCES[:2])
    states = all_states(model, 2)
    for source, one in enumerate(found[0]["lengths"]):
        given = Sequences(
            states, torch.full((len(states),), 2), source=torch.full((len(states),), source)
        )
        given = replace(given, pass_cache=Scorer(model).cache(given))
        truth = float((-maskov.Norm()(model, given)).logsumexp(0))
        assert one["line"] == source + 1
        assert abs(one["log_z"] - truth) <= 4.5 * one["error"] + 1e-9
    for some in (pairs[:2], []):
        assert "--sources" in refused(f"{EVIDENCE} --model tiny -e ordered", *some, *texts)


def test_evidence_without_texts_needs_a_length(printed, refused):
    assert "log Z" in printed(f"{EVIDENCE} --length 3")
    assert "--length" in refused(EVIDENCE)
    refused(f"{EVIDENCE} --length 100000")
