"""Evaluation of texts: perplexity, diversity, copies, and BLEU and chrF of translations."""

from maskov.evaluation.texts import Evaluation, evaluate, evaluate_run
from maskov.evaluation.translation import TranslationScores, compare

__all__ = ["Evaluation", "TranslationScores", "compare", "evaluate", "evaluate_run"]
