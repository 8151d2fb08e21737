"""What the pages are told, who may ask, and what is refused."""

import json
import re

import numpy as np
import pytest
from starlette.testclient import TestClient

from json_files import edited
from maskov import Run, load
from maskov.ui.viewer import server as viewer
from maskov.ui.viewer.runs import Player, RunList, id_of
from patience import wait_until
from tiny_translation import SOURCES
from view_runs import make_run, make_runs

SMALL = {"model": "untrained", "chains": 2, "length": 6, "epochs": 4, "seed": 1}
LONG = SMALL | {"epochs": viewer.MOST_EPOCHS, "chains": 8, "length": 12}
BASE = "http://127.0.0.1:8764"
STATIC = (
    "views.css", "player.css", "common.js", "runs.js", "run.js", "player.js", "samples.css",
    "decision.js", "samples.js", "live.js", "icon.svg", "report.css", "charts.css", "scales.js",
    "drawing.js", "charts.js", "theme.js",
)  # fmt: skip


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    folder = make_runs(tmp_path_factory.mktemp("served"))
    make_run(folder / "named", name="First try")
    return folder


@pytest.fixture
def served(runs, tmp_path):
    """Make an application of those runs, new ones in a folder of their own."""
    opened = []

    def serve(places=None, start=True, **settings):
        run_list = RunList([runs] if places is None else places, tmp_path / "made")
        live = viewer.LiveRuns(run_list.home, "cpu") if start else None
        app = viewer.create_app(run_list, Player("cpu"), live, **settings)
        client = TestClient(app, base_url=BASE)
        client.__enter__()
        opened.append(client)
        return client

    yield serve
    for client in opened:
        client.__exit__(None, None, None)


@pytest.fixture
def client(served):
    return served()


def ids(client):
    return {line["name"]: line["id"] for line in client.get("/api/runs").json()}


def post(client, path, body, kind="application/json"):
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    return client.post(path, content=content, headers={"Content-Type": kind})


def live(client):
    return client.get("/api/live").json()


def ended(client):
    """Wait for the live run to end; return the last that was seen of it."""
    wait_until(lambda: not live(client)["running"])
    return live(client)


def test_runs_are_listed_and_one_that_cannot_be_read_says_why(client, runs):
    lines = {line["name"]: line for line in client.get("/api/runs").json()}
    assert set(lines) == {"mh", "gibbs", "untraced", "broken", "translated", "named"}
    assert "no readable manifest" in lines["broken"]["error"]
    assert lines["mh"]["epochs_done"] == lines["mh"]["epochs"] == 6
    assert (lines["mh"]["leaves_invariant"], lines["gibbs"]["leaves_invariant"]) == (True, False)
    assert (lines["named"]["title"], lines["named"]["name"]) == ("First try", "named")
    assert lines["mh"]["id"] == id_of(runs / "mh") == id_of(runs / "gibbs" / ".." / "mh")
    assert all(re.fullmatch(r"[0-9a-f]{12}", line["id"]) for line in lines.values())


def test_the_page_of_a_run_has_its_report_its_samples_and_the_verdict_of_diagnose(client, runs):
    run, name = Run.open(runs / "named"), ids(client)["named"]
    told = client.get(f"/api/runs/{name}").json()
    assert (told["signature"], told["title"]) == (run.signature, "First try")
    assert told["verdict"] == run.diagnose().verdict.to_dict()
    assert client.get(f"/api/runs/{name}/verdict").json() == told["verdict"]
    assert client.get("/api/runs/nobody/verdict").status_code == 404
    assert told["why_not_played"] is None
    assert told["numbers"]["accepted"].startswith(f"{run.summary().acceptance_rate:.2f}"[:3])
    assert len(told["energies"]["raw"]["chains"]) == 3
    found = [(one["chain"], one["epoch"] - 1, one["energy_raw"]) for one in told["samples"]]
    assert found == [(one.chain, one.epoch, pytest.approx(one.energy_raw)) for one in run.samples]
    page = client.get("/report", params={"id": name})
    policy = page.headers["content-security-policy"]
    assert page.status_code == 200
    for rule in ("script-src 'sha256-", "default-src 'none'", "frame-ancestors 'none'"):
        assert rule in policy
    assert "unsafe" not in policy
    assert client.get("/report", params={"id": "nobody"}).status_code == 404


