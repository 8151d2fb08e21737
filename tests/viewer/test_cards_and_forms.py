"""What the server tells cards and forms: verdicts, groups of samples, and runs from a text."""

from __future__ import annotations

import time
from collections import Counter

import pytest
from starlette.testclient import TestClient

from maskov import Run
from maskov.ui.viewer.live import LONGEST_TEXT, LiveRuns
from maskov.ui.viewer.player import Player
from maskov.ui.viewer.runs import RunList, id_of
from maskov.ui.viewer.server import create_app
from view_runs import make_run

BASE = "http://127.0.0.1:8764"
SMALL = {"model": "untrained", "chains": 2, "epochs": 2, "seed": 1}


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("cards") / "runs"
    make_run(folder / "mh", name="First try")
    return folder


@pytest.fixture
def client(runs, tmp_path):
    live = LiveRuns(tmp_path / "made", "cpu")
    app = create_app(RunList([runs], tmp_path / "made"), Player("cpu"), live)
    with TestClient(app, base_url=BASE) as client:
        yield client


def test_a_card_has_the_verdict_of_diagnose_and_the_name(client, runs):
    (card,) = client.get("/api/runs").json()
    assert (card["title"], card["name"]) == ("First try", "mh")
    found = Run.open(runs / "mh").diagnose()
    told = client.get(f"/api/runs/{card['id']}/verdict").json()
    assert told == found.verdict.to_dict()
    assert told["tone"] == "open"
    assert client.get("/api/runs/nobody/verdict").status_code == 404
    assert client.get(f"/api/runs/{card['id']}").json()["title"] == "First try"


def test_a_group_is_one_row_and_opens_to_all_of_its_samples(client, runs):
    path = f"/api/runs/{id_of(runs / 'mh')}/samples"
    every = client.get(path, params={"limit": 200}).json()
    sizes = Counter(one["group"] for one in every["samples"])
    grouped = client.get(path, params={"limit": 200, "grouped": True}).json()
    assert (every["rows"], grouped["rows"], grouped["found"]) == (18, len(sizes), 18)
    assert [one["similar"] + 1 for one in grouped["samples"]] == [
        sizes[one["group"]] for one in grouped["samples"]
    ]
    # The first of each group, in the order that was asked for.
    energies = [one["energy_raw"] for one in grouped["samples"]]
    assert energies == sorted(energies)
    for one in grouped["samples"]:
        group = client.get(path, params={"group": one["group"], "limit": 200}).json()["samples"]
        assert len(group) == sizes[one["group"]]
        assert {other["chain"] for other in group} == {one["chain"]}
        assert min(other["energy_raw"] for other in group) == one["energy_raw"]


def test_a_run_starts_from_a_text_with_frozen_words_and_a_name(client, tmp_path):
    request = SMALL | {"text": "the river is long", "freeze": "river, long", "name": "Rivers"}
    assert client.post("/api/live", json=request).status_code == 200
    until = time.monotonic() + 60
    while (seen := client.get("/api/live").json())["running"]:
        assert time.monotonic() < until
        time.sleep(0.05)
    assert (seen["status"], seen["title"]) == ("finished", "Rivers")
    run = Run.open(tmp_path / "made" / seen["name"])
    assert run.manifest.name == "Rivers"
    assert all({"river", "long"} <= set(sample.tokens) for sample in run.samples)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"freeze": "1-2"}, "give one to start from"),
        ({"text": "a river", "method": "mask-predict"}, "leave the text empty"),
        ({"name": "two\nlines"}, "one line"),
        ({"text": "two\nlines"}, "one line"),
        ({"text": "a river", "prefix": "\0"}, "one line"),
        ({"text": "a river", "freeze": __file__}, "not a file"),
        ({"text": "x" * (LONGEST_TEXT + 1)}, "text"),
    ],
)
def test_what_cannot_be_is_refused_at_once(client, changes, reason):
    answer = client.post("/api/live", json=SMALL | changes)
    assert answer.status_code == 422
    assert reason in str(answer.json()["detail"])
    assert client.get("/api/live").json()["status"] == "none"


@pytest.mark.slow
def test_the_prefix_of_the_form_is_read_and_recorded(client, tmp_path):
    request = SMALL | {"model": "wiki-small", "length": 4, "chains": 1, "prefix": "the river"}
    assert client.post("/api/live", json=request).status_code == 200
    while (seen := client.get("/api/live").json())["running"]:
        time.sleep(0.1)
    assert seen["status"] == "finished", seen["message"]
    run = Run.open(tmp_path / "made" / seen["name"])
    assert run.manifest.config.model.source.prefix == "the river"
