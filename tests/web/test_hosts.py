"""Which Host headers are taken for this machine's own."""

from __future__ import annotations

import ipaddress
from urllib.parse import urlsplit

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from starlette.applications import Starlette
from starlette.responses import PlainTextResponse
from starlette.routing import Route
from starlette.testclient import TestClient

from maskov.ui.web.security_headers import SecurityHeaders, is_loopback_host

OWN = [
    "localhost",
    "LocalHost:1",
    "127.0.0.1",
    "127.0.0.1:65535",
    "127.8.9.1:80",
    "[::1]",
    "[::1]:80",
]
FOREIGN = [
    "[::1].evil.com", "[::1].evil.com:80", "localhost:evil.com", "127.0.0.1:evil.com", "[::1]evil",
    "[::1]:evil.com", "[::1]:80:80", "[::1", "::1", "::1]", "[]", "[localhost]", "[127.0.0.1]",
    "localhost:", "localhost:80 ", " localhost", "localhost:80:80", "localhost:-1", "localhost:+80",
    "localhost:65536", "localhost:٨٠", "localhost.", "localhost.evil.com", "evil.com:localhost",
    "evil.com@localhost", "localhost@evil.com", "localhost/evil.com", "localhost?x", "localhost#x",
    "127.0.0.1.evil.com", "127.1", "0177.0.0.1", "2130706433", "0.0.0.0", "[::1%lo]", "[::]",
    "[::ffff:10.0.0.1]", "10.0.0.1", "ｌocalhost", "", ":80", "a" * 10_000,
]  # fmt: skip


@pytest.mark.parametrize("host", OWN)
def test_names_of_this_machine_pass(host):
    assert is_loopback_host(host)


@pytest.mark.parametrize("host", FOREIGN)
def test_all_else_is_foreign(host):
    assert not is_loopback_host(host)


def test_the_server_refuses_foreign_hosts():
    app = Starlette(routes=[Route("/", lambda request: PlainTextResponse("secret"))])
    client = TestClient(SecurityHeaders(app, loopback=True))
    for host in ("[::1].evil.com", "localhost:evil.com"):
        response = client.get("/", headers={"Host": host})
        assert response.status_code == 400
        assert "secret" not in response.text
    assert client.get("/", headers={"Host": "[::1]:8764"}).status_code == 200


_PIECES = st.sampled_from(
    ["localhost", "127.0.0.1", "::1", "[", "]", "[::1]", ":", "80", ".", "@", "evil.com", "%", "/"]
)


@given(st.lists(_PIECES, max_size=6).map("".join) | st.text(max_size=20))
@example("[::1].evil.com")
@example("localhost:evil.com")
def test_what_passes_is_loopback_to_any_other_parser_too(host):
    if is_loopback_host(host):
        read = urlsplit(f"http://{host}/")
        assert read.username is None
        assert (read.path, read.query, read.fragment) == ("/", "", "")
        assert 0 <= (read.port or 0) <= 65535
        assert read.hostname == "localhost" or ipaddress.ip_address(read.hostname).is_loopback
