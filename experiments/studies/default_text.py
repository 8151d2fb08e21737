"""What text the default of `sample` gives, compared with held-out text of the same length.

    python -m experiments.studies.default_text --only default draws --out results/default
    python -m experiments.studies.default_text --only raw --out results/default
    python -m experiments.studies.default_text --training sentences.txt --out results/default

Each call adds the rows it is asked for. `recipes.clean` writes the training text, in which copies
are looked for: sentences that share eight or more words in a row with it. The classifier is a
logistic regression that tells samples from held-out sentences; 0.5 is chance.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

import maskov
from experiments.studies.default_target import COMPARED, LENGTH, distinct, judged
from experiments.studies.energies import told_apart
from experiments.studies.evidence import HELD_OUT
from maskov.config import DEFAULT_ENERGY

DRAWS = DEFAULT_ENERGY.split("+")[0]
COPIED = 8  # words in a row
_RESAMPLED = 200
_JUDGE = "wiki-judge"
# What is compared: a name for people, the model, and how it is sampled.
ROWS: dict[str, tuple[str, str, dict[str, Any]]] = {
    "default": ("the default target", "wiki-any", {"epochs": 20}),
    "draws": ("independent draws of its ordered fill", "wiki-any", {"energy": DRAWS}),
    "raw": (
        "E_raw, spans, 1,000 passes (the earlier default)",
        "wiki-small",
        {"energy": "raw", "passes": 1000},
    ),
}


def resampled(texts: int, figure: Callable[[np.ndarray], float]) -> list[float]:
    """Return a figure of texts and its standard error, over texts that are drawn again."""
    rng = np.random.default_rng(0)
    again = [figure(rng.integers(texts, size=texts)) for _ in range(_RESAMPLED)]
    return [figure(np.arange(texts)), float(np.std(again))]


def share_of(yes: float, texts: int) -> list[float]:
    """Return a share of texts and its standard error."""
    return [yes, float(np.sqrt(yes * (1 - yes) / texts))]


def measured(texts: list[str], real: list[str], copies: list[bool] | None) -> dict[str, Any]:
    """Return the measures of texts, each with its standard error."""
    rows = judged(texts, _JUDGE)
    losses = rows[:, 0] / rows[:, 1]
    rng, compared = np.random.default_rng(0), min(COMPARED, len(texts))
    # Fewer texts have more different pairs, so every row compares as many.
    pairs = [
        distinct([texts[one] for one in rng.choice(len(texts), compared, replace=False)])
        for _ in range(_RESAMPLED)
    ]
    # Held-out text is told from itself: one half from the other.
    mine, theirs = (slice(0, None, 2), slice(1, None, 2)) if texts == real else (slice(None),) * 2
    known = judged(real, _JUDGE)
    told = told_apart(texts[mine], real[theirs], losses[mine], (known[:, 0] / known[:, 1])[theirs])

    def ratio(above: int, below: int) -> Callable[[np.ndarray], float]:
        return lambda one: float(rows[one, above].sum() / rows[one, below].sum())

    loss = ratio(0, 1)
    found = {
        "perplexity": resampled(len(texts), lambda one: float(np.exp(loss(one)))),
        "spread": resampled(len(texts), lambda one: float(losses[one].std())),
        "repeated": resampled(len(texts), ratio(2, 3)),
        "distinct_2": [float(np.mean(pairs)), float(np.std(pairs))],
        "classifier": share_of(told, 2 * len(texts[mine])),
    }
    return found if copies is None else found | {"copied": share_of(np.mean(copies), len(texts))}


def words_of(text: str) -> list[str]:
    """Return the words of a text as the training text spells them, without marks."""
    return "".join(sign if sign.isalnum() else " " for sign in text.lower()).split()


def copied(rows: dict[str, list[str]], training: Path) -> dict[str, list[bool]]:
    """Return for each text whether it shares eight words in a row with the training text."""
    runs = {
        name: [
            {tuple(w[i : i + COPIED]) for i in range(len(w) - COPIED + 1)}
            for w in map(words_of, texts)
        ]
        for name, texts in rows.items()
    }
    wanted = {run for texts in runs.values() for text in texts for run in text}
    seen = set()
    with training.open(encoding="utf-8") as file:
        for line in file:
            words = words_of(line)
            for place in range(len(words) - COPIED + 1):
                run = tuple(words[place : place + COPIED])
                if run in wanted:
                    seen.add(run)
    return {name: [bool(text & seen) for text in texts] for name, texts in runs.items()}


def page(found: dict[str, Any]) -> str:
    """Write the table."""
    columns = {
        "perplexity": ("judge perplexity", 1),
        "spread": ("its spread (log)", 2),
        "repeated": ("repeated words", 3),
        "distinct_2": ("distinct-2", 3),
        "classifier": ("told from held-out text", 2),
        "copied": ("copies", 3),
    }
    lines = [
        "# What text the default gives",
        "",
        f"Sentences of {LENGTH} tokens, each ± one standard error. wiki-judge is the judge; the "
        "spread is the standard deviation of a sentence's nats per token. Repeated words stand "
        "earlier in the same sentence. Distinct-2 is the share of different pairs of words in "
        f"{COMPARED} sentences. A classifier (logistic regression) tells samples from held-out "
        "sentences; 0.5 is chance, and of held-out text it tells one half from the other. Copies "
        f"are sentences that share {COPIED} or more words in a row with the training text. Each "
        "sentence comes from a chain of its own.",
        "",
        "| | texts | " + " | ".join(title for title, _ in columns.values()) + " |",
        "|---" * (len(columns) + 2) + "|",
    ]
    for key, row in found.items():
        name = f"{ROWS[key][0]}, {ROWS[key][1]}" if key in ROWS else key
        cells = [
            "{:.{digits}f} ± {:.{digits}f}".format(*row["measures"][one], digits=digits)
            if one in row["measures"]
            else ""
            for one, (_, digits) in columns.items()
        ]
        lines.append(f"| {name} | {len(row['texts'])} | " + " | ".join(cells) + " |")
    commands = [line.strip() for line in (__doc__ or "").splitlines() if "python -m" in line]
    return "\n".join([*lines, "", "```console", *(f"$ {one}" for one in commands), "```", ""])


def main(arguments: Sequence[str] | None = None) -> None:
    """Sample what is asked for, measure everything, and write the document and its page."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--only", nargs="*", choices=ROWS, default=[], help="sample these rows")
    parser.add_argument("--chains", type=int, default=191)
    parser.add_argument("--training", type=Path, help="look for copies in this text")
    given = parser.parse_args(arguments)
    path, real = given.out / "text.json", HELD_OUT.read_text().splitlines()
    found: dict[str, Any] = {"held-out text": {"texts": real}}
    if path.exists():
        found |= json.loads(path.read_text())
    for name in given.only:
        _, model, options = ROWS[name]
        run = maskov.sample(
            model, chains=given.chains, length=LENGTH, thin=0, progress=False, **options
        )
        found[name] = {"signature": run.signature, "texts": [sample.text for sample in run]}
    if given.training:
        for name, copies in copied(
            {n: r["texts"] for n, r in found.items()}, given.training
        ).items():
            found[name]["copies"] = copies
    for row in found.values():
        row["measures"] = measured(row["texts"], real, row.get("copies"))
    given.out.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(found, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    (given.out / "text.md").write_text(page(found), encoding="utf-8")


if __name__ == "__main__":
    main()