def test_a_chain_is_told_as_it_was_recorded(client, runs):
    traces = Run.open(runs / "mh").traces
    tokens = np.unique(traces["tokens"]).tolist()
    told = client.get(f"/api/runs/{ids(client)['mh']}/chains/2").json()
    words = dict(zip(tokens, load("untrained").token_strings(tokens), strict=True))
    rows = [[words[token] for token in row] for row in traces["tokens"][:, 2].tolist()]
    assert [[word.strip() for word in row] for row in told["texts"]] == rows
    assert told["energy_raw"] == pytest.approx(traces["energy_raw"][:, 2].tolist())
    assert told["free"] == [True] * 8
    assert told["source"] is None


def test_the_words_of_an_epoch_follow_its_steps(client, runs):
    traces, changes = Run.open(runs / "mh").traces, 0
    for epoch in range(6):
        told = client.get(f"/api/runs/{ids(client)['mh']}/chains/1/epochs/{epoch}").json()
        assert told["agrees"]
        assert told["after"] == traces["tokens"][epoch, 1].tolist()
        texts = told["texts"]
        for step in told["steps"]:
            (part,) = step["parts"]
            assert (part["first"], part["last"]) == (step["positions"][0], step["positions"][0] + 1)
            shown = texts[0][part["first"]].strip()
            assert part["from"] == shown
            assert (part["to"] == shown) == step["repeated"]
            if step["accepted"] and not step["repeated"]:
                del texts[0]
                changes += 1
                assert part["to"] == texts[0][part["first"]].strip()
    assert changes > 1


def test_a_translation_is_told_with_its_source(client):
    run = ids(client)["translated"]
    told = client.get(f"/api/runs/{run}/chains/1").json()
    assert told["source"] == SOURCES[1]
    epochs = [client.get(f"/api/runs/{run}/chains/1/epochs/{n}").json() for n in range(4)]
    assert all(one["agrees"] for one in epochs)
    # Two epochs that accept everything come first.
    assert [one["energy"] for one in epochs] == [None, None, "raw", "raw"]
    samples = client.get(f"/api/runs/{run}").json()["samples"]
    assert {one["source"] for one in samples} <= set(SOURCES)


def test_a_run_without_traces_of_tokens_says_why_it_cannot_be_played(client):
    run = ids(client)["untraced"]
    told = client.get(f"/api/runs/{run}").json()
    assert "tokens were not traced" in told["why_not_played"]
    refused = client.get(f"/api/runs/{run}/chains/0")
    assert refused.status_code == 422
    assert "tokens were not traced" in refused.json()["detail"]
    assert len(told["samples"]) == 18


def test_code_that_comes_with_a_model_is_not_run_unasked(served, tmp_path):
    make_run(tmp_path / "theirs")
    with edited(tmp_path / "theirs" / "manifest.json") as manifest:
        manifest["config"]["model"]["source"] |= {"name": str(tmp_path), "trust_remote_code": True}
    client = served([tmp_path / "theirs"])
    run = ids(client)["theirs"]
    assert client.get(f"/api/runs/{run}").status_code == 200
    refused = client.get(f"/api/runs/{run}/chains/0")
    assert refused.status_code == 422
    assert "--trust-remote-code" in refused.json()["detail"]


def test_pages_ask_for_nothing_but_what_is_served_and_run_no_markup(client):
    for page in ("/", "/run", "/live"):
        text = client.get(page).text
        for address in re.findall(r'(?:src|href)="([^"#]+)"', text):
            assert address.split("#")[0] in (*STATIC, "./", "live"), address
        assert not re.search(r"<script>|<style>| style=| on\w+=", text)
    for name in STATIC:
        response = client.get(f"/{name}")
        assert response.status_code == 200
        if name.endswith(".js"):
            wrong = r"innerHTML|outerHTML|insertAdjacent|document\.write|eval\(|new Function"
            assert not re.search(wrong, response.text)
        if not name.endswith(".svg"):
            assert "//" not in re.sub(r"(^|\s)//.*", "", response.text, flags=re.MULTILINE)


def test_every_response_carries_the_headers(client):
    paths = ("/", "/api/runs", "/nothing", "/api/runs/x", "/views.css", "/report")
    for path in paths:
        headers = client.get(path).headers
        for name, value in viewer.HEADERS.items():
            assert headers[name] == value
    assert "unsafe" not in viewer.HEADERS["Content-Security-Policy"]


