"""`maskov rate serve` as a process of its own, which can be killed, and a study for it to serve."""

from __future__ import annotations

import http.client
import json
import multiprocessing
import os
import re
import subprocess
import sys
from pathlib import Path

from maskov.ui.ratings import Study, make

# Names that stand nowhere else, so that finding one in what is served means a leak.
CONDITIONS = ("zebra-gibbs", "zebra-norm", "zebra-raw")


def make_study(folder: Path, per_run: int = 4, seed: int = 7):
    """Make a study of three conditions, one of them a run folder, one a .jsonl file."""
    run = folder / CONDITIONS[0]
    run.mkdir()
    lines = [[f"sentence {kind}{number} ." for number in range(10)] for kind in "ABC"]
    as_json = ["".join(json.dumps({"text": text}) + "\n" for text in texts) for texts in lines]
    (run / "samples.jsonl").write_text(as_json[0])
    (run / "manifest.json").write_text(json.dumps({"signature": "kernel:gibbs"}))
    (folder / f"{CONDITIONS[1]}.jsonl").write_text(as_json[1])
    (folder / f"{CONDITIONS[2]}.txt").write_text("".join(text + "\n" for text in lines[2]))
    sources = [run, folder / f"{CONDITIONS[1]}.jsonl", folder / f"{CONDITIONS[2]}.txt"]
    return make(folder / "study", sources, per_run, seed)


class Server:
    """`maskov rate serve` as a user starts it; `kill` is SIGKILL."""

    def __init__(self, study: Path, port: int = 0, host: str = "127.0.0.1") -> None:
        words = ["rate", "serve", str(study), "--port", str(port), "--host", host]
        self.process = subprocess.Popen(
            [sys.executable, "-c", "from maskov.cli import main; main()", *words],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            env=os.environ | {"OMP_NUM_THREADS": "1"},
        )
        self.said = []
        for line in self.process.stderr:
            self.said.append(line)
            found = re.search(r"listening on http://\S+:(\d+)", line)
            if found:
                self.port = int(found[1])
                break
        else:
            raise AssertionError(f"the server ended: {self.said}")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.kill()

    def kill(self) -> None:
        """End the process at once, with no chance to save anything."""
        self.process.kill()
        self.process.wait()
        self.process.stderr.close()

    def request(self, method: str, path: str, body: bytes | None = None, **headers: str):
        """Send a request as it stands; return its status and body."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=20)
        try:
            connection.request(method, path, body, headers)
            response = connection.getresponse()
            return response.status, response.read()
        finally:
            connection.close()

    def answer(self, token: str, **answer) -> int:
        """Post an answer; return the status."""
        body = json.dumps(answer).encode()
        path = f"/r/{token}/answers"
        return self.request("POST", path, body, **{"Content-Type": "application/json"})[0]


class ForkedServer(Server):
    """The same without the seconds that imports take, for tests that kill many."""

    def __init__(self, study: Path, port: int = 0) -> None:
        context = multiprocessing.get_context("forkserver")
        context.set_forkserver_preload(["maskov.ui.ratings.server", "maskov.ui.web.serving"])
        ours, theirs = context.Pipe(duplex=False)
        self.process = context.Process(target=_serve, args=(study, port, theirs), daemon=True)
        self.process.start()
        theirs.close()
        assert ours.poll(30), "the server did not start"
        self.port = ours.recv()
        ours.close()

    def kill(self) -> None:
        """End the process at once, with no chance to save anything."""
        self.process.kill()
        self.process.join()


def _serve(study: Path, port: int, pipe) -> None:
    from maskov.ui.ratings.server import create_app
    from maskov.ui.web.serving import listen, serve

    opened, _, loopback = listen("127.0.0.1", port)
    # The study is read before the port is told: a test may change its files from then on.
    app = create_app(Study.open(study), loopback=loopback)
    pipe.send(opened.getsockname()[1])
    serve(app, opened)
