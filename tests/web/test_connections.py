"""Clients that are slow, hang or come in crowds: they are dropped, and others are served."""

from __future__ import annotations

import asyncio
import http.client
import logging
import random
import threading
import time

import pytest
from fastapi import FastAPI, Request
from fastapi.responses import PlainTextResponse
from pydantic import BaseModel

from maskov.ui.web import connections
from maskov.ui.web.connections import ConnectionPool, Limits
from maskov.ui.web.log import MOST_MESSAGES, BriefLog
from maskov.ui.web.requests import read
from web_server import ThreadServer, is_dropped

HEAD = b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\n"
POST = b"POST / HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
CHUNKED = POST + b"Transfer-Encoding: chunked\r\n\r\n"
SLOW = b"GET /slow HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"
BIG = 30 * 2**20  # more than the buffers of both sockets
SHORT = Limits(
    connections=8, header_seconds=0.2, body_seconds=0.2, keep_alive_seconds=1, writing_seconds=0.2
)


class Empty(BaseModel):
    """A form without fields."""


@pytest.fixture
def app():
    """Return an application whose slow page is answered when `go_on` is set."""
    app = FastAPI()
    app.state.go_on, app.state.begun = threading.Event(), threading.Semaphore(0)

    @app.get("/")
    def index() -> PlainTextResponse:
        return PlainTextResponse("here")

    @app.post("/")
    async def post(request: Request) -> PlainTextResponse:
        await read(request, Empty, 1000)
        return PlainTextResponse("taken")

    @app.get("/big")
    def big() -> PlainTextResponse:
        return PlainTextResponse("x" * BIG)

    @app.get("/slow")
    async def slow() -> PlainTextResponse:
        app.state.begun.release()
        while not app.state.go_on.is_set():
            await asyncio.sleep(0.01)
        return PlainTextResponse("at last")

    yield app
    app.state.go_on.set()


