"""Evaluation of texts: perplexity, diversity, copies, and BLEU and chrF of translations."""

from maskov.evaluation.report import Evaluation, evaluate, evaluate_run
from maskov.evaluation.translation import Translation, compare

__all__ = ["Evaluation", "Translation", "compare", "evaluate", "evaluate_run"]
