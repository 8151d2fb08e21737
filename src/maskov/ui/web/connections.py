"""HTTP connections with limits: slow clients are dropped, and nobody can hold every connection.

uvicorn waits for ever for a request that never ends, and takes connections until the process has
no file descriptors left. Here

- a request's headers must arrive within `header_seconds` of the connection or of the last response,
  its body within `body_seconds`, and a response must be read at `least_rate` bytes a second;
- there are at most `connections`, and `per_address` from one address. A new connection displaces
  the one that has waited longest for a request; if all requests are complete, it is refused.
"""

from __future__ import annotations

import asyncio
import ipaddress
import logging
import sys
from dataclasses import dataclass
from typing import Any

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

_log = logging.getLogger("uvicorn.error")
# File descriptors left to everything but connections: models, run folders, databases.
_KEPT_FILES = 64
_REFUSAL = (
    b"HTTP/1.1 503 Service Unavailable\r\nContent-Type: text/plain\r\n"
    b"Content-Length: 5\r\nRetry-After: 5\r\nConnection: close\r\n\r\nbusy\n"
)


@dataclass(frozen=True)
class Limits:
    """The limits of a server; times are in seconds."""

    connections: int = 512
    per_address: int = 128
    header_seconds: float = 10.0
    body_seconds: float = 20.0
    keep_alive_seconds: int = 5
    # A response that is not read: bytes a second, over intervals of `writing_seconds`.
    least_rate: float = 1024.0
    writing_seconds: float = 10.0

    @classmethod
    def for_process(cls) -> Limits:
        """Return the default limits, lowered to what the process may open."""
        files = _open_files()
        if files is None:
            return cls()
        return cls(connections=max(8, min(cls.connections, (files - _KEPT_FILES) * 2 // 3)))

    @property
    def backlog(self) -> int:
        """How many connections may wait to be accepted; all of them are accepted at once."""
        return max(32, self.connections // 4)


def _open_files() -> int | None:
    if sys.platform == "win32":
        return None
    import resource

    files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return None if files == resource.RLIM_INFINITY else files


class ConnectionPool:
    """The open connections of a server, in the order in which they began to wait for a request."""

    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        self._open: dict[LimitedConnection, None] = {}

    def admit(self, connection: LimitedConnection) -> bool:
        """Add a connection, perhaps in the place of another; return whether there is room."""
        address = connection.address
        same = [other for other in self._open if address and other.address == address]
        for others, most in (
            (same, self.limits.per_address),
            (list(self._open), self.limits.connections),
        ):
            if len(others) >= most:
                _log.warning("more than %d connections: not all of them are kept", most)
                if not _displace(others):
                    return False
        self._open[connection] = None
        return True

    def waits(self, connection: LimitedConnection) -> None:
        """Note that a connection waits for a request from now on."""
        if connection in self._open:
            del self._open[connection]
            self._open[connection] = None

    def remove(self, connection: LimitedConnection) -> None:
        """Forget a connection."""
        self._open.pop(connection, None)


class LimitedConnection(H11Protocol):
    """A connection that is dropped when its client is too slow, or when others need its place."""

    def __init__(self, pool: ConnectionPool, *args: Any, **settings: Any) -> None:
        super().__init__(*args, **settings)
        self.address: str | None = None
        self._pool, self._limits = pool, pool.limits
        self._deadline: asyncio.TimerHandle | None = None
        # Bytes of responses that the client had not read when last looked at.
        self._unsent: int | None = None

    @property
    def waiting(self) -> bool:
        """Whether no request is under way."""
        return self.cycle is None or self.cycle.response_complete

    @property
    def incomplete(self) -> bool:
        """Whether the client has still to send its request, or the rest of it."""
        return self.waiting or self.cycle.more_body

    @property
    def unread(self) -> int:
        """How many bytes of responses the client has not read."""
        return self.transport.get_write_buffer_size()

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Take the connection, unless all are busy."""
        super().connection_made(transport)
        self.address = None if self.client is None else _limited_address(self.client[0])
        if not self._pool.admit(self):
            transport.write(_REFUSAL)
            transport.close()
        self._set_deadline(self._limits.header_seconds)

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget the connection."""
        self._pool.remove(self)
        self._clear_deadline()
        # uvicorn leaves this timer running after an error, which keeps the connection in memory.
        self._unset_keepalive_if_required()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Take data; once a request's headers are there, its body has a time of its own."""
        if self.transport.is_closing():
            return
        before = self.cycle
        super().data_received(data)
        if self.cycle is not before:
            self._begin_request()
        elif not self.waiting and not self.cycle.more_body:
            self._clear_deadline()

    def on_response_complete(self) -> None:
        """Wait for the next request, or for the client to read the response."""
        before = self.cycle
        self._pool.waits(self)
        self._set_deadline(self._limits.header_seconds)
        super().on_response_complete()
        if self.cycle is not before:  # a request that was already there
            self._begin_request()
        self._watch_writing()

    def send_400_response(self, msg: str) -> None:
        """Refuse what is no HTTP; within a request there is no room for such an answer."""
        if self.waiting and self.conn.our_state in (h11.IDLE, h11.SEND_RESPONSE):
            super().send_400_response(msg)
            return
        # The application is told at once, so that it does not try to answer.
        if self.cycle is not None:
            self.cycle.disconnected = True
            self.cycle.message_event.set()
        self.drop()

    def pause_writing(self) -> None:
        """Note that the client does not read as fast as we write."""
        super().pause_writing()
        self._watch_writing()

    def _begin_request(self) -> None:
        if self.waiting:
            return  # answered already, and its time set
        self._clear_deadline()
        if self.cycle.more_body:
            self._set_deadline(self._limits.body_seconds)

    def _watch_writing(self) -> None:
        """Check from now on that the client reads what is left of the response."""
        if self._unsent is None and self.unread:
            self._unsent = self.unread
            self.loop.call_later(self._limits.writing_seconds, self._check_writing)

    def _check_writing(self) -> None:
        before, self._unsent = self._unsent or 0, None
        if self not in self.connections or not self.unread:
            return
        # What grew in between is not stuck: another response was added.
        if 0 <= before - self.unread < self._limits.least_rate * self._limits.writing_seconds:
            self.drop()
        else:
            self._watch_writing()

    def _set_deadline(self, seconds: float) -> None:
        self._clear_deadline()
        self._deadline = self.loop.call_later(seconds, self._too_slow)

    def _clear_deadline(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _too_slow(self) -> None:
        self._deadline = None
        # A response that is still being read has `_check_writing`.
        if self.waiting and self.unread:
            self._set_deadline(self._limits.header_seconds)
        else:
            self.drop()

    def drop(self) -> None:
        """Close the connection at once; whatever is unread is lost."""
        self._pool.remove(self)
        self.transport.abort()


def _displace(connections: list[LimitedConnection]) -> bool:
    """Drop the connection that has waited longest for a request; return whether one did.

    Those whose client still reads a response come last.
    """
    waiting = [connection for connection in connections if connection.incomplete]
    for connection in sorted(waiting, key=lambda each: each.unread > 0)[:1]:
        connection.drop()
    return bool(waiting)


def _limited_address(host: str) -> str | None:
    """Return an address for `per_address`, or None on loopback, where tunnels and proxies are.

    An IPv6 client has a whole /64 network, so that counts as one address.
    """
    try:
        address = ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return host
    if address.is_loopback:
        return None
    if isinstance(address, ipaddress.IPv6Address):
        if address.ipv4_mapped is not None:
            return _limited_address(str(address.ipv4_mapped))
        return str(ipaddress.ip_network((address, 64), strict=False))
    return str(address)
