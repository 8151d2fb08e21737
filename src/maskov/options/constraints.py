"""Options for what every sample must meet."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

from maskov.options.option import option

if TYPE_CHECKING:
    from maskov.constraints import Constraint

CONSTRAINTS = "Advanced: constraints"
# What `--freeze` takes.
FREEZE = (
    "tokens of each text that stay: positions '1-25,40', words 'river, bridge', a regular "
    "expression 're:PATTERN', or a file with a line of characters for each text, '.' for a free "
    "token"
)


@dataclass(frozen=True)
class ConstraintOptions:
    """The options of constraints."""

    contains: Annotated[
        str | tuple[str, ...] | None,
        option("--contains", "words that every sample holds: 'river, bridge'", CONSTRAINTS),
    ] = None
    avoid: Annotated[
        str | tuple[str, ...] | None,
        option("--avoid", "words that no sample holds: 'very, C'", CONSTRAINTS),
    ] = None
    allow: Annotated[
        str | None,
        option("--allow", "tokens of positions, counted from 1: '30-35:AGST, 40:C'", CONSTRAINTS),
    ] = None
    max_changes: Annotated[
        int | None,
        option(
            "--max-changes",
            "maximum number of tokens changed in a starting text",
            CONSTRAINTS,
            also="--max-mutations",
        ),
    ] = None

    def build_constraints(self, resizes: bool) -> tuple[Constraint, ...]:
        """Return what all samples must meet; `resizes` says that lengths change."""
        from maskov.constraints import (
            AllowedTokens,
            AvoidWords,
            ContainsWords,
            MaxChanges,
            MaxEdits,
        )

        found: list[Constraint] = []
        if words := words_of(self.contains):
            found.append(ContainsWords(words))
        if words := words_of(self.avoid):
            found.append(AvoidWords(words))
        if self.allow is not None:
            found.append(AllowedTokens.parse(self.allow))
        if self.max_changes is not None:
            limit = MaxEdits if resizes else MaxChanges
            found.append(limit(self.max_changes))
        return tuple(found)


def words_of(given: str | tuple[str, ...] | None) -> tuple[str, ...]:
    """Read words that are separated by commas, or that are given one by one."""
    if not isinstance(given, str):
        return given or ()
    return tuple(word.strip() for word in given.split(","))
