"""Moves: where a chain might go next, with both directions' exact probabilities."""

from maskov.moves.base import MaskedConditional, Move
from maskov.moves.site import ORDERS, LowestConfidence, Site, Sweep
from maskov.moves.windows import INSERT_DELETE, WINDOWS, Resize, Span, Window

__all__ = [
    "INSERT_DELETE",
    "ORDERS",
    "WINDOWS",
    "LowestConfidence",
    "MaskedConditional",
    "Move",
    "Resize",
    "Site",
    "Span",
    "Sweep",
    "Window",
]
