"""Run folders made to keep their reader waiting, or to break its answers."""

import json
import os
import shutil
import sys
import threading

import pytest

from json_files import edited
from maskov.errors import RunError
from maskov.runs import manifest as manifest_module
from maskov.ui.viewer import runs as runs_module
from maskov.ui.viewer.runs import Player, RunList, id_of
from maskov.ui.viewer.server import LiveRuns, create_app
from mutations import unix_socket
from patience import PATIENCE
from view_runs import ThreadServer, make_run


@pytest.fixture(scope="module")
def good(tmp_path_factory):
    path = tmp_path_factory.mktemp("good") / "run"
    make_run(path, chains=1)
    return path


@pytest.fixture
def runs(good, tmp_path):
    """Make a folder with a good run and one, `odd`, for a test to spoil."""
    for name in ("good", "odd"):
        shutil.copytree(good, tmp_path / "runs" / name)
    return tmp_path / "runs"


@pytest.fixture
def server(runs, tmp_path):
    home = tmp_path / "made"
    app = create_app(RunList([runs], home), Player("cpu"), LiveRuns(home, "cpu"))
    with ThreadServer(app) as server:
        yield server


def told(server, path):
    status, content = server.get(path)
    return status, json.loads(content)


@pytest.mark.parametrize(
    ("name", "make"),
    [
        ("traces.npy", lambda path: path.symlink_to("/dev/zero")),
        ("traces.npy", os.mkfifo),
        ("tokens.npy", unix_socket),
    ],
)
def test_what_is_no_file_is_told_and_not_read(server, runs, name, make):
    (runs / "odd" / name).unlink(missing_ok=True)
    make(runs / "odd" / name)
    lines = {line["name"]: line for line in told(server, "/api/runs")[1]}
    assert "is not a regular file" in lines["odd"]["error"]
    assert lines["good"]["epochs_done"] == 6
    odd = id_of(runs / "odd")
    for path in ("", "/verdict", "/chains/0", "/chains/0/epochs/0"):
        status, answer = told(server, f"/api/runs/{odd}{path}")
        assert status == 422
        assert (runs / "odd" / name).name in answer["detail"]
    assert server.get(f"/report?id={odd}")[0] == 422
    # Once it is mended, it is read again.
    (runs / "odd" / name).unlink()
    for file in ("samples.jsonl", "traces.npy", "tokens.npy"):
        shutil.copy(runs / "good" / file, runs / "odd" / file)
    lines = {line["name"]: line for line in told(server, "/api/runs")[1]}
    assert "error" not in lines["odd"]
    (runs / "odd" / "manifest.json").unlink()
    os.mkfifo(runs / "odd" / "manifest.json")  # which is no run
    assert [line["name"] for line in told(server, "/api/runs")[1]] == ["good"]
    assert server.get(f"/api/runs/{odd}")[0] == 404


def test_reading_that_hangs_leaves_pages_and_the_live_run(server, runs, monkeypatch):
    """A disk may hang where no check can tell: requests for runs then wait, and no others."""
    let_go, begun = threading.Event(), threading.Semaphore(0)

    def hangs(path):
        begun.release()
        let_go.wait(2 * PATIENCE)
        raise RunError("no answer")

    monkeypatch.setattr(runs_module.Run, "open", hangs)
    odd = id_of(runs / "odd")
    try:
        for path in ["", "/chains/0"] * 30:  # more than all threads of the server
            request = f"GET /api/runs/{odd}{path} HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"
            server.connect(request.encode())
        assert [begun.acquire(timeout=PATIENCE) for _ in range(2)] == [True, True]
        for page in ("/", "/live", "/views.css", "/api/live", "/api/choices"):
            assert server.get(page)[0] == 200
    finally:
        let_go.set()


def test_a_failed_load_is_tried_again_by_the_next_request(server, runs, monkeypatch):
    load, calls = manifest_module.load, []

    def fails_first(*args, **options):
        calls.append(args)
        if len(calls) == 1:
            raise ImportError("cannot import name 'BertConfig' from 'transformers'")
        return load(*args, **options)

    monkeypatch.setattr(manifest_module, "load", fails_first)
    path = f"/api/runs/{id_of(runs / 'good')}/chains/0"
    assert [server.get(path)[0] for _ in range(2)] == [500, 200]


def test_half_of_a_character_is_refused_and_no_error(server, runs):
    """JSON can spell a lone surrogate, which UTF-8 cannot encode, and which no run of ours has."""
    odd = runs / "odd"
    lines = [json.loads(line) for line in (odd / "samples.jsonl").read_text().splitlines()]
    lines = [json.dumps({**line, "text": "text \udfff"}) for line in lines]
    (odd / "samples.jsonl").write_text("\n".join(lines) + "\n")
    status, answer = told(server, f"/api/runs/{id_of(odd)}")
    assert (status, "are damaged" in answer["detail"]) == (422, True)
    assert server.get(f"/report?id={id_of(odd)}")[0] == 422
    with edited(odd / "manifest.json") as manifest:
        manifest["notes"] = ["note \ud800"]
    status, answer = told(server, f"/api/runs/{id_of(odd)}")
    assert (status, "manifest" in str(answer)) == (422, True)


def test_parts_of_a_run_are_not_imported_unasked(server, runs, tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "evil_part.py").write_text("raise SystemExit('imported')\n")
    with edited(runs / "odd" / "manifest.json") as manifest:
        manifest["config"]["kernel"] = {"part": "evil_part:K", "arguments": [], "options": {}}
    odd = id_of(runs / "odd")
    assert told(server, f"/api/runs/{odd}")[0] == 200
    for path in ("/chains/0", "/chains/0/epochs/0"):
        status, answer = told(server, f"/api/runs/{odd}{path}")
        assert status == 422
        assert "--trust-parts" in answer["detail"]
    assert "evil_part" not in sys.modules
