"""An application on a real port of this process, and raw connections to it."""

import http.client
import socket
import threading
import time
from contextlib import ExitStack

from maskov.ui.viewer.server import listen, server_of


class ThreadServer:
    """Serves an application in a thread, until the test is over."""

    def __init__(self, app) -> None:
        opened, self.address = listen("127.0.0.1", 0)
        self.port = opened.getsockname()[1]
        self._server = server_of(app)
        self._thread = threading.Thread(target=self._server.run, kwargs={"sockets": [opened]})
        self._closing = ExitStack()

    def __enter__(self):
        self._thread.start()
        until = time.monotonic() + 20
        while not self._server.started:
            assert time.monotonic() < until, "the server did not start"
            time.sleep(0.01)
        return self

    def __exit__(self, *_):
        self._closing.close()
        self._server.should_exit = True
        self._thread.join(20)
        assert not self._thread.is_alive()

    def connect(self, sent: bytes = b"") -> socket.socket:
        """Open a connection and send some bytes; it is closed with the server."""
        connection = socket.create_connection(("127.0.0.1", self.port), 10)
        self._closing.callback(connection.close)
        connection.sendall(sent)
        return connection

    def get(self, path: str = "/", timeout: float = 10) -> tuple[int, bytes]:
        """Ask for a page; return its status and content."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=timeout)
        try:
            connection.request("GET", path)
            response = connection.getresponse()
            return response.status, response.read()
        finally:
            connection.close()
