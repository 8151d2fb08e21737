"""Evaluation: how good and how varied texts are, each number with its uncertainty."""

from maskov.evaluation.report import Evaluation, evaluate, evaluate_run

__all__ = ["Evaluation", "evaluate", "evaluate_run"]
