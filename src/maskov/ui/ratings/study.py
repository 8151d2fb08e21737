"""A blind study: texts of several conditions, sampled, shuffled and numbered.

A study folder has

    items.json       what raters see: numbered texts and the questions
    key.json         the condition of each text, and how the texts were sampled
    ratings.sqlite   raters, their links and their answers

The server never opens key.json, so it cannot reveal a condition.
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
from maskov.ui.ratings.store import RatingStore
from maskov.ui.ratings.texts import Source, read_source
from maskov.version import __version__

T = TypeVar("T")
_FORMAT = 1
# Errors raised by reading a file that is not a study's.
_DAMAGE = (KeyError, TypeError, ValueError, OverflowError, RecursionError)


@dataclass(frozen=True)
class Item:
    """A text and its number in the study."""

    id: int
    text: str


@dataclass(frozen=True)
class Key:
    """The condition of each text, hidden from raters."""

    per_run: int
    conditions: tuple[str, ...]
    condition_of: dict[int, str]


@dataclass(frozen=True)
class Study:
    """The part of a study that raters see."""

    path: Path
    seed: int
    items: tuple[Item, ...]
    scales: tuple[Scale, ...]

    @classmethod
    def open(cls, path: str | Path) -> Study:
        """Open a study folder without its key."""
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
        """Read the condition of each text."""
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
            raise InputError(f"key.json and items.json of '{self.path}' do not match.")
        return key

    def order(self, rater: str) -> list[Item]:
        """Return the items in this rater's order, the same at every visit."""
        return _shuffled(self.items, self.seed, "rater", rater)

    def store(self) -> RatingStore:
        """Open the answers."""
        return RatingStore.open(self.path)

    def fingerprint(self) -> str:
        """Return a short hash of the texts, the questions and the key."""
        content = b"".join((self.path / name).read_bytes() for name in ("items.json", "key.json"))
        return hashlib.sha256(content).hexdigest()[:12]


def make(path: str | Path, runs: Sequence[str | Path], per_run: int, seed: int) -> Study:
    """Create a study of `per_run` texts from each run, sampled without replacement and shuffled."""
    path = Path(path)
    if path.exists():
        raise InputError(f"'{path}' already exists; choose another name.")
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
            raise InputError(f"two runs are called '{name}'; their names must differ.")
    for source in sources:
        if len(source.texts) < per_run:
            raise InputError(
                f"'{source.path}' has only {len(source.texts)} texts; lower --per-run."
            )


def _shuffled(things: Iterable[T], seed: int, *purpose: str) -> list[T]:
    """Shuffle by hashes of the indices: the same on any machine and Python version."""

    def rank(place: int) -> bytes:
        return hashlib.sha256(json.dumps([seed, *purpose, place]).encode()).digest()

    values = list(things)
    return [values[place] for place in sorted(range(len(values)), key=rank)]


def _write(path: Path, files: dict[str, dict[str, Any]]) -> None:
    """Write the folder under a temporary name, readable by its owner only, then rename it."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        unfinished = Path(tempfile.mkdtemp(prefix=f".{path.name}-", dir=path.parent))
        try:
            for name, content in files.items():
                text = json.dumps(content, indent=1, ensure_ascii=False) + "\n"
                write_atomically(unfinished / name, text.encode())
            RatingStore.create(unfinished).close()
            os.rename(unfinished, path)
            sync_folder(path.parent)
        except BaseException:
            shutil.rmtree(unfinished, ignore_errors=True)
            raise
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise InputError(f"cannot create the study '{path}': {reason}.") from error


def _read(path: Path, name: str) -> dict[str, Any]:
    try:
        data = json.loads((path / name).read_bytes())
        version = data["format"]
    except (OSError, *_DAMAGE) as error:
        raise InputError(f"'{path}' is no study: it has no readable {name}.") from error
    if version != _FORMAT:
        raise InputError(f"'{path}' has another format version ({str(version)[:20]!r}).")
    return dict(data)
