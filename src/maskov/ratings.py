"""Blind human ratings of texts: tasks for Label Studio or CSV, and the results of the answers.

`export` draws texts of several conditions, mixes and numbers them. The condition of each number is
in the key only, which raters must not see. `load` reads the answers with the key.
"""

from __future__ import annotations

import csv
import hashlib
import io
import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np
from jinja2 import Environment

from maskov.errors import refuse, refusing
from maskov.runs.files import read_text, write_file
from maskov.version import __version__

RESAMPLES = 2000
_FORMAT = 2
# Errors raised by reading a file of another layout.
_DAMAGE = (AttributeError, LookupError, TypeError, ValueError, OverflowError, RecursionError)

# The paper (Table 6) uses 4-point Likert scales and gives no wording; this is ours.
SCALES = {
    "coherence": (
        "Does it make sense as a whole?",
        "No sense: the words add up to no meaning",
        "Little sense: parts mean something, the whole does not",
        "Mostly sense: one sees what is meant, but something jars",
        "Full sense: clear and consistent throughout",
    ),
    "fluency": (
        "Is it well-formed, sense aside?",
        "Broken: hardly any of it is grammatical",
        "Rough: several mistakes, or hard to read",
        "Nearly right: a slip or an odd phrase",
        "Flawless: as a careful writer would put it",
    ),
}

# How Label Studio shows a text; aliases make the answers "1" to "4".
_CONFIG = """<View>
  <Text name="text" value="$text" valueType="text"/>
{% for scale, question, points in scales %}
  <Header value="{{ scale | capitalize }}: {{ question }}"/>
  <Choices name="{{ scale }}" toName="text" choice="single-radio" required="true">
{% for words, number, key in points %}
    <Choice value="{{ number }}. {{ words }}" alias="{{ number }}" hotkey="{{ key }}"/>
{% endfor %}
  </Choices>
{% endfor %}
  <TextArea name="comment" toName="text" placeholder="Comment" maxSubmissions="1"/>
</View>
"""


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

    conditions: list[Condition]
    raters: dict[str, int]
    coherence_alpha: float | None
    fluency_alpha: float | None
    signature: str
    rows: list[dict[str, str | int]]

    def write_csv(self, path: str | Path) -> None:
        """Write every rating with its condition and text."""
        table = _table("rater item condition line text coherence fluency comment", self.rows)
        write_file(Path(path), table.encode("utf-8", "replace"), folders=True)


def export(
    out: str | Path,
    texts: Mapping[str, Sequence[str]],
    form: str = "label-studio",
    *,
    key: str | Path | None = None,
    per_run: int = 120,
    seed: int = 0,
    raters: int = 1,
) -> list[Path]:
    """Write a blind study of `per_run` texts of each condition, and its key; return the files.

    `texts` maps the name of a condition to its texts. `form` is "label-studio" (`tasks.json` and
    `config.xml`) or "csv" (a file for each of `raters`, each in a different order). The key is
    next to the folder `out` unless `key` says where.
    """
    out = Path(out)
    key = Path(key) if key is not None else out.with_name(f"{out.name}.key.json")
    refuse(
        (form not in ("label-studio", "csv"), f"--format '{form}' is not label-studio or csv."),
        (
            raters < 1 or (raters > 1 and form == "label-studio"),
            "--raters is the number of csv files, 1 or more.",
        ),
        (
            out.resolve() in key.resolve().parents,
            f"'{key}' is in '{out}', which raters get; keep the key elsewhere.",
        ),
        *((one.exists(), f"'{one}' already exists; choose another name.") for one in (out, key)),
    )
    for name, found in texts.items():
        # Skipping empty texts silently would flatter their condition. JSON can spell half of a
        # character, which no file or page can hold.
        refuse(
            *(
                (
                    not text.strip() or any("\ud800" <= letter <= "\udfff" for letter in text),
                    f"line {line} of '{name}' is empty or not Unicode text; remove it.",
                )
                for line, text in enumerate(found, 1)
            ),
            (
                not 1 <= per_run <= len(found),
                f"'{name}' has {len(found)} texts: --per-run must be 1 to that.",
            ),
        )
    drawn = [
        {"condition": name, "line": place + 1, "text": texts[name][place]}
        for name in texts
        for place in _shuffled(range(len(texts[name])), seed, "draw", name)[:per_run]
    ]
    items = [{"item": n, **one} for n, one in enumerate(_shuffled(drawn, seed, "mix"), 1)]
    # From the texts alone: what raters see must not depend on the names of conditions.
    study = "s" + hashlib.sha256(json.dumps([i["text"] for i in items]).encode()).hexdigest()[:12]
    shown = [{"item": one["item"], "text": one["text"], "study": study} for one in items]
    files = {key: _json({
        "format": _FORMAT, "maskov": __version__, "study": study, "seed": seed, "per_run": per_run,
        "conditions": list(texts), "items": items,
    })}  # fmt: skip
    if form == "label-studio":
        files[out / "tasks.json"] = _json([{"data": one} for one in shown])
        keys = {"coherence": "1234", "fluency": "qwer"}
        files[out / "config.xml"] = (
            Environment(autoescape=True, trim_blocks=True)
            .from_string(_CONFIG)
            .render(
                scales=[
                    (scale, question, list(zip(points, "1234", keys[scale], strict=True)))
                    for scale, (question, *points) in SCALES.items()
                ]
            )
        )
    else:
        files[out / "questions.txt"] = "\n".join(
            f"{scale}: {question}\n"
            + "".join(f"{n}  {words}\n" for n, words in enumerate(points, 1))
            for scale, (question, *points) in SCALES.items()
        )
        for number in range(1, raters + 1):
            order = _shuffled(shown, seed, "rater", str(number))
            files[out / f"rater-{number}.csv"] = _table(
                "item text coherence fluency comment study", order
            )
    for path, content in files.items():
        write_file(path, content.encode("utf-8", "replace"), folders=True)
    return list(files)


