"""Evaluation: how good and how varied texts are, each number with its uncertainty."""

from maskov.evaluation.report import Evaluation, evaluate, evaluate_run
from maskov.evaluation.translation import Translation, compare

__all__ = ["Evaluation", "Translation", "compare", "evaluate", "evaluate_run"]
