"""What the server serves, to whom, and what it refuses."""

from __future__ import annotations

import json
import re
import sqlite3

import pytest
from starlette.testclient import TestClient

from maskov.ui.ratings import Answer
from maskov.ui.ratings.server import LONGEST_BODY, LONGEST_COMMENT, create_app
from maskov.ui.ratings.store import RatingStore
from rating_server import CONDITIONS, ForkedServer, make_study

GOOD = {"item": 1, "coherence": 2, "fluency": 3, "comment": "hm"}


class Rater:
    """A client with a link."""

    def __init__(self, study, name, client):
        with study.store() as store:
            self.token, _ = store.add_rater(name)
        self.client = client

    def get(self, path=""):
        return self.client.get(f"/r/{self.token}/{path}")

    def post(self, body, kind="application/json"):
        content = body if isinstance(body, bytes) else json.dumps(body, ensure_ascii=False).encode()
        headers = {"Content-Type": kind}
        return self.client.post(f"/r/{self.token}/answers", content=content, headers=headers)


@pytest.fixture
def study(tmp_path):
    return make_study(tmp_path)


@pytest.fixture
def client(study):
    with TestClient(create_app(study), base_url="http://127.0.0.1:8765") as client:
        yield client


@pytest.fixture
def anna(study, client):
    return Rater(study, "anna", client)


def test_nothing_that_is_served_names_a_condition(study, anna, tmp_path):
    key = (study.path / "key.json").read_text()
    assert all(name in key for name in CONDITIONS)
    for path in ("", "rate.css", "rate.js", "icon.svg", "study"):
        response = anna.get(path)
        assert response.status_code == 200
        served = response.text + repr(response.headers)
        for secret in (*CONDITIONS, "zebra", "kernel:", "condition", str(tmp_path)):
            assert secret not in served
    assert set(anna.get("study").json()) == {
        "rater", "scales", "longest_comment", "items", "answers",
    }  # fmt: skip
    assert all(set(item) == {"id", "text"} for item in anna.get("study").json()["items"])
    assert "condition" not in anna.post(GOOD).text


def test_the_server_does_without_the_key(study, client, anna):
    """What it has not read it cannot reveal."""
    (study.path / "key.json").unlink()
    with TestClient(create_app(study), base_url="http://localhost") as fresh:
        assert len(Rater(study, "ben", fresh).get("study").json()["items"]) == 12


def test_an_answer_comes_back_and_the_latest_counts(study, client, anna):
    ben = Rater(study, "ben", client)
    assert anna.post(GOOD).json() == {"item": 1}
    assert anna.post(GOOD | {"coherence": 4}).status_code == 200
    assert anna.get("study").json()["answers"] == [GOOD | {"coherence": 4}]
    assert ben.get("study").json()["answers"] == []
    assert anna.get("study").json()["rater"] == "anna"
    orders = [[item["id"] for item in rater.get("study").json()["items"]] for rater in (anna, ben)]
    assert orders[0] != orders[1]
    with study.store() as store:
        assert [answer.coherence for answer in store.history()] == [2, 4]


@pytest.mark.parametrize(
    ("change", "status"),
    [
        ({"coherence": 0}, 422),
        ({"coherence": 5}, 422),
        ({"fluency": "3"}, 422),
        ({"fluency": 3.0}, 422),
        ({"fluency": True}, 422),
        ({"fluency": None}, 422),
        ({"item": 13}, 422),
        ({"item": -1}, 422),
        ({"item": 10**40}, 422),
        ({"item": "1"}, 422),
        ({"comment": 7}, 422),
        ({"comment": "x" * (LONGEST_COMMENT + 1)}, 422),
        ({"comment": "x" * LONGEST_BODY}, 413),
        ({"rater": "ben"}, 422),
    ],
)
def test_what_is_no_answer_is_refused_and_not_kept(study, anna, change, status):
    response = anna.post(GOOD | change)
    assert response.status_code == status
    assert len(response.text) < 200
    with study.store() as store:
        assert store.history() == []


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b"null", b"\xff", b'{"item": 1}', b"[" * 8000])
def test_what_is_no_object_is_refused(anna, body):
    assert anna.post(body).status_code == 422


def test_the_longest_comment_fits_in_any_script(anna):
    for letter in ("x", '"', "\n", "€", "🦓"):
        assert anna.post(GOOD | {"comment": letter * LONGEST_COMMENT}).status_code == 200
    assert anna.get("study").json()["answers"][0]["comment"] == "🦓" * LONGEST_COMMENT


def test_only_json_is_read(anna):
    for kind in ("text/plain", "application/x-www-form-urlencoded", "multipart/form-data", ""):
        assert anna.post(GOOD, kind).status_code == 415
    assert anna.post(GOOD, "application/json; charset=utf-8").status_code == 200


def test_markup_is_data(anna):
    comment = "<script>alert(1)</script>"
    assert anna.post(GOOD | {"comment": comment}).status_code == 200
    response = anna.get("study")
    assert response.headers["content-type"] == "application/json"
    assert response.json()["answers"][0]["comment"] == comment
    script = anna.get("rate.js").text
    assert not re.search(r"innerHTML|outerHTML|insertAdjacent|document\.write|eval\(", script)


