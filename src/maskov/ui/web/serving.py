"""Open a port and serve an application on it with uvicorn."""

from __future__ import annotations

import socket

import uvicorn
from fastapi import FastAPI
from starlette.types import ASGIApp

from maskov.errors import InputError
from maskov.ui.web.log import log_briefly
from maskov.ui.web.security_headers import is_loopback

# Connections from which on requests are refused, and the bytes of a request's headers.
MOST_CONNECTIONS, _LONGEST_HEADERS = 1000, 16 * 1024


def listen(host: str, port: int) -> tuple[socket.socket, str, bool]:
    """Open the port; return the socket, the address for browsers and whether it is loopback."""
    try:
        family, _, _, _, where = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        opened = socket.create_server(where[:2], family=family)
    except (OSError, UnicodeError) as error:
        reason = (getattr(error, "strerror", None) or str(error)).lower()
        raise InputError(f"cannot listen on '{host}', port {port}: {reason}.") from error
    name = f"[{host}]" if ":" in host else host
    return opened, f"http://{name}:{opened.getsockname()[1]}", is_loopback(host)


def serve(app: FastAPI, opened: socket.socket) -> None:
    """Serve until Ctrl-C or SIGTERM."""
    log_briefly()
    server_of(app).run(sockets=[opened])


def server_of(app: ASGIApp) -> uvicorn.Server:
    """Return a server of an application."""
    config = uvicorn.Config(
        app,
        http="h11",
        h11_max_incomplete_event_size=_LONGEST_HEADERS,
        limit_concurrency=MOST_CONNECTIONS,
        timeout_keep_alive=5,
        # Addresses contain tokens, which must not be logged.
        access_log=False,
        log_config=None,
        proxy_headers=False,
        server_header=False,
        ws="none",
        lifespan="on",
        timeout_graceful_shutdown=5,
    )
    return uvicorn.Server(config)
