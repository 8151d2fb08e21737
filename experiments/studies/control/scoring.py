"""Score rewritings as the published comparison does, and their fluency by the judge.

BLEU is sacreBLEU's, of lower-cased text; `hamming` counts the words changed in rewritings as long
as their source. Who gives the labels is a choice: the bag of words for tuning, the published
evaluator for the page alone.
"""

from __future__ import annotations

import importlib.util
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from experiments.lib.bleu import bleu_error, paired_difference, sentence_counts
from experiments.studies.control.data import LABELS
from maskov.energies import Autoregressive
from maskov.evaluation import Estimate, mean, ratio

Halves = tuple[list[str], list[str]]  # of the negative and of the positive lines


class Labeller(Protocol):
    """What gives texts one of the two labels."""

    def predict(self, texts: Sequence[str]) -> list[str]:
        """Return the label of each text."""


class Evaluator:
    """The published evaluator, loaded from its own file; it takes no part in tuning."""

    def __init__(self, tool: Path, data: Path) -> None:
        spec = importlib.util.spec_from_file_location("yelp_eval", tool)
        if spec is None or spec.loader is None or not tool.is_file():
            raise SystemExit(f"'{tool}' not found: give --evaluator, the path of yelp_eval.py")
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        self._evaluator: Any = module.Evaluator(data / "acc_yelp.bin")

    def predict(self, texts: Sequence[str]) -> list[str]:
        """Return the label of each text, or nothing where it knows no word."""
        return [(self._evaluator.label(text) or "").removeprefix("__label__") for text in texts]


class Judge:
    """The judge of fluency; each distinct text is scored once."""

    def __init__(self, folder: Path) -> None:
        self._model = Autoregressive(str(folder))
        self._known: dict[str, tuple[float, int]] = {}

    def perplexity(self, texts: Sequence[str]) -> Estimate:
        """Return the perplexity per token, with its error over sentences."""
        values = self.negative_log_likelihood(texts)
        found = ratio(values[:, 0], values[:, 1])
        value, error = math.exp(found.value), found.standard_error
        return Estimate(value, None if error is None else value * error)

    def negative_log_likelihood(self, texts: Sequence[str]) -> np.ndarray:
        """Return −log p and the tokens of each text; an empty text has none."""
        new = [text for text in dict.fromkeys(texts) if text not in self._known]
        ids = [self._model.tokenise(text) for text in new]
        every = self._model.token_terms(ids) if ids else []
        for text, terms in zip(new, every, strict=True):
            self._known[text] = (float(terms.sum()), len(terms))
        return np.array([self._known[text] for text in texts])


@dataclass(frozen=True)
class Task:
    """Lines to be rewritten into the other label, with human rewritings if there are any."""

    sources: Halves
    references: Halves | None = None

    def first(self, counts: tuple[int, int]) -> Task:
        """Return the task of the first lines of each half."""
        return Task(
            _cut(self.sources, counts),
            None if self.references is None else _cut(self.references, counts),
        )


@dataclass(frozen=True)
class Scores:
    """What rewritings are like; accuracies and BLEU in percent."""

    accuracy: Estimate
    to_positive: float
    to_negative: float
    self_bleu: Estimate
    reference_bleu: Estimate | None
    hamming: float
    same_length: float
    unchanged: float
    perplexity: Estimate | None


def score(task: Task, outputs: Halves, labeller: Labeller, judge: Judge | None = None) -> Scores:
    """Score the rewritings of a task."""
    for number, (texts, sources) in enumerate(zip(outputs, task.sources, strict=True)):
        if len(texts) != len(sources):
            raise SystemExit(f"half {number}: {len(texts)} rewritings of {len(sources)} lines")
    hits = [_hits(labeller, outputs[number], LABELS[1 - number]) for number in (0, 1)]
    texts, sources = _flat(outputs), _flat(task.sources)
    pairs = [(text.split(), source.split()) for text, source in zip(texts, sources, strict=True)]
    same = [pair for pair in pairs if len(pair[0]) == len(pair[1])]
    changed = sum(sum(a != b for a, b in zip(*pair, strict=True)) for pair in same)
    return Scores(
        accuracy=_percent(np.concatenate(hits)),
        to_positive=100 * float(hits[0].mean()),
        to_negative=100 * float(hits[1].mean()),
        self_bleu=bleu(texts, sources),
        reference_bleu=None if task.references is None else bleu(texts, _flat(task.references)),
        hamming=changed / max(1, len(same)),
        same_length=len(same) / len(texts),
        unchanged=sum(one == other for one, other in pairs) / len(texts),
        perplexity=None if judge is None else judge.perplexity(texts),
    )


def bleu(texts: Sequence[str], references: Sequence[str]) -> Estimate:
    """Return sacreBLEU's score of lower-cased texts, with its error over sentences."""
    import sacrebleu

    found = sacrebleu.corpus_bleu(list(texts), [list(references)], lowercase=True, force=True)
    return Estimate(float(found.score), bleu_error(_counts(texts, references)))


def difference(
    task: Task, first: Halves, second: Halves, labeller: Labeller
) -> dict[str, Estimate]:
    """Return by how much the second system is better, with errors of paired sentences."""
    gains = np.concatenate(
        [
            _hits(labeller, second[number], LABELS[1 - number]).astype(float)
            - _hits(labeller, first[number], LABELS[1 - number])
            for number in (0, 1)
        ]
    )
    found = {"accuracy": _percent(gains)}
    compared = {"self_bleu": task.sources, "reference_bleu": task.references}
    for name, references in compared.items():
        if references is not None:
            counts = [_counts(_flat(texts), _flat(references)) for texts in (first, second)]
            found[name] = Estimate(*paired_difference(*counts))
    return found


def _hits(labeller: Labeller, texts: Sequence[str], label: str) -> np.ndarray:
    return np.array([found == label for found in labeller.predict(texts)])


def _percent(values: np.ndarray) -> Estimate:
    found = mean(values.astype(float))
    error = found.standard_error
    return Estimate(100 * found.value, None if error is None else 100 * error)


def _counts(texts: Sequence[str], references: Sequence[str]) -> list[list[int]]:
    lower = [[text.lower() for text in one] for one in (texts, references)]
    return sentence_counts([lower[0]], lower[1])


def _cut(halves: Halves, counts: tuple[int, int]) -> Halves:
    return halves[0][: counts[0]], halves[1][: counts[1]]


def _flat(halves: Halves) -> list[str]:
    return [*halves[0], *halves[1]]
