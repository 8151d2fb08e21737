"""Moves: where a chain might go next, with both directions' exact probabilities."""

from maskov.moves.base import MaskedConditional, Move
from maskov.moves.kinds import (
    INSERT_DELETE,
    ORDERS,
    WINDOWS,
    LowestConfidence,
    Resize,
    Site,
    Span,
    Sweep,
    Window,
)

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
