"""Proposals: where a chain might go next, with both directions' exact probabilities."""

from maskov.proposals.masked import MaskedConditional
from maskov.proposals.propose import propose

__all__ = ["MaskedConditional", "propose"]