def test_there_is_nothing_without_the_token(served):
    token = "a-token-of-some-length"
    client = served(token=token)
    paths = ["", "run", "live", "views.css", "api/runs", "api/choices", "api/live", "report?id=x"]
    wrongs = ("", "x", token[:-1], f"{token}x", token.upper(), "ä")
    for wrong in ("", "t/", *(f"t/{one}/" for one in wrongs)):
        for path in paths:
            assert client.get(f"/{wrong}{path}").status_code == 404
        for body in (SMALL, b"{"):
            assert post(client, f"/{wrong}api/live", body).status_code == 404
    assert client.get(f"/t/{token}/").status_code == 200
    assert client.get(f"/t/{token}/api/runs").status_code == 200
    assert client.get(f"/t/{token}/api/live").json()["status"] == "none"


@pytest.mark.parametrize("run_id", ["%2e%2e", "..%2f..%2fetc%2fpasswd", "%00", "mh", "x" * 5000])
def test_no_path_of_a_request_reaches_the_files(client, run_id, runs):
    for path in ("", "/verdict", "/chains/0", "/chains/0/epochs/0"):
        assert client.get(f"/api/runs/{run_id}{path}").status_code in (404, 422)
    assert client.get(f"/{run_id}").status_code == 404
    assert str(runs) not in client.get("/api/runs").text.replace(str(runs / "broken"), "")


@pytest.mark.parametrize("path", [
    "chains/3", "chains/-1", "chains/x", "chains/0/epochs/6", "chains/0/epochs/-1",
    "chains/0/epochs/1e3", f"chains/{10**30}",
])  # fmt: skip
def test_what_is_out_of_bounds_is_refused(client, path):
    response = client.get(f"/api/runs/{ids(client)['mh']}/{path}")
    assert response.status_code == 422
    assert len(response.text) < 200


def test_a_run_is_started_watched_and_afterwards_a_run_like_any_other(client, tmp_path):
    text = {"text": "the river is long", "freeze": "river, long", "name": "Rivers"}
    started = post(client, "/api/live", SMALL | text)
    assert started.status_code == 200
    seen = ended(client)
    assert (seen["status"], seen["title"]) == ("finished", "Rivers"), seen["message"]
    assert any("never trained" in note for note in seen["notes"])
    assert seen["epoch"] == 4
    assert len(seen["energy_raw"]) == len(seen["energy_norm"]) == 4
    run = Run.open(tmp_path / "made" / seen["name"])
    assert run.finished
    assert (run.manifest.config.seed, run.manifest.name) == (1, "Rivers")
    assert all({"river", "long"} <= set(sample.tokens) for sample in run.samples)
    assert ids(client)[seen["name"]] == seen["id"]
    last = {one.chain: one.tokens for one in run.samples if one.epoch == 3}
    words = {one["chain"]: [word.strip() for word in one["words"]] for one in seen["chains"]}
    assert words == last
    told = client.get(f"/api/runs/{seen['id']}/chains/1/epochs/3").json()
    assert told["agrees"]


def test_a_run_is_stopped_saved_and_only_one_goes_at_a_time(client, tmp_path):
    long = LONG | {"model": "wiki-any"}  # which is read in no time
    assert post(client, "/api/live", long).status_code == 200
    assert "another run" in post(client, "/api/live", SMALL).json()["detail"]
    wait_until(lambda: live(client)["epoch"] >= 1)
    assert post(client, "/api/live/stop", {}).status_code == 204
    seen = ended(client)
    assert seen["status"] == "stopped"
    run = Run.open(tmp_path / "made" / seen["name"])
    assert not run.finished
    assert 1 <= run.summary().epochs_done < viewer.MOST_EPOCHS
    assert list((tmp_path / "made" / seen["name"] / "checkpoints").iterdir())  # to resume from


@pytest.mark.slow
def test_what_ends_the_server_ends_its_run_saved(tmp_path):
    run_list = RunList([], tmp_path / "made")
    app = viewer.create_app(run_list, Player("cpu"), viewer.LiveRuns(run_list.home, "cpu"))
    with TestClient(app, base_url=BASE) as client:
        post(client, "/api/live", LONG)
        wait_until(lambda: live(client)["epoch"] >= 1)
        name = live(client)["name"]
    run = Run.open(tmp_path / "made" / name)
    assert list((tmp_path / "made" / name / "checkpoints").iterdir())
    assert run.summary().epochs_done >= 1


