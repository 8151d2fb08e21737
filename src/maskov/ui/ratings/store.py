"""The answers of a study in SQLite, durably on disk before the page reports them as saved.

Answers are only added. The latest answer of a rater to an item counts; earlier ones stay as
history.
"""

from __future__ import annotations

import secrets
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from threading import Lock
from types import TracebackType
from typing import Any

from maskov.errors import InputError

_FILE = "ratings.sqlite"
_TIMEOUT = 30.0  # seconds to wait while another process writes
_LONGEST_NAME = 60
_TABLES = (
    """CREATE TABLE raters (
        name TEXT PRIMARY KEY,
        token TEXT NOT NULL UNIQUE,
        added TEXT NOT NULL
    ) STRICT""",
    """CREATE TABLE answers (
        id INTEGER PRIMARY KEY AUTOINCREMENT,
        rater TEXT NOT NULL REFERENCES raters,
        item INTEGER NOT NULL,
        coherence INTEGER NOT NULL CHECK (coherence BETWEEN 1 AND 4),
        fluency INTEGER NOT NULL CHECK (fluency BETWEEN 1 AND 4),
        comment TEXT NOT NULL,
        time TEXT NOT NULL
    ) STRICT""",
    "CREATE INDEX answers_of_raters ON answers (rater, item, id)",
)
# Queries for invalid rows, which a file from elsewhere may have.
_INVALID = (
    "SELECT 1 FROM raters WHERE typeof(name) != 'text' OR typeof(token) != 'text'",
    """SELECT 1 FROM answers WHERE typeof(rater) != 'text' OR typeof(item) != 'integer'
        OR typeof(coherence) != 'integer' OR coherence NOT BETWEEN 1 AND 4
        OR typeof(fluency) != 'integer' OR fluency NOT BETWEEN 1 AND 4
        OR typeof(comment) != 'text' OR typeof(time) != 'text'""",
)
_COLUMNS = "rater, item, coherence, fluency, comment, time"
_LATEST = f"""SELECT {_COLUMNS} FROM answers
    WHERE id IN (SELECT max(id) FROM answers GROUP BY rater, item)"""


@dataclass(frozen=True)
class Answer:
    """The rating of one item by one rater, and its time (UTC)."""

    rater: str
    item: int
    coherence: int
    fluency: int
    comment: str = ""
    time: str = ""


