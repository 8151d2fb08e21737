"""Requests at the same time: a cold start, many readers, and a run that goes on meanwhile."""

import http.client
import json
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing

import pytest

from maskov.runs import manifest
from maskov.ui.viewer.runs import Player, RunList, id_of
from maskov.ui.viewer.server import create_app
from view_runs import TOKEN, ServedRuns, ThreadServer, make_run

SMALL = {"model": "untrained", "chains": 2, "length": 6, "epochs": 3, "seed": 1}
READERS = 200


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("read") / "runs"
    for name in ("first", "second"):
        make_run(folder / name, chains=2)
    return folder


class Client:
    """Asks a server on this machine."""

    def __init__(self, port, start="/"):
        self._port, self._start = port, start

    def ask(self, path, body=None):
        """Return a status and what was told."""
        connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=120)
        with closing(connection):
            content = None if body is None else json.dumps(body)
            headers = {"Content-Type": "application/json"}
            connection.request("POST" if content else "GET", self._start + path, content, headers)
            response = connection.getresponse()
            content = response.read()
            is_json = response.headers["content-type"] == "application/json"
            return response.status, json.loads(content) if is_json else content


def test_a_failed_load_is_tried_again_by_the_next_request(runs, tmp_path, monkeypatch):
    load, calls, lock = manifest.load, [], threading.Lock()

    def fails_first(*args, **options):
        with lock:
            calls.append(args)
            first = len(calls) == 1
        if first:
            raise ImportError("cannot import name 'BertConfig' from 'transformers'")
        return load(*args, **options)

    monkeypatch.setattr(manifest, "load", fails_first)
    app = create_app(RunList([runs], tmp_path / "made"), Player("cpu"), None)
    chains = [f"api/runs/{id_of(runs / name)}/chains/{chain}" for name in ("first", "second")
              for chain in (0, 1)]  # fmt: skip
    with ThreadServer(app) as server, ThreadPoolExecutor(8) as threads:
        client = Client(server.port)
        assert client.ask(chains[0])[0] == 500
        asked = [threads.submit(client.ask, path) for path in chains * 2]
        assert [request.result()[0] for request in asked] == [200] * 8


@pytest.mark.slow
def test_two_hundred_readers_are_answered_while_a_run_goes_on(runs, tmp_path):
    first = id_of(runs / "first")
    paths = [
        "", "run", "views.css", "api/runs", "api/live", f"api/runs/{first}",
        f"api/runs/{first}/verdict", f"api/runs/{first}/chains/0",
        f"api/runs/{first}/chains/1/epochs/3", f"report?id={first}",
    ]  # fmt: skip
    request = SMALL | {"chains": 8, "length": 24, "epochs": 200}
    with ServedRuns(runs, tmp_path / "made") as server:
        client = Client(server.port, f"/t/{TOKEN}/")
        assert client.ask("api/live", request)[0] == 200
        while (before := client.ask("api/live")[1])["epoch"] < 1:
            assert before["running"], before
            time.sleep(0.05)
        together = threading.Barrier(READERS)

        def read(number):
            together.wait(60)
            return [client.ask(path)[0] for path in (paths * 2)[number % 10 :][:3]]

        with ThreadPoolExecutor(READERS) as threads:
            answers = list(threads.map(read, range(READERS)))
        assert answers == [[200] * 3] * READERS
        after = client.ask("api/live")[1]
        assert after["running"], after["message"]
        assert after["passes"] > before["passes"]
        assert client.ask("api/live/stop", {})[0] == 204