def load(
    files: Sequence[str | Path], key: str | Path, seed: int = 0, resamples: int = RESAMPLES
) -> Ratings:
    """Read answers, from Label Studio's JSON export or CSV; `seed` is that of the bootstrap."""
    study, per_run, names, items = _read_key(Path(key))
    given: dict[tuple[int, str], dict[str, Any]] = {}
    for file in map(Path, files):
        for of_study, rater, item, points, comment in _read_answers(file):
            refuse(
                (
                    of_study != study or item not in items,
                    f"'{file}' rates item {item} of another study than '{key}'.",
                ),
                (
                    not all(point in ("1", "2", "3", "4") for point in points),
                    f"'{file}': item {item} of '{rater}' lacks two ratings of 1 to 4.",
                ),
                ((item, rater) in given, f"'{file}': '{rater}' rates item {item} twice."),
            )
            coherence, fluency = map(int, points)
            given[item, rater] = {
                "rater": rater, "item": item, "coherence": coherence, "fluency": fluency,
                "comment": comment, **items[item],
            }  # fmt: skip
    rows = [given[place] for place in sorted(given)]
    of_condition = {name: [row for row in rows if row["condition"] == name] for name in names}
    return Ratings(
        conditions=[
            Condition(
                name=name,
                items=per_run,
                rated=len({row["item"] for row in own}),
                ratings=len(own),
                raters=len({row["rater"] for row in own}),
                coherence=mean(_by_item(own, "coherence"), seed, resamples),
                fluency=mean(_by_item(own, "fluency"), seed, resamples),
            )
            for name, own in of_condition.items()
        ],
        raters=dict(sorted(Counter(row["rater"] for row in rows).items())),
        coherence_alpha=ordinal_alpha(_by_item(rows, "coherence")),
        fluency_alpha=ordinal_alpha(_by_item(rows, "fluency")),
        signature=f"study:{study}|mean:each-rating-once|interval:95%,bootstrap-over-items,"
        f"percentile,n={resamples},seed={seed}|alpha:krippendorff-ordinal|version:{__version__}",
        rows=rows,
    )


def mean(items: Sequence[Sequence[int]], seed: int, resamples: int = RESAMPLES) -> Mean:
    """Return the mean of all ratings, and its interval by a percentile bootstrap over items.

    Items are drawn with all their ratings, because ratings of one item are correlated. The interval
    covers other texts of the same condition, rated by the same raters.
    """
    if not items:
        return Mean(None)
    sums = np.array([sum(ratings) for ratings in items], dtype=np.float64)
    counts = np.array([len(ratings) for ratings in items], dtype=np.float64)
    value = float(sums.sum() / counts.sum())
    if len(items) < 2:
        return Mean(value)
    even = np.full(len(items), 1 / len(items))
    drawn = np.random.default_rng(seed).multinomial(len(items), even, size=resamples)
    low, high = np.quantile((drawn @ sums) / (drawn @ counts), [0.025, 0.975])
    return Mean(value, float(low), float(high))


def ordinal_alpha(items: Iterable[Sequence[int]]) -> float | None:
    """Return Krippendorff's alpha for ordinal ratings of items, of which some may be missing.

    Alpha is 1 − D_o / D_e (Krippendorff 2011, "Computing Krippendorff's Alpha-Reliability"). Every
    item rated m ≥ 2 times adds its ordered pairs of ratings to a coincidence table, each with
    weight 1 / (m − 1), so that every rating counts once. D_o is the mean squared distance of the
    observed pairs, D_e that of pairs drawn from all ratings. The distance between ranks c < k is
    the number of ratings from c to k, counting those at c and k by half.

    1 is perfect agreement, 0 agreement by chance. None if no item was rated twice or all ratings
    are equal, where alpha is undefined.
    """
    paired = [list(ratings) for ratings in items if len(ratings) > 1]
    values = sorted({rating for ratings in paired for rating in ratings})
    if len(values) < 2:
        return None
    place = {value: number for number, value in enumerate(values)}
    coincidences = np.zeros((len(values), len(values)))
    for ratings in paired:
        counts = np.bincount([place[rating] for rating in ratings], minlength=len(values))
        # No rating is paired with itself.
        coincidences += (np.outer(counts, counts) - np.diag(counts)) / (len(ratings) - 1)
    totals = coincidences.sum(axis=0)
    middles = np.cumsum(totals) - totals / 2
    distances = (middles[:, None] - middles[None, :]) ** 2
    expected = (np.outer(totals, totals) - np.diag(totals)) / (totals.sum() - 1)
    return float(1 - (coincidences * distances).sum() / (expected * distances).sum())


