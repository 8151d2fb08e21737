"""Answers survive: the latest counts, the history stays, and what was acknowledged is on disk."""

from __future__ import annotations

import sqlite3
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from http.client import HTTPException

import pytest

from maskov.errors import InputError
from maskov.ui.ratings import Answer, RatingStore
from rating_server import ForkedServer, make_study


@pytest.fixture
def store(tmp_path):
    with RatingStore.create(tmp_path) as made:
        yield made


def test_the_latest_answer_counts_and_the_others_stay(store):
    store.add_rater("anna")
    for answer in [(1, 2, ""), (3, 2, ""), (3, 2, ""), (3, 2, "hm"), (1, 2, "")]:
        store.save(Answer("anna", 5, *answer))
    store.save(Answer("anna", 6, 4, 4))
    assert [(a.item, a.coherence, a.comment) for a in store.answers()] == [(5, 1, ""), (6, 4, "")]
    # What was said twice in a row was said once.
    past = [(a.coherence, a.comment) for a in store.history() if a.item == 5]
    assert past == [(1, ""), (3, ""), (3, "hm"), (1, "")]


def test_raters_have_answers_and_tokens_of_their_own(store):
    anna, is_new = store.add_rater("anna")
    assert is_new
    ben, _ = store.add_rater("ben")
    assert len({anna, ben}) == 2
    assert min(len(anna), len(ben)) >= 32
    assert store.add_rater("anna") == (anna, False)
    assert [store.rater(token) for token in (anna, ben, "", anna[:-1])] == [
        "anna", "ben", None, None,
    ]  # fmt: skip
    store.save(Answer("anna", 1, 1, 1))
    store.save(Answer("ben", 1, 4, 4))
    assert [answer.coherence for answer in store.answers("ben")] == [4]
    assert len(store.answers()) == 2


@pytest.mark.parametrize("name", ["", " ", " anna", "an\nna", "a" * 61])
def test_names_that_cannot_be_shown_are_refused(store, name):
    with pytest.raises(InputError, match="name"):
        store.add_rater(name)


def test_the_file_itself_refuses_what_is_no_answer(store):
    store.add_rater("anna")
    for answer in [Answer("anna", 1, 0, 1), Answer("anna", 1, 1, 5), Answer("nobody", 1, 1, 1)]:
        with pytest.raises(sqlite3.IntegrityError):
            store.save(answer)
    assert store.history() == []
    store.save(Answer("anna", 1, 1, 1))  # and goes on
    assert len(store.history()) == 1


def test_commits_wait_for_the_disk(store, tmp_path):
    assert store._connection.execute("PRAGMA journal_mode").fetchone() == ("wal",)
    assert store._connection.execute("PRAGMA synchronous").fetchone() == (2,)  # FULL
    with RatingStore.open(tmp_path) as again:
        assert again._connection.execute("PRAGMA journal_mode").fetchone() == ("wal",)
        assert again._connection.execute("PRAGMA synchronous").fetchone() == (2,)


def test_a_missing_or_foreign_file_is_not_made_anew(tmp_path):
    with pytest.raises(InputError, match=r"no writable ratings\.sqlite"):
        RatingStore.open(tmp_path)
    assert not list(tmp_path.iterdir())
    (tmp_path / "ratings.sqlite").write_text("something else entirely, and long enough")
    with pytest.raises(InputError, match="cannot read"):
        RatingStore.open(tmp_path)


def test_many_threads_and_connections_lose_nothing(tmp_path):
    RatingStore.create(tmp_path).close()
    with RatingStore.open(tmp_path) as one, RatingStore.open(tmp_path) as other:
        names = [f"rater {number}" for number in range(6)]
        for name in names:
            one.add_rater(name)

        def rate(name):
            for item in range(20):
                (one if item % 2 else other).save(Answer(name, item, 1 + item % 4, 1))

        with ThreadPoolExecutor(len(names)) as pool:
            list(pool.map(rate, names))
        assert len(one.answers()) == len(other.history()) == 6 * 20


def test_a_server_killed_right_after_each_acknowledgement_loses_nothing(tmp_path):
    study = make_study(tmp_path)
    with study.store() as store:
        token, _ = store.add_rater("anna")
    acknowledged = []
    for item in range(1, 13):
        with ForkedServer(study.path) as server:
            given = {
                "item": item,
                "coherence": 1 + item % 4,
                "fluency": 2,
                "comment": f"no. {item}",
            }
            assert server.answer(token, **given) == 200
            server.kill()
        acknowledged.append(given)
        with study.store() as store:
            kept = [asdict(answer) for answer in store.answers()]
        assert [{name: answer[name] for name in given} for answer in kept] == acknowledged


def test_a_server_killed_amid_raters_keeps_what_each_was_told_is_saved(tmp_path):
    study = make_study(tmp_path, per_run=10)
    with study.store() as store:
        tokens = {name: store.add_rater(name)[0] for name in ("anna", "ben", "eve")}
    acknowledged = set()
    with ForkedServer(study.path) as server, ThreadPoolExecutor(len(tokens)) as pool:

        def rate(name):
            for item in range(1, 31):
                try:
                    status = server.answer(tokens[name], item=item, coherence=3, fluency=2)
                except (OSError, HTTPException):
                    return
                assert status == 200
                acknowledged.add((name, item))

        raters = [pool.submit(rate, name) for name in tokens]
        while len(acknowledged) < 20 and not all(rater.done() for rater in raters):
            time.sleep(0.001)
        server.kill()
        for rater in raters:
            rater.result()
    assert 20 <= len(acknowledged) < 90
    with study.store() as store:
        kept = {(answer.rater, answer.item) for answer in store.answers()}
    # An answer whose acknowledgement was cut off may be there or not; none that was told is lost.
    assert acknowledged <= kept
    assert len(kept - acknowledged) <= len(tokens)
