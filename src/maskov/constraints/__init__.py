"""Hard constraints: what sequences must or must not hold, kept by every proposal."""

from maskov.constraints.base import Constraint, PartlyFilled
from maskov.constraints.positions import AllowedTokens, MaxChanges, MaxEdits
from maskov.constraints.words import AvoidWords, ContainsWords, check_words_agree

__all__ = [
    "AllowedTokens",
    "AvoidWords",
    "Constraint",
    "ContainsWords",
    "MaxChanges",
    "MaxEdits",
    "PartlyFilled",
    "check_words_agree",
]
