"""Hard constraints: what sequences must or must not hold, kept by every proposal."""

from maskov.constraints.base import Constraint, PartlyFilled
from maskov.constraints.changes import MaxChanges, MaxEdits
from maskov.constraints.check import check_constraints
from maskov.constraints.contains import ContainsWords
from maskov.constraints.tokens import AllowedTokens
from maskov.constraints.words import AvoidWords

__all__ = [
    "AllowedTokens",
    "AvoidWords",
    "Constraint",
    "ContainsWords",
    "MaxChanges",
    "MaxEdits",
    "PartlyFilled",
    "check_constraints",
]
