"""Open a port and serve an application on it with uvicorn."""

from __future__ import annotations

import socket
from functools import partial
from typing import Any, cast

import uvicorn
from fastapi import FastAPI
from starlette.types import ASGIApp

from maskov.errors import InputError
from maskov.ui.web.connections import ConnectionPool, LimitedConnection, Limits
from maskov.ui.web.log import log_briefly
from maskov.ui.web.security_headers import is_loopback


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
    server_of(app, Limits.for_process()).run(sockets=[opened])


def server_of(app: ASGIApp, limits: Limits) -> uvicorn.Server:
    """Return a server of an application."""
    config = uvicorn.Config(
        app,
        # uvicorn calls it to make a connection, so it need not be a class.
        http=cast(Any, partial(LimitedConnection, ConnectionPool(limits))),
        # Addresses contain tokens, which must not be logged.
        access_log=False,
        log_config=None,
        proxy_headers=False,
        server_header=False,
        ws="none",
        lifespan="on",
        backlog=limits.backlog,
        timeout_keep_alive=limits.keep_alive_seconds,
        timeout_graceful_shutdown=5,
    )
    return uvicorn.Server(config)