def trickle(connection, part, seconds=5):
    """Send some bytes again and again."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        connection.sendall(part)
        time.sleep(0.03)


def answer(connection):
    """Read a short response to its end."""
    response = http.client.HTTPResponse(connection)
    response.begin()
    return response.read()


@pytest.fixture
def messages(caplog):
    caplog.set_level(logging.WARNING, "uvicorn.error")
    caplog.set_level(logging.WARNING, "asyncio")
    return caplog


@pytest.mark.parametrize(
    "sent",
    [
        pytest.param(b"", id="nothing"),
        pytest.param(HEAD, id="half of the headers"),
        pytest.param(POST + b"Content-Length: 10\r\n\r\n{", id="half of a body"),
        pytest.param(CHUNKED + b"1\r\n{\r\n", id="half of the chunks"),
        pytest.param(HEAD + b"\r\n", id="nothing after an answer"),
        pytest.param(HEAD + b"\r\n" + HEAD, id="half of a second request"),
    ],
)  # fmt: skip
def test_a_connection_that_hangs_is_dropped_and_leaves_no_traceback(app, sent, messages):
    with ThreadServer(app, SHORT) as server:
        assert is_dropped(server.connect(sent), 5)
        assert server.get()[1] == b"here"
    assert messages.records == []


def test_bytes_that_trickle_in_do_not_prolong_the_time(app):
    with ThreadServer(app, SHORT) as server:
        for start, more in ((HEAD, b"X: 1\r\n"), (POST + b"Content-Length: 500\r\n\r\n", b" ")):
            connection = server.connect(start)
            began = time.monotonic()
            with pytest.raises(ConnectionError):
                trickle(connection, more)
            assert time.monotonic() - began < 3


def test_a_body_without_an_end_that_nobody_wants_is_not_read_for_ever(app):
    chunk = b"400\r\n" + b"x" * 0x400 + b"\r\n"
    with ThreadServer(app, SHORT) as server:
        connection = server.connect(CHUNKED)
        with pytest.raises(ConnectionError):
            trickle(connection, chunk)
        assert server.get()[1] == b"here"


def test_a_client_that_does_not_read_its_answer_is_dropped(app):
    with ThreadServer(app, SHORT) as server:
        connection = server.connect(b"GET /big HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
        time.sleep(0.8)
        # What is in the sockets' buffers still arrives, and then no more.
        received = 0
        try:
            while part := connection.recv(2**20):
                received += len(part)
        except ConnectionError:
            pass
        assert received < BIG
        assert len(server.get("/big")[1]) == BIG


def test_an_answer_that_takes_long_is_waited_for(app):
    with ThreadServer(app, SHORT) as server:
        connection = server.connect(SLOW)
        assert not is_dropped(connection, 0.6)
        app.state.go_on.set()
        assert answer(connection).endswith(b"at last")


@pytest.mark.parametrize("sent", [HEAD, POST + b"Content-Length: 10\r\n\r\n{"])
def test_a_crowd_of_half_open_connections_keeps_nobody_out(app, sent, messages):
    patient = Limits(connections=8)
    with ThreadServer(app, patient) as server:
        crowd = [server.connect(sent) for _ in range(24)]
        began = time.monotonic()
        for _ in range(3):
            assert server.get()[1] == b"here"
        assert time.monotonic() - began < 5
        assert sum(is_dropped(connection, 0.02) for connection in crowd) >= 16
    assert not any(record.exc_info for record in messages.records)


def test_requests_under_way_are_kept_and_one_more_is_refused(app):
    with ThreadServer(app, Limits(connections=3)) as server:
        busy = [server.connect(SLOW) for _ in range(3)]
        for _ in busy:
            assert app.state.begun.acquire(timeout=10)
        assert server.get()[0] == 503
        app.state.go_on.set()
        for connection in busy:
            assert answer(connection).endswith(b"at last")
        assert server.get()[0] == 200


def test_one_address_does_not_crowd_out_another(app, monkeypatch):
    # Every address of 127.0.0.0/8 is this machine's; here they stand for other machines.
    monkeypatch.setattr(connections, "_limited_address", lambda host: host)
    with ThreadServer(app, Limits(connections=20, per_address=4)) as server:
        other = server.connect(HEAD, source="127.0.0.2")
        crowd = [server.connect(HEAD, source="127.0.0.3") for _ in range(30)]
        assert server.get()[1] == b"here"
        assert sum(is_dropped(connection, 0.02) for connection in crowd) >= 26
        other.sendall(b"\r\n")
        assert answer(other).endswith(b"here")


@pytest.mark.parametrize(
    ("host", "counted"),
    [
        ("127.0.0.1", None),
        ("::1", None),
        ("::ffff:127.0.0.1", None),
        ("10.0.0.7", "10.0.0.7"),
        ("::ffff:10.0.0.7", "10.0.0.7"),
        ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::/64"),
        ("fe80::1%eth0", "fe80::/64"),
    ],
)
def test_addresses_are_counted_by_network_and_loopback_is_not(host, counted):
    assert connections._limited_address(host) == counted


@pytest.mark.parametrize(("files", "most"), [(None, 512), (10**6, 512), (256, 128), (64, 8)])
def test_connections_leave_files_for_everything_else(files, most, monkeypatch):
    monkeypatch.setattr(connections, "_open_files", lambda: files)
    limits = Limits.for_process()
    assert limits.connections == most
    assert ConnectionPool(limits).limits is limits


PARTS = [
    HEAD, POST, CHUNKED, b"\r\n", b"\r\n\r\n", b"zz\r\n", b"1\r\n{\r\n", b"0\r\n\r\n", b"\0",
    b"GET", b"GET / HTTP/9.9\r\n\r\n", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", b"\x16\x03\x01\x02\0",
    b"Content-Length: -1\r\n\r\n", b"Content-Length: 5\r\nContent-Length: 6\r\n\r\n",
    b"X: " + b"x" * 70_000, b"\xff" * 9, b"Expect: 100-continue\r\n\r\n",
    b"Connection: Upgrade\r\nUpgrade: websocket\r\n\r\n",
    b"GET /nothing HTTP/1.1\r\nHost: 127.0.0.1\r\nTransfer-Encoding: chunked\r\n\r\n",
    b"GET http://\xc3\xa4/ HTTP/1.1\r\n\r\n", b"GET //%00%ff/..%2f HTTP/1.1\r\nHost: x\r\n\r\n",
]  # fmt: skip


def test_no_bytes_make_a_traceback_or_stop_the_server(app, messages):
    drawn = random.Random(0)
    with ThreadServer(app, SHORT) as server:
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
    assert not [record.getMessage() for record in messages.records if record.exc_info]


# What is logged.


class Clock:
    now = 0.0

    def __call__(self):
        return self.now


@pytest.fixture
def log():
    clock = Clock()
    logger = logging.Logger("test")
    logger.addHandler(BriefLog(clock))
    return logger, clock


def test_a_message_is_written_once_a_minute_and_few_in_all(log, capsys):
    logger, clock = log
    for number in range(100):
        logger.warning("the same")
        logger.warning("number %d", number)
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == MOST_MESSAGES
    assert lines[:2] == ["warning: the same", "warning: number 0"]
    clock.now = 61
    logger.warning("the same")
    assert capsys.readouterr().err.splitlines() == [
        f"{200 - MOST_MESSAGES} more messages within 60 s were left out",
        "warning: the same",
    ]


def test_only_errors_of_the_program_have_tracebacks(log, capsys):
    logger, _ = log
    for error in (OSError(24, "Too many open files"), KeyError("bug")):
        try:
            raise error
        except Exception:
            logger.exception("something failed\nin two lines")
    lines = capsys.readouterr().err.splitlines()
    assert lines[:3] == [
        "error: something failed (Too many open files)",
        "error: something failed",
        "Traceback (most recent call last):",
    ]
    assert lines[-1] == "KeyError: 'bug'"
