"""Connections that hang or come in crowds, and hosts that are not this machine."""

import logging
import resource

import pytest
from fastapi import FastAPI
from fastapi.responses import PlainTextResponse
from starlette.testclient import TestClient

from maskov.ui.viewer import server as server_module
from maskov.ui.viewer.runs import Player, RunList
from patience import wait_until
from view_runs import ThreadServer

HEAD = b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\n"
POST = b"POST / HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
HALVES = [b"", HEAD, POST + b"Content-Length: 10\r\n\r\n{",
          POST + b"Transfer-Encoding: chunked\r\n\r\n1\r\n{\r\n"]  # fmt: skip
# What is not HTTP, or is it in part.
ODD = [
    b"zz\r\n\r\n", b"\0", b"GET / HTTP/9.9\r\n\r\n", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    b"\x16\x03\x01\x02\0", POST + b"Content-Length: -1\r\n\r\n", b"\xff" * 9,
    POST + b"Content-Length: 5\r\nContent-Length: 6\r\n\r\n", HEAD + b"X: " + b"x" * 70_000,
    HEAD + b"Connection: Upgrade\r\nUpgrade: websocket\r\n\r\n",
    b"GET http://\xc3\xa4/ HTTP/1.1\r\n\r\n", b"GET //%00%ff/..%2f HTTP/1.1\r\nHost: x\r\n\r\n",
]  # fmt: skip
CROWD = 700


@pytest.fixture
def app():
    app = FastAPI()
    app.get("/")(lambda: PlainTextResponse("here"))
    return app


@pytest.fixture
def many_files():
    """Let this process have both ends of a crowd open."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = 2 * CROWD + 500
    if before[1] != resource.RLIM_INFINITY and before[1] < needed:
        pytest.skip("too few files may be open here")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(before[0], needed), before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, before)


def test_half_open_connections_and_odd_bytes_keep_nobody_out(app, many_files, caplog):
    caplog.set_level(logging.WARNING)
    with ThreadServer(app) as server:
        crowd = [server.connect(HALVES[number % len(HALVES)]) for number in range(CROWD)]
        assert server.get()[1] == b"here"
        for odd in ODD:
            server.connect(odd).close()
        for connection in crowd:
            connection.close()
        assert server.get()[1] == b"here"
    assert not [record for record in caplog.records if record.exc_info]


def test_above_the_limit_requests_are_refused_until_there_is_room(app, monkeypatch):
    monkeypatch.setattr(server_module, "MOST_CONNECTIONS", 8)
    with ThreadServer(app) as server:
        crowd = [server.connect(HEAD) for _ in range(12)]
        wait_until(lambda: server.get()[0] == 503)
        for connection in crowd:
            connection.close()
        wait_until(lambda: server.get()[0] == 200)


@pytest.mark.parametrize(
    ("host", "status"),
    [
        *((host, 200) for host in ("LocalHost:1", "127.0.0.1:65535", "[::1]:80")),
        *((host, 400) for host in (
            "[::1].evil.com", "localhost:evil.com", "localhost:80:80", "evil.com@localhost",
            "127.0.0.1.evil.com", "0.0.0.0", "10.0.0.1", "localhost:-1", ":80", "",
        )),
    ],
)  # fmt: skip
def test_only_names_of_this_machine_are_answered(host, status, tmp_path):
    app = server_module.create_app(RunList([], tmp_path), Player("cpu"), None)
    client = TestClient(app, base_url="http://127.0.0.1")
    assert client.get("/live", headers={"Host": host}).status_code == status
