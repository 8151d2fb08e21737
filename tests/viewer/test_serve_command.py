"""`maskov serve` as a user calls it: addresses, tokens, folders, and what is refused."""

import re
import socket
import sys
from functools import partial
from types import SimpleNamespace
from urllib.parse import urlsplit

import pytest
from starlette.testclient import TestClient

from view_runs import make_run


@pytest.fixture(autouse=True)
def _here(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def served(monkeypatch):
    """Keep what would be served instead of serving it."""
    from maskov.ui.viewer import server

    kept = []

    def keep(app):
        kept.append(app)
        return SimpleNamespace(run=lambda sockets: sockets[0].close())

    monkeypatch.setattr(server, "server_of", keep)
    return kept


def test_a_run_a_folder_of_runs_or_none_is_served_on_loopback(call, served, tmp_path):
    make_run(tmp_path / "runs" / "one", chains=1)
    make_run(tmp_path / "other", chains=1)
    for words, count in (([], 1), (["other"], 2), (["runs", "other"], 2)):
        code, out, err = call("serve", *words, "--port", 0)
        assert code == 0
        link = re.fullmatch(r"http://127\.0\.0\.1:\d+/t/([\w-]{32})/\n", out)
        assert link
        assert link[1] not in err
        assert f"{count} run" in err
        assert "warning" not in err
    assert len(served) == 3


def test_other_users_of_this_machine_need_the_token_unless_told_otherwise(call, served):
    make_client = partial(TestClient, base_url="http://127.0.0.1:8764")
    code, out, _ = call("serve", "--port", 0)
    path = urlsplit(out.strip()).path
    with make_client(served.pop()) as client:
        for page in ("/", "/live", "/api/runs", "/api/choices", "/api/live", "/views.css"):
            assert client.get(page).status_code == 404
        assert client.post("/api/live", json={"model": "untrained"}).status_code == 404
        assert client.get(path).status_code == 200
        assert client.get(f"{path}api/runs").json() == []
    code, out, err = call("serve", "--port", 0, "--no-token")
    assert code == 0
    assert re.fullmatch(r"http://127\.0\.0\.1:\d+/\n", out)
    assert "warning: without a token every user of this machine" in err
    with make_client(served.pop()) as client:
        assert client.get("/api/runs").json() == []


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "10.0.0.1", "example.org", ""])
def test_no_address_is_served_that_other_machines_reach(refused, served, host):
    assert "ssh -L" in refused("serve", "--host", host, "--port", 0)
    assert not served


def test_what_is_wrong_is_one_sentence(refused, tmp_path):
    (tmp_path / "empty").mkdir()
    assert "is not a folder" in refused("serve", "nowhere")
    assert "has no runs" in refused("serve", "empty")
    assert "is not available" in refused("serve", "--device", "abacus")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        assert "in use" in refused("serve", "--port", taken.getsockname()[1])


def test_without_the_extra_one_is_told_what_to_install(refused, monkeypatch):
    for name in [name for name in sys.modules if re.match(r"maskov\.ui\.viewer\.", name)]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "fastapi", None)
    assert "pip install '.[serve]'" in refused("serve")
