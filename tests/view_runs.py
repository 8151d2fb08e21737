"""Runs to look at, and servers that show them."""

import http.client
import multiprocessing
import shutil
import socket
import threading
from contextlib import ExitStack
from pathlib import Path

from maskov import (
    DelayedAcceptance,
    Gibbs,
    Metropolis,
    Mixture,
    Raw,
    Run,
    Schedule,
    Span,
    TranslationMethod,
    load,
    parse_energy,
    sample,
    translate,
)
from maskov.config import ModelSource
from maskov.models.base import MaskedModel
from maskov.moves import Resize
from maskov.ui.viewer.server import listen, server_of
from patience import PATIENCE, wait_until
from report_runs import EVIL
from tiny_translation import SOURCES, save

TOKEN = "a-token-that-only-tests-know"


def make_run(path: Path, model: MaskedModel | None = None, kernel=None, **settings) -> Run:
    """Make a run folder by a model that any process can load by its name."""
    model = model or load("untrained", "cpu")
    given = {"schedule": Schedule(epochs=6), "chains": 3, "length": 8, "thin": 1} | settings
    if "texts" in given:
        del given["length"]
    return sample(
        model, kernel or Metropolis(Raw(), delayed=DelayedAcceptance(2)), out=path, **given
    )


def make_expert_run(path: Path) -> Run:
    """Make a run folder of chains that experts judge, too, and that change their lengths."""
    energy = parse_energy("norm+2*edit+3*contains('river', 'bridge')")
    moves = (Span(sizes=(1, 2)), Resize())
    kernel = Mixture(tuple(Metropolis(energy, one, delayed=DelayedAcceptance(1)) for one in moves))
    return make_run(path, kernel=kernel, texts=["the river is long"], length_prior="none")


def make_runs(folder: Path) -> Path:
    """Make a folder of runs: by Metropolis-Hastings, Gibbs, a translation, and two that lack much.

    `untraced` has no tokens of each epoch, `broken` no manifest that can be read.
    """
    runs = folder / "runs"
    make_run(runs / "mh")
    make_run(runs / "gibbs", kernel=Gibbs(), chains=1)
    shutil.copytree(runs / "mh", runs / "untraced")
    (runs / "untraced" / "tokens.npy").unlink()
    (runs / "broken").mkdir()
    (runs / "broken" / "manifest.json").write_text(f'{{"signature": "{EVIL}"')
    models = save(folder / "models" / "tiny")
    translator = load(models, "cpu")
    settings = {"out": runs / "translated", "source": ModelSource(str(models))}
    translate(translator, SOURCES, TranslationMethod("mh", epochs=4, force_accept=2), **settings)
    return runs


class ServedRuns:
    """The pages, served by a process that is ended with the test."""

    def __init__(self, runs: Path, home: Path) -> None:
        context = multiprocessing.get_context("forkserver")
        context.set_forkserver_preload(["maskov.ui.viewer.server"])
        ours, theirs = context.Pipe(duplex=False)
        self.process = context.Process(target=_serve, args=(runs, home, theirs), daemon=True)
        self.process.start()
        theirs.close()
        assert ours.poll(PATIENCE), "the server did not start"
        self.port = ours.recv()
        self.address = f"http://127.0.0.1:{self.port}/t/{TOKEN}/"
        ours.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.join()


def _serve(runs: Path, home: Path, pipe) -> None:
    from maskov.ui.viewer.runs import Player, RunList
    from maskov.ui.viewer.server import LiveRuns, create_app, listen, server_of

    opened, _ = listen("127.0.0.1", 0)
    pipe.send(opened.getsockname()[1])
    run_list = RunList([runs], home)
    live = LiveRuns(home, "cpu")
    server_of(create_app(run_list, Player("cpu"), live, token=TOKEN)).run(sockets=[opened])


# An application on a real port of this process, and raw connections to it.


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
        wait_until(lambda: self._server.started)
        return self

    def __exit__(self, *_):
        self._closing.close()
        self._server.should_exit = True
        self._thread.join(PATIENCE)
        assert not self._thread.is_alive()

    def connect(self, sent: bytes = b"") -> socket.socket:
        """Open a connection and send some bytes; it is closed with the server."""
        connection = socket.create_connection(("127.0.0.1", self.port), PATIENCE)
        self._closing.callback(connection.close)
        connection.sendall(sent)
        return connection

    def get(self, path: str = "/") -> tuple[int, bytes]:
        """Ask for a page; return its status and content."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE)
        try:
            connection.request("GET", path)
            response = connection.getresponse()
            return response.status, response.read()
        finally:
            connection.close()