class RatingStore:
    """The answers of one study, safe for several threads and processes."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        self._lock = Lock()  # a connection takes one transaction at a time
        connection.execute("PRAGMA foreign_keys = ON")
        # With FULL, a commit returns after the log is on disk, so it survives a power loss.
        connection.execute("PRAGMA synchronous = FULL")

    @classmethod
    def create(cls, folder: Path) -> RatingStore:
        """Create an empty store."""
        store = cls(_connect(folder, "rwc"))
        store._connection.execute("PRAGMA journal_mode = WAL")
        for table in _TABLES:
            store._connection.execute(table)
        return store

    @classmethod
    def open(cls, folder: Path) -> RatingStore:
        """Open a store; a missing file is an error, because its answers would be missing."""
        try:
            connection = _connect(folder, "rw")
        except sqlite3.Error as error:
            raise InputError(f"'{folder}' is no study: it has no writable {_FILE}.") from error
        try:
            _check(connection)
            return cls(connection)
        except sqlite3.Error as error:
            connection.close()
            raise InputError(f"cannot read the {_FILE} of '{folder}': {error}.") from error

    def close(self) -> None:
        """Close the file."""
        self._connection.close()

    def __enter__(self) -> RatingStore:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def add_rater(self, name: str) -> tuple[str, bool]:
        """Return the rater's token and whether the rater is new."""
        check_name(name)
        with self._writing() as connection:
            row = connection.execute("SELECT token FROM raters WHERE name = ?", (name,)).fetchone()
            if row:
                return str(row[0]), False
            token = secrets.token_urlsafe(24)
            connection.execute("INSERT INTO raters VALUES (?, ?, ?)", (name, token, _now()))
            return token, True

    def raters(self) -> dict[str, str]:
        """Return the token of each rater, in the order they were added."""
        rows = self._read("SELECT name, token FROM raters ORDER BY rowid")
        return {str(name): str(token) for name, token in rows}

    def rater(self, token: str) -> str | None:
        """Return the rater of a token, or None."""
        given, found = token.encode(errors="replace"), None
        # All are compared, each in constant time: how long it takes says nothing of any token.
        for name, known in self.raters().items():
            if secrets.compare_digest(known.encode(errors="replace"), given):
                found = name
        return found

    def save(self, answer: Answer) -> None:
        """Add an answer; when this returns, it is on disk.

        Repeating the latest answer adds nothing, so that a page can safely resend it.
        """
        values = (answer.coherence, answer.fluency, answer.comment)
        with self._writing() as connection:
            latest = connection.execute(
                "SELECT coherence, fluency, comment FROM answers WHERE rater = ? AND item = ? "
                "ORDER BY id DESC LIMIT 1",
                (answer.rater, answer.item),
            ).fetchone()
            if latest != values:
                connection.execute(
                    f"INSERT INTO answers ({_COLUMNS}) VALUES (?, ?, ?, ?, ?, ?)",
                    (answer.rater, answer.item, *values, answer.time or _now()),
                )

    def answers(self, rater: str | None = None) -> list[Answer]:
        """Return the latest answer of each rater, or of one, to each item."""
        if rater is None:
            rows = self._read(f"{_LATEST} ORDER BY id")
        else:
            rows = self._read(f"{_LATEST} AND rater = ? ORDER BY id", rater)
        return [Answer(*row) for row in rows]

    def history(self) -> list[Answer]:
        """Return all answers, the oldest first."""
        return [Answer(*row) for row in self._read(f"SELECT {_COLUMNS} FROM answers ORDER BY id")]

    def _read(self, query: str, *values: str) -> list[Any]:
        with self._lock:
            return self._connection.execute(query, values).fetchall()

    @contextmanager
    def _writing(self) -> Iterator[sqlite3.Connection]:
        """Run a write transaction; nobody else writes meanwhile."""
        with self._lock:
            self._connection.execute("BEGIN IMMEDIATE")
            try:
                yield self._connection
                self._connection.execute("COMMIT")
            except BaseException:
                # A failed commit may have ended the transaction by itself.
                if self._connection.in_transaction:
                    self._connection.execute("ROLLBACK")
                raise


def check_name(name: str) -> None:
    """Refuse names that are empty, unprintable, too long or have outer spaces."""
    if not name.strip() or name != name.strip() or not name.isprintable():
        raise InputError(f"{name!r} is no valid name for a rater: give printable words.")
    if len(name) > _LONGEST_NAME:
        raise InputError(
            f"a rater's name may have at most {_LONGEST_NAME} characters, not {len(name)}."
        )


def _check(connection: sqlite3.Connection) -> None:
    """Refuse a damaged file, or one that was not created here.

    Views and triggers are refused: a hostile view may never end, and a trigger may write anything.
    """
    kinds = connection.execute("SELECT name, type FROM sqlite_schema").fetchall()
    tables = {name for name, kind in kinds if kind == "table"}
    if not {"raters", "answers"} <= tables or {kind for _, kind in kinds} & {"view", "trigger"}:
        raise sqlite3.DatabaseError("unexpected tables, views or triggers")
    if connection.execute("PRAGMA quick_check(1)").fetchone() != ("ok",):
        raise sqlite3.DatabaseError("the file is damaged")
    if any(connection.execute(query).fetchone() for query in _INVALID):
        raise sqlite3.DatabaseError("invalid answers")


def _connect(folder: Path, mode: str) -> sqlite3.Connection:
    connection = sqlite3.connect(
        f"{(folder / _FILE).absolute().as_uri()}?mode={mode}",
        uri=True,
        timeout=_TIMEOUT,
        isolation_level=None,  # explicit transactions
        check_same_thread=False,  # guarded by our own lock
    )
    connection.text_factory = lambda content: content.decode(errors="replace")
    return connection


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds")
