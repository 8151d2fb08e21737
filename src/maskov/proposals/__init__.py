"""Proposals: where a chain might go next, with both directions' exact probabilities."""

from maskov.proposals.masked import MaskedConditional
from maskov.proposals.propose import Drawn, draw, propose

__all__ = ["Drawn", "MaskedConditional", "draw", "propose"]
