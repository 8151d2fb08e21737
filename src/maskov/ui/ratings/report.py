"""The results of a study: means with intervals for each condition, and agreement of raters."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from maskov.errors import InputError
from maskov.ui.ratings.agreement import ordinal_alpha
from maskov.ui.ratings.cells import to_cell
from maskov.ui.ratings.store import Answer
from maskov.ui.ratings.study import Study
from maskov.version import __version__

RESAMPLES = 2000
_LEVEL = 0.95
_COLUMNS = ("rater", "item", "condition", "text", "coherence", "fluency", "comment", "time")


@dataclass(frozen=True)
class Mean:
    """A mean of ratings and its 95 % interval; None without ratings.

    The mean of a single item has no interval: the bootstrap is over items.
    """

    value: float | None
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True)
class Condition:
    """The ratings of one condition; `items` of its texts are in the study, `rated` were rated."""

    name: str
    items: int
    rated: int
    ratings: int
    raters: int
    coherence: Mean
    fluency: Mean


@dataclass(frozen=True)
class Ratings:
    """The results of a study; `raters` maps each rater to a count of items, `rows` has them all."""

    study: str
    conditions: list[Condition]
    raters: dict[str, int]
    coherence_alpha: float | None
    fluency_alpha: float | None
    signature: str
    rows: list[dict[str, str | int]]

    def to_dict(self) -> dict[str, Any]:
        """Return a dict without the single ratings."""
        values = asdict(self)
        del values["rows"]
        return values

    def write_csv(self, path: str | Path) -> None:
        """Write the latest rating of each rater for each item.

        Texts are quoted, and those that could begin a formula have ' in front (`to_cell`).
        """
        try:
            # A lone surrogate cannot be encoded.
            with open(path, "w", encoding="utf-8", errors="replace", newline="") as file:
                # Quoted, so that a spreadsheet that separates by ; or tab splits none of them.
                writer = csv.DictWriter(file, _COLUMNS, quoting=csv.QUOTE_NONNUMERIC)
                writer.writeheader()
                writer.writerows(
                    {name: _cell(value) for name, value in row.items()} for row in self.rows
                )
        except OSError as error:
            reason = (error.strerror or str(error)).lower()
            raise InputError(f"cannot write '{path}': {reason}.") from error


def _cell(value: str | int) -> str | int:
    return to_cell(value) if isinstance(value, str) else value


def load(path: str | Path, seed: int = 0, resamples: int = RESAMPLES) -> Ratings:
    """Read a study and compute its results; `seed` is that of the bootstrap."""
    study = Study.open(path)
    key = study.key()
    with study.store() as store:
        raters, answers = list(store.raters()), store.answers()
    conditions = []
    for name in key.conditions:
        own = [answer for answer in answers if key.condition_of.get(answer.item) == name]
        conditions.append(
            Condition(
                name=name,
                items=key.per_run,
                rated=len({answer.item for answer in own}),
                ratings=len(own),
                raters=len({answer.rater for answer in own}),
                coherence=mean(_by_item(own, "coherence"), seed, resamples),
                fluency=mean(_by_item(own, "fluency"), seed, resamples),
            )
        )
    return Ratings(
        study=study.path.resolve().name,
        conditions=conditions,
        raters={name: sum(answer.rater == name for answer in answers) for name in raters},
        coherence_alpha=ordinal_alpha(_by_item(answers, "coherence")),
        fluency_alpha=ordinal_alpha(_by_item(answers, "fluency")),
        signature=_signature(study, seed, resamples),
        rows=_rows(study, key.condition_of, answers),
    )


def mean(items: Sequence[Sequence[int]], seed: int, resamples: int = RESAMPLES) -> Mean:
    """Return the mean of all ratings, and its interval by a percentile bootstrap over items.

    Items are drawn with all their ratings, because ratings of one item are correlated. The interval
    covers other texts of the same condition, rated by the same raters.
    """
    sums = np.array([sum(ratings) for ratings in items], dtype=np.float64)
    counts = np.array([len(ratings) for ratings in items], dtype=np.float64)
    if not len(items):
        return Mean(None)
    value = float(sums.sum() / counts.sum())
    if len(items) < 2:
        return Mean(value)
    generator = np.random.default_rng(seed)
    drawn = generator.multinomial(len(items), np.full(len(items), 1 / len(items)), size=resamples)
    means = (drawn @ sums) / (drawn @ counts)
    low, high = np.quantile(means, [(1 - _LEVEL) / 2, (1 + _LEVEL) / 2])
    return Mean(value, float(low), float(high))


def _by_item(answers: Sequence[Answer], scale: str) -> list[list[int]]:
    """Return the ratings of each rated item, in the order of item numbers."""
    ratings: dict[int, list[int]] = {}
    for answer in answers:
        ratings.setdefault(answer.item, []).append(getattr(answer, scale))
    return [ratings[item] for item in sorted(ratings)]


def _rows(
    study: Study, condition_of: dict[int, str], answers: Sequence[Answer]
) -> list[dict[str, str | int]]:
    texts = {item.id: item.text for item in study.items}
    return [
        asdict(answer) | {"condition": condition_of[answer.item], "text": texts[answer.item]}
        for answer in answers
    ]


def _signature(study: Study, seed: int, resamples: int) -> str:
    return "|".join(
        (
            f"study:{study.path.resolve().name}#{study.fingerprint()}",
            "mean:each-rating-once",
            f"interval:95%,bootstrap-over-items,percentile,n={resamples},seed={seed}",
            "alpha:krippendorff-ordinal",
            f"version:{__version__}",
        )
    )
