"""Connections that hang, come in crowds or send anything: the server outlives them."""

import http.client
import logging
import random
import re
import resource
import socket
import subprocess
import sys
import time
from contextlib import ExitStack

import pytest
from fastapi import FastAPI
from fastapi.responses import PlainTextResponse
from pydantic import BaseModel
from starlette.testclient import TestClient

from maskov.ui.viewer import server as server_module
from maskov.ui.viewer.runs import Player, RunList
from view_runs import ThreadServer

HEAD = b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\n"
POST = b"POST / HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
CHUNKED = POST + b"Transfer-Encoding: chunked\r\n\r\n"
HALVES = [b"", HEAD, POST + b"Content-Length: 10\r\n\r\n{", CHUNKED + b"1\r\n{\r\n"]
CROWD = 700


class Empty(BaseModel):
    """A form without fields."""


@pytest.fixture
def app():
    app = FastAPI()

    @app.get("/")
    def index() -> PlainTextResponse:
        return PlainTextResponse("here")

    @app.post("/")
    def post(form: Empty) -> PlainTextResponse:
        return PlainTextResponse("taken")

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


def answered(server, status, seconds=10):
    """Whether a page is answered so, at last."""
    until = time.monotonic() + seconds
    while server.get()[0] != status:
        if time.monotonic() > until:
            return False
        time.sleep(0.02)
    return True


def test_a_crowd_of_half_open_connections_keeps_nobody_out(app, many_files, caplog):
    caplog.set_level(logging.WARNING)
    with ThreadServer(app) as server:
        crowd = [server.connect(HALVES[number % len(HALVES)]) for number in range(CROWD)]
        for _ in range(3):
            assert server.get()[1] == b"here"
        for connection in crowd:
            connection.close()
        assert server.get()[1] == b"here"
    assert not [record for record in caplog.records if record.exc_info]


def test_above_the_limit_requests_are_refused_until_there_is_room(app, monkeypatch):
    monkeypatch.setattr(server_module, "MOST_CONNECTIONS", 8)
    with ThreadServer(app) as server:
        crowd = [server.connect(HEAD) for _ in range(12)]
        assert answered(server, 503)
        for connection in crowd:
            connection.close()
        assert answered(server, 200)


@pytest.mark.slow
def test_a_server_without_files_left_waits_for_some(tmp_path):
    command = f"ulimit -n 256; exec {sys.executable} -m maskov serve --no-token --port 0"
    with ExitStack() as closing:
        process = closing.enter_context(
            subprocess.Popen(
                ["bash", "-c", command], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
                text=True, cwd=tmp_path,
            )
        )  # fmt: skip
        closing.callback(process.kill)
        port = int(re.search(r":(\d+)/", process.stdout.readline())[1])
        with ExitStack() as crowd:
            for number in range(CROWD):
                connection = crowd.enter_context(socket.create_connection(("127.0.0.1", port), 20))
                connection.sendall(HALVES[number % 2])
            time.sleep(3)
            assert process.poll() is None
        reader = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
        closing.callback(reader.close)
        reader.request("GET", "/")
        assert reader.getresponse().status == 200


PARTS = [
    HEAD, POST, CHUNKED, b"\r\n", b"\r\n\r\n", b"zz\r\n", b"1\r\n{\r\n", b"0\r\n\r\n", b"\0",
    b"GET", b"GET / HTTP/9.9\r\n\r\n", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", b"\x16\x03\x01\x02\0",
    b"Content-Length: -1\r\n\r\n", b"Content-Length: 5\r\nContent-Length: 6\r\n\r\n",
    b"X: " + b"x" * 70_000, b"\xff" * 9, b"Expect: 100-continue\r\n\r\n",
    b"Connection: Upgrade\r\nUpgrade: websocket\r\n\r\n",
    b"GET /nothing HTTP/1.1\r\nHost: 127.0.0.1\r\nTransfer-Encoding: chunked\r\n\r\n",
    b"GET http://\xc3\xa4/ HTTP/1.1\r\n\r\n", b"GET //%00%ff/..%2f HTTP/1.1\r\nHost: x\r\n\r\n",
]  # fmt: skip


def test_no_bytes_stop_the_server(app):
    drawn = random.Random(0)
    with ThreadServer(app) as server:
        for _ in range(150):
            connection = server.connect()
            try:
                for part in drawn.choices(PARTS, k=drawn.randint(1, 4)):
                    connection.sendall(part)
                    if drawn.random() < 0.3:
                        time.sleep(0.003)  # time to answer what came so far
            except ConnectionError:
                pass  # refused half-way
            connection.close()
        assert server.get()[1] == b"here"


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
