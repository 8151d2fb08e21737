"""Proposals: where a chain might go next, with both directions' exact probabilities."""

from maskov.moves.conditional import MaskedConditional
from maskov.moves.site import Drawn, draw, propose

__all__ = ["Drawn", "MaskedConditional", "draw", "propose"]
