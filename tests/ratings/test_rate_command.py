"""`maskov rate` as a user calls it."""

from __future__ import annotations

import json
import re
import socket
import sys

import pytest

from maskov.cli import main
from maskov.ui.ratings import Answer, Study
from rating_server import Server


@pytest.fixture
def call(capfd, monkeypatch, tmp_path):
    """Run `maskov rate` among files; return its exit code, output and errors."""
    for name in ("first", "second", "third"):
        (tmp_path / f"{name}.txt").write_text("".join(f"{name} {n} .\n" for n in range(9)))
    monkeypatch.chdir(tmp_path)

    def run(*words):
        capfd.readouterr()
        with pytest.raises(SystemExit) as ended:
            main(["rate", *(str(word) for word in words)])
        out, err = capfd.readouterr()
        return ended.value.code or 0, out, err

    return run


@pytest.fixture
def refused(call):
    def run(*words):
        code, out, err = call(*words)
        assert (code, out) == (2, "")
        assert err.startswith("maskov: ")
        assert err.count("\n") == 1
        return err

    return run


NEW = ["new", "study", "--runs", "first.txt", "second.txt", "third.txt", "--per-run", "4"]


def test_a_study_from_beginning_to_end(call, tmp_path):
    code, out, err = call(*NEW, "--seed", 3, "--raters", "anna", "ben")
    assert code == 0
    assert "12 texts, 4 of each of 3 runs" in err
    links = re.findall(r"^/r/([\w-]{32})/  (anna|ben)$", out, re.M)
    assert [name for _, name in links] == ["anna", "ben"]

    code, out, _ = call("rater", "study", "eve")
    assert code == 0
    assert re.fullmatch(r"/r/[\w-]{32}/\n", out)
    code, again, err = call("rater", "study", "eve")
    assert (code, again) == (0, out)
    assert "already a rater" in err

    code, out, _ = call("report", "study")
    assert code == 0
    assert "–" in out
    assert not re.search(r"\d\.\d", out)  # no ratings, no numbers

    study = Study.open("study")
    with study.store() as store:
        for item in study.items:
            store.save(Answer("anna", item.id, 3, 2))
            store.save(Answer("ben", item.id, 1 + item.id % 4, 2))
    code, out, err = call("report", "study", "--json", "--csv", "out.csv")
    assert code == 0
    found = json.loads(out)
    assert [condition["ratings"] for condition in found["conditions"]] == [8, 8, 8]
    assert found["conditions"][0]["fluency"] == {"value": 2.0, "low": 2.0, "high": 2.0}
    assert found["raters"] == {"anna": 12, "ben": 12, "eve": 0}
    assert found["fluency_alpha"] is None
    assert found["coherence_alpha"] is not None
    assert len((tmp_path / "out.csv").read_text().splitlines()) == 25

    code, out, err = call("report", "study")
    assert re.search(r"second +\d\.\d\d \[\d\.\d\d, \d\.\d\d\] +2\.00 \[2\.00, 2\.00\] +4/4", out)
    assert "bootstrap over items" in err


def test_the_served_study_is_there_and_a_taken_port_is_one_sentence(call, refused):
    _, out, _ = call(*NEW, "--raters", "anna")
    token = out.split("/")[2]
    with Server("study") as server:
        assert server.request("GET", f"/r/{token}/study")[0] == 200
        assert server.request("GET", "/r/wrong/study")[0] == 404
        assert not any("warning" in line for line in server.said)
        assert "in use" in refused("serve", "study", "--port", server.port)


def test_an_address_for_others_is_warned_of(call, capfd, monkeypatch):
    call(*NEW)
    from maskov.ui.web import serving

    served = []
    monkeypatch.setattr(serving, "serve", lambda app, opened: served.append((opened, app)))
    code, _, err = call("serve", "study", "--host", "0.0.0.0", "--port", 0)
    assert code == 0
    assert "warning: '0.0.0.0' can be reached from other machines" in err
    assert "nobody can rate yet" in err
    code, _, err = call("serve", "study", "--port", 0)
    assert "warning" not in err
    shields = [app.user_middleware[0].kwargs for _, app in served]
    assert shields == [{"loopback": False}, {"loopback": True}]
    for opened, _ in served:
        assert isinstance(opened, socket.socket)
        opened.close()


def test_what_is_wrong_is_one_sentence(refused, tmp_path):
    assert "two runs" in refused("new", "study", "--runs", "first.txt", "first.txt")
    assert "has only 9 texts" in refused("new", "study", "--runs", "first.txt")
    assert "no valid name" in refused(*NEW, "--raters", " ")
    assert not (tmp_path / "study").exists()
    for words in (["rater", "study", "anna"], ["serve", "study"], ["report", "study"]):
        assert "is no study" in refused(*words)


def test_without_the_extra_one_is_told_what_to_install(refused, call, monkeypatch):
    call(*NEW)
    for name in [name for name in sys.modules if name.startswith("maskov.ui.ratings.serv")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "fastapi", None)
    monkeypatch.setitem(sys.modules, "uvicorn", None)
    assert "pip install '.[serve]'" in refused("serve", "study")
