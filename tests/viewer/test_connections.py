"""Which requests the server refuses: too many at once, and those by another name."""

import time

import pytest
from fastapi import FastAPI
from fastapi.responses import PlainTextResponse
from starlette.testclient import TestClient

from maskov.ui.viewer import server as server_module
from maskov.ui.viewer.runs import Player, RunList
from view_runs import ThreadServer

HEAD = b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\n"


@pytest.fixture
def app():
    app = FastAPI()

    @app.get("/")
    def index() -> PlainTextResponse:
        return PlainTextResponse("here")

    return app


def answered(server, status, seconds=10):
    """Whether a page is answered so, at last."""
    until = time.monotonic() + seconds
    while server.get()[0] != status:
        if time.monotonic() > until:
            return False
        time.sleep(0.02)
    return True


def test_above_the_limit_requests_are_refused_until_there_is_room(app, monkeypatch):
    monkeypatch.setattr(server_module, "MOST_CONNECTIONS", 8)
    with ThreadServer(app) as server:
        crowd = [server.connect(HEAD) for _ in range(12)]
        assert answered(server, 503)
        for connection in crowd:
            connection.close()
        assert answered(server, 200)


@pytest.mark.parametrize(
    ("host", "status"),
    [
        *((host, 200) for host in ("localhost", "LocalHost:1", "127.0.0.1:65535", "[::1]:80")),
        *((host, 400) for host in (
            "[::1].evil.com", "localhost:evil.com", "[::1]:evil.com", "::1]", "localhost:80:80",
            "evil.com@localhost", "localhost@evil.com", "localhost.evil.com", "127.0.0.1.evil.com",
            "0.0.0.0", "10.0.0.1", "evil.example:80", "localhost:-1", ":80", "",
        )),
    ],
)  # fmt: skip
def test_only_names_of_this_machine_are_answered(host, status, tmp_path):
    app = server_module.create_app(RunList([], tmp_path), Player("cpu"), None)
    client = TestClient(app, base_url="http://127.0.0.1")
    assert client.get("/live", headers={"Host": host}).status_code == status
