"""A blind study: texts of several conditions, drawn, mixed and numbered.

A study folder holds

    items.json       what raters see: numbered texts and the questions
    key.json         which condition each number belongs to, and how the texts were drawn
    ratings.sqlite   raters, their links and their answers

The server opens the first and the last only: it cannot reveal a condition it has not read.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, TypeVar

from maskov.errors import InputError
from maskov.runs.files import sync_folder, write_atomically
from maskov.ui.ratings.scales import SCALES, Scale
from maskov.ui.ratings.store import Store
from maskov.ui.ratings.texts import Source, read_source
from maskov.version import __version__

T = TypeVar("T")
_FORMAT = 1
# How a file that is no study's fails to be read as one.
_DAMAGE = (KeyError, TypeError, ValueError, OverflowError, RecursionError)


@dataclass(frozen=True)
class Item:
    """A text under the number that raters' answers refer to."""

    id: int
    text: str


@dataclass(frozen=True)
class Key:
    """Where the texts came from: what raters must not see."""

    per_run: int
    conditions: tuple[str, ...]
    condition_of: dict[int, str]


@dataclass(frozen=True)
class Study:
    """What raters see, without a word on where it comes from."""

    path: Path
    seed: int
    items: tuple[Item, ...]
    scales: tuple[Scale, ...]

    @classmethod
    def open(cls, path: str | Path) -> Study:
        """Open a study folder, leaving its key alone."""
        path = Path(path)
        data = _read(path, "items.json")
        try:
            return cls(
                path=path,
                seed=int(data["seed"]),
                items=tuple(Item(int(item["id"]), str(item["text"])) for item in data["items"]),
                scales=tuple(
                    Scale(
                        str(scale["name"]),
                        str(scale["question"]),
                        tuple((str(title), str(gloss)) for title, gloss in scale["points"]),
                    )
                    for scale in data["scales"]
                ),
            )
        except _DAMAGE as error:
            raise InputError(f"the items.json of the study '{path}' is damaged.") from error

    def key(self) -> Key:
        """Read which condition each text belongs to."""
        data = _read(self.path, "key.json")
        try:
            key = Key(
                per_run=int(data["per_run"]),
                conditions=tuple(str(each["name"]) for each in data["conditions"]),
                condition_of={int(item["id"]): str(item["condition"]) for item in data["items"]},
            )
        except _DAMAGE as error:
            raise InputError(f"the key.json of the study '{self.path}' is damaged.") from error
        if key.condition_of.keys() != {item.id for item in self.items}:
            raise InputError(f"key.json and items.json of '{self.path}' are not of one study.")
        return key

    def order(self, rater: str) -> list[Item]:
        """Return the items in this rater's own order, the same at every visit."""
        return _shuffled(self.items, self.seed, "rater", rater)

    def store(self) -> Store:
        """Open the answers."""
        return Store.open(self.path)

    def fingerprint(self) -> str:
        """Return a short hash of the texts, the questions and the key."""
        content = b"".join((self.path / name).read_bytes() for name in ("items.json", "key.json"))
        return hashlib.sha256(content).hexdigest()[:12]


def make(path: str | Path, runs: Sequence[str | Path], per_run: int, seed: int) -> Study:
    """Draw `per_run` texts of each run without replacement and mix them into a new study."""
    path = Path(path)
    if path.exists():
        raise InputError(f"'{path}' already exists; give a study another name.")
    if per_run < 1:
        raise InputError("--per-run must be 1 or more.")
    sources = [read_source(Path(run)) for run in runs]
    _check(sources, per_run)
    drawn = [
        {"condition": source.name, "line": index + 1, "text": source.texts[index]}
        for source in sources
        for index in _shuffled(range(len(source.texts)), seed, "draw", source.name)[:per_run]
    ]
    mixed = list(enumerate(_shuffled(drawn, seed, "mix"), 1))
    items = {
        "format": _FORMAT,
        "seed": seed,
        "scales": [asdict(scale) for scale in SCALES],
        "items": [{"id": number, "text": item["text"]} for number, item in mixed],
    }
    key = {
        "format": _FORMAT,
        "maskov": __version__,
        "seed": seed,
        "per_run": per_run,
        "conditions": [
            {
                "name": source.name,
                "source": str(source.path),
                "texts": len(source.texts),
                "signature": source.signature,
            }
            for source in sources
        ],
        "items": [
            {"id": number, "condition": item["condition"], "line": item["line"]}
            for number, item in mixed
        ],
    }
    _write(path, {"items.json": items, "key.json": key})
    return Study.open(path)


def _check(sources: Sequence[Source], per_run: int) -> None:
    if not sources:
        raise InputError("a study needs texts: give --runs.")
    names = [source.name for source in sources]
    for name in names:
        if names.count(name) > 1:
            raise InputError(f"two runs are called '{name}'; their names have to differ.")
    for source in sources:
        if len(source.texts) < per_run:
            raise InputError(
                f"'{source.path}' holds {len(source.texts)} texts; ask for no more with --per-run."
            )


def _shuffled(things: Iterable[T], seed: int, *purpose: str) -> list[T]:
    """Shuffle by hashes of the places: the same on any machine and in any version of Python."""

    def rank(place: int) -> bytes:
        return hashlib.sha256(json.dumps([seed, *purpose, place]).encode()).digest()

    listed = list(things)
    return [listed[place] for place in sorted(range(len(listed)), key=rank)]


def _write(path: Path, files: dict[str, dict[str, Any]]) -> None:
    """Make the folder whole before it gets its name; it is its owner's alone, for the links."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        unfinished = Path(tempfile.mkdtemp(prefix=f".{path.name}-", dir=path.parent))
        try:
            for name, content in files.items():
                text = json.dumps(content, indent=1, ensure_ascii=False) + "\n"
                write_atomically(unfinished / name, text.encode())
            Store.create(unfinished).close()
            os.rename(unfinished, path)
            sync_folder(path.parent)
        except BaseException:
            shutil.rmtree(unfinished, ignore_errors=True)
            raise
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise InputError(f"cannot make the study '{path}': {reason}.") from error


def _read(path: Path, name: str) -> dict[str, Any]:
    try:
        data = json.loads((path / name).read_bytes())
        written = data["format"]
    except (OSError, *_DAMAGE) as error:
        raise InputError(f"'{path}' is no study: it has no readable {name}.") from error
    if written != _FORMAT:
        raise InputError(f"'{path}' was made by another version of maskov ({str(written)[:20]!r}).")
    return dict(data)
