"""Hard constraints: what sequences must or must not hold, kept by every proposal."""

from maskov.constraints.base import Constraint, PartlyFilled
from maskov.constraints.kinds import (
    AllowedTokens,
    AvoidWords,
    ContainsWords,
    MaxChanges,
    MaxEdits,
    check_words_agree,
)

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
