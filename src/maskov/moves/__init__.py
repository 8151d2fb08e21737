"""Moves: where a chain might go next, with both directions' exact probabilities."""

from maskov.moves.base import Move
from maskov.moves.conditional import MaskedConditional
from maskov.moves.positions import ORDERS, LowestConfidence, Positions, Sweep
from maskov.moves.resize import INSERT_DELETE, WINDOWS, Resize
from maskov.moves.site import Site
from maskov.moves.span import Span

__all__ = [
    "INSERT_DELETE",
    "ORDERS",
    "WINDOWS",
    "LowestConfidence",
    "MaskedConditional",
    "Move",
    "Positions",
    "Resize",
    "Site",
    "Span",
    "Sweep",
]
