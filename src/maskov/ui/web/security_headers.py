"""Security headers of every response, and the check of the Host header."""

from __future__ import annotations

import ipaddress

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
    if len(given) != 1:
        return False
    host = given[0]
    # An IPv6 address is in brackets; after the last colon outside them comes the port.
    name = host[1 : host.find("]")] if host.startswith("[") else host.rsplit(":", 1)[0]
    return is_loopback(name)