TEXTUAL = {"text": "a river"}


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        *(({"model": name}, "") for name in ("nobody", "../../etc", "wiki-judge", "x" * 101)),
        *(({"chains": count}, "") for count in (0, viewer.MOST_CHAINS + 1, "2", 2.0, True)),
        *(({"temperature": value}, "") for value in (0, 1e9, None)),
        ({"method": "exact"}, ""), ({"energy": "autoregressive"}, ""), ({"length": 65}, ""),
        ({"epochs": 10**30}, ""), ({"seed": 2**32}, ""), ({"out": "/tmp/x"}, ""),
        ({"freeze": "1-2"}, "give one to start from"),
        (TEXTUAL | {"method": "mask-predict"}, "leave the text empty"),
        ({"name": "two\nlines"}, "one line"),
        ({"text": "two\nlines"}, "one line"),
        (TEXTUAL | {"prefix": "\0"}, "one line"),
        (TEXTUAL | {"freeze": __file__}, "not a file"),
        ({"text": "x" * (viewer.LONGEST_TEXT + 1)}, "text"),
        # Longer than the name of any file.
        (TEXTUAL | {"model": "nobody", "freeze": "ä" * 200}, "no such model"),
    ],
)  # fmt: skip
def test_what_is_no_small_run_is_refused_and_nothing_is_begun(client, change, reason, tmp_path):
    response = post(client, "/api/live", SMALL | change)
    assert response.status_code == 422
    assert reason in response.json()["detail"]
    assert len(response.text) < 200
    assert live(client)["status"] == "none"
    assert not (tmp_path / "made").exists()


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        *((headers, 403) for headers in (
            {"Origin": "https://127.0.0.1:1"}, {"Origin": "null"},
            {"Sec-Fetch-Site": "cross-site"}, {"Sec-Fetch-Site": "same-site", "Origin": BASE},
        )),
        *((headers, 404) for headers in (
            {}, {"Origin": BASE}, {"Sec-Fetch-Site": "same-origin", "Origin": BASE},
            # Behind a proxy with TLS the Host is the proxy's choice, and the browser compares.
            {"Sec-Fetch-Site": "same-origin", "Origin": "https://runs.example"},
        )),
    ],
)  # fmt: skip
def test_only_the_page_itself_may_send_even_with_the_token(served, headers, status):
    client = served(token="secret")
    answer = client.post("/t/secret/api/live/stop", json={}, headers=headers)
    assert answer.status_code == status  # 404: no run was started
    if status == 403:
        answer = client.post("/t/secret/api/live", json=SMALL, headers=headers)
        assert answer.status_code == 403
        assert client.get("/t/secret/api/live").json()["status"] == "none"


def test_only_small_json_is_read(client):
    for body in (b"", b"{", b"[]", b"null", b"\xff", b"[" * 3000):
        assert post(client, "/api/live", body).status_code in (400, 422)
    for kind in ("text/plain", "application/x-www-form-urlencoded", "multipart/form-data", ""):
        assert post(client, "/api/live", SMALL, kind).status_code == 415
        assert post(client, "/api/live/stop", {}, kind).status_code == 415
    assert post(client, "/api/live", b" " * (viewer.LONGEST_BODY + 1)).status_code == 413
    assert live(client)["status"] == "none"


def test_a_server_that_only_reads_starts_nothing(served):
    client = served(start=False)
    assert not client.get("/api/choices").json()["may_start"]
    assert post(client, "/api/live", SMALL).status_code == 403
    assert post(client, "/api/live/stop", {}).status_code == 404
    assert live(client)["status"] == "none"


def test_a_run_that_cannot_be_says_why_and_runs_are_not_started_without_end(client, monkeypatch):
    monkeypatch.setattr(viewer, "MOST_STARTED", 1)
    post(client, "/api/live", SMALL | {"model": "counterexample"})
    seen = ended(client)
    assert seen["status"] == "failed"
    assert seen["message"].startswith("length 6 is out of range")
    assert not seen["saved"]
    assert "its maximum" in post(client, "/api/live", SMALL).json()["detail"]