def test_without_the_right_token_there_is_nothing(anna):
    for token in ("", "x", anna.token[:-1], anna.token + "x", anna.token.upper(), "%00", "'--"):
        for path in ("", "rate.css", "rate.js", "icon.svg", "study"):
            assert anna.client.get(f"/r/{token}/{path}").status_code == 404
        # A good answer and a bad one, so that nobody can try out tokens by what they are told.
        for body in (json.dumps(GOOD), "{"):
            posted = anna.client.post(f"/r/{token}/answers", content=body)
            assert posted.status_code == 404
    for path in ("/", "/study", "/docs", "/openapi.json", "/redoc", "/static/rate.js", "/r", "/r/"):
        assert anna.client.get(path).status_code == 404


def test_a_link_without_its_last_slash_still_works(anna):
    response = anna.client.get(f"/r/{anna.token}")
    assert response.status_code == 200
    assert response.url.path == f"/r/{anna.token}/"
    assert anna.client.get("/r/wrong", follow_redirects=False).status_code == 404


def test_every_response_carries_the_headers(anna):
    responses = [anna.get(path) for path in ("", "rate.js", "study", "nothing")]
    responses += [anna.post(GOOD), anna.post(b"{"), anna.client.get("/")]
    responses += [anna.client.get("/", headers={"Host": "evil.example"})]
    responses += [anna.client.delete(f"/r/{anna.token}/")]
    assert [response.status_code for response in responses] == [
        200, 200, 200, 404, 200, 422, 404, 400, 405,
    ]  # fmt: skip
    for response in responses:
        policy = response.headers["content-security-policy"]
        assert policy.startswith("default-src 'none'; ")
        assert "frame-ancestors 'none'" in policy
        assert "unsafe" not in policy
        assert response.headers["x-content-type-options"] == "nosniff"
        assert response.headers["referrer-policy"] == "no-referrer"
        assert response.headers["cache-control"] == "no-store"
        assert "access-control-allow-origin" not in response.headers


def test_the_page_keeps_to_its_own_policy(anna):
    page = anna.get().text
    assert not re.search(r"<style|style=|\son\w+=|javascript:|https?:|//", page)
    assert re.findall(r"<script[^>]*>", page) == ['<script src="rate.js" defer>']
    for name in ("rate.css", "rate.js"):
        assert not re.search(r"https?:|@import|url\(", anna.get(name).text)


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("127.0.0.1", 200),
        ("127.0.0.1:8765", 200),
        ("localhost:1", 200),
        ("LOCALHOST", 200),
        ("[::1]:8765", 200),
        ("evil.example", 400),
        ("evil.example:8765", 400),
        ("127.0.0.1.evil.example", 400),
        ("localhost.evil.example", 400),
        ("192.168.0.7", 400),
        ("", 400),
        ("[::1", 400),
        ("localhost@evil.example", 400),
    ],
)
def test_on_loopback_only_loopback_names_are_served(study, anna, host, status):
    answer = anna.client.get(f"/r/{anna.token}/", headers={"Host": host})
    assert answer.status_code == status
    if status == 400:
        assert study.items[0].text not in answer.text


def test_elsewhere_any_name_will_do_but_not_without_a_token(study):
    with TestClient(create_app(study, loopback=False), base_url="http://rating.example") as client:
        anna = Rater(study, "anna", client)
        assert anna.get("study").status_code == 200
        assert client.get("/r/x/study").status_code == 404


def test_a_disk_that_takes_nothing_is_no_acknowledgement(anna, monkeypatch):
    def full(self, answer: Answer) -> None:
        raise sqlite3.OperationalError("database or disk is full")

    monkeypatch.setattr(RatingStore, "save", full)
    assert anna.post(GOOD).status_code == 503


def test_odd_requests_on_a_real_socket(study):
    with study.store() as store:
        token, _ = store.add_rater("anna")
    with ForkedServer(study.path) as server:
        for path in (
            "/../../etc/passwd",
            "/r/../../../../etc/passwd",
            f"/r/{token}/../../../../etc/passwd",
            f"/r/{token}/..%2f..%2fkey.json",
            f"/r/{token}/%2e%2e/key.json",
            f"/r/{token}/static/index.html",
            f"/r/{token}/key.json",
            f"/r/{token}/ratings.sqlite",
            f"/r/{token}//etc/passwd",
            "//etc/passwd",
        ):
            status, body = server.request("GET", path)
            assert status == 404
            assert body == b'{"detail":"Not Found"}'
        kind = {"Content-Type": "application/json"}
        path = f"/r/{token}/answers"
        # Announced, and in pieces without an announcement.
        assert server.request("POST", path, b"x" * 50_000, **kind)[0] == 413
        assert server.request("POST", path, iter([b"x" * 4000] * 5), **kind)[0] == 413
        assert server.request("GET", f"/r/{token}/", Host="evil.example")[0] == 400
        assert server.answer(token, **GOOD) == 200