def to_cell(value: str | int) -> str | int:
    """Return a value; text with ' in front if a spreadsheet could take it for a formula.

    A full-width sign begins a formula in some languages' versions of spreadsheets.
    """
    marked = isinstance(value, str) and (
        value[:1] in ("\t", "\r", "\n", "'") or value.lstrip()[:1] in tuple("=+-@＝＋－＠")
    )
    return f"'{value}" if marked else value


def _by_item(rows: Iterable[Mapping[str, Any]], scale: str) -> list[list[int]]:
    """Return the ratings of each rated item; rows are in the order of items."""
    return [
        [row[scale] for row in group] for _, group in groupby(rows, key=lambda row: row["item"])
    ]


def _shuffled(things: Iterable[Any], seed: int, *purpose: str) -> list[Any]:
    """Shuffle by hashes of the indices: the same on any machine and Python version."""
    ranked = (
        (hashlib.sha256(json.dumps([seed, *purpose, place]).encode()).digest(), thing)
        for place, thing in enumerate(things)
    )
    return [thing for _, thing in sorted(ranked, key=lambda pair: pair[0])]


def _json(value: Any) -> str:
    return json.dumps(value, indent=1, ensure_ascii=False) + "\n"


def _table(columns: str, rows: Iterable[Mapping[str, Any]]) -> str:
    """Return CSV; all texts are quoted, so that no other separator splits them."""
    file = io.StringIO(newline="")
    writer = csv.writer(file, quoting=csv.QUOTE_NONNUMERIC)
    names = columns.split()
    writer.writerow(names)
    writer.writerows([to_cell(row.get(name, "")) for name in names] for row in rows)
    return "\ufeff" + file.getvalue()  # by which spreadsheets know UTF-8


def _read_key(path: Path) -> tuple[str, int, list[str], dict[int, dict[str, Any]]]:
    """Return the name of the study, its texts of a condition, its conditions and its items."""
    with refusing(f"'{path}' is not the key of a study of this version.", OSError, *_DAMAGE):
        data = json.loads(read_text(path))
        names = [str(name) for name in data["conditions"]]
        items = {
            int(one["item"]): {
                "condition": names[names.index(one["condition"])],
                "line": int(one["line"]),
                "text": str(one["text"]),
            }
            for one in data["items"]
        }
        refuse((data["format"] != _FORMAT, "another version"), kind=ValueError)
        return str(data["study"]), int(data["per_run"]), names, items


# Study, rater, item, points of both scales, and comment.
_Answer = tuple[str, str, int, list[str], str]


def _read_answers(file: Path) -> list[_Answer]:
    with refusing(
        f"'{file}' is not readable CSV (UTF-8), or JSON as Label Studio exports it (not JSON-MIN).",
        OSError,
        csv.Error,
        *_DAMAGE,
    ):
        content = read_text(file).removeprefix("\ufeff")
        if file.suffix == ".json":
            return [answer for task in json.loads(content) for answer in _of_task(task)]
        return list(_of_csv(content, file.stem))


def _of_task(task: dict[str, Any]) -> Iterable[_Answer]:
    """Return each annotator's latest answer to a task of Label Studio; skipping it is none."""
    latest = {}
    for annotation in sorted(task["annotations"], key=lambda one: str(one.get("updated_at"))):
        if not annotation.get("was_cancelled"):
            by = annotation["completed_by"]
            rater = str(by.get("email") or by["id"]) if isinstance(by, dict) else str(by)
            given = {one["from_name"]: one["value"] for one in annotation["result"]}
            points = ["".join(given.get(scale, {}).get("choices", [])) for scale in SCALES]
            latest[rater] = (
                task["data"]["study"],
                rater,
                int(task["data"]["item"]),
                points,
                "\n".join(given.get("comment", {}).get("text", [])),
            )
    return latest.values()


def _of_csv(content: str, name: str) -> Iterator[_Answer]:
    """Yield the answers of rows that are not empty; the rater is a column, or the file's `name`."""
    # Spreadsheets choose the separator by language.
    separator = max(",;\t", key=content.partition("\n")[0].count)
    for row in csv.DictReader(io.StringIO(content, newline=""), delimiter=separator):
        points = [row[scale].strip() for scale in SCALES]
        if any(points):
            rater = (row.get("rater") or "").strip() or name
            yield row["study"], rater, int(row["item"]), points, row.get("comment") or ""
