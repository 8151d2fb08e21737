"""One option: how the command line spells it and what it means."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Option:
    """An option of the command line with its help, in one of the panels.

    It annotates a field of a dataclass. Commands make an option of each such field, and functions
    in Python take a keyword of its name.
    """

    name: str
    text: str
    panel: str
    short: str | None = None
    also: str | None = None  # another name for it, which a field of science uses


# In lower case where it annotates a field.
option = Option
# The panel of the options that a newcomer needs; the others are "Advanced".
FIRST = "Options"
# The help of --remove-smoothing, which several commands have.
SMOOTHING = "label smoothing of the model's training, to be removed from its conditionals"
