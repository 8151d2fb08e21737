"""Security headers of every response, and the check of the Host header."""

from __future__ import annotations

import ipaddress
import re

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

HEADERS = {
    # Only our own files, nothing inline, no framing.
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "
        "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    # The address of a page may contain a token.
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-store",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
}

# ASCII alone: other digits and letters are not for a parser to be lenient with.
_HOST = re.compile(
    r"(?:\[(?P<ipv6>[0-9A-Fa-f:.]+)\]|(?P<name>[0-9A-Za-z.-]+))(?::(?P<port>[0-9]{1,5}))?"
)
_LARGEST_PORT = 65535


class SecurityHeaders:
    """Adds missing headers to responses; on loopback, refuses requests for other hosts.

    This prevents DNS rebinding: a foreign page may point its own host name at 127.0.0.1, but the
    browser still sends that name in `Host`.
    """

    def __init__(self, app: ASGIApp, loopback: bool) -> None:
        self.app = app
        self.loopback = loopback

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on, or refuse it."""

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    headers.setdefault(name, value)
            await send(message)

        if scope["type"] != "http":
            await self.app(scope, receive, send)
        elif self.loopback and not _meant_for_loopback(Headers(scope=scope)):
            refusal = PlainTextResponse("wrong host\n", status_code=400)
            await refusal(scope, receive, send_with_headers)
        else:
            await self.app(scope, receive, send_with_headers)


def is_loopback(host: str) -> bool:
    """Whether a host is localhost or a loopback address."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host.lower() == "localhost"


def _meant_for_loopback(headers: Headers) -> bool:
    given = headers.getlist("host")
    return len(given) == 1 and is_loopback_host(given[0])


def is_loopback_host(header: str) -> bool:
    """Whether a Host header is a loopback name or address, and a port or none; nothing else."""
    parts = _HOST.fullmatch(header)
    if parts is None or int(parts["port"] or 0) > _LARGEST_PORT:
        return False
    if parts["ipv6"] is not None:
        return ":" in parts["ipv6"] and is_loopback(parts["ipv6"])
    return is_loopback(parts["name"])
