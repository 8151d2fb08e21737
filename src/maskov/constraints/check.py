"""Refuse constraints that cannot be met, with the reason, before a run begins."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from maskov.constraints.base import Constraint, PartlyFilled
from maskov.constraints.contains import ContainsWords
from maskov.constraints.words import AvoidWords, Spelling, spellings
from maskov.errors import InputError
from maskov.models.base import MaskedModel
from maskov.models.conditional.model import ConditionalModel


def check_constraints(
    constraints: Sequence[Constraint],
    model: MaskedModel,
    sequences: PartlyFilled,
    resizable: bool,
    name: Callable[[int], str],
) -> None:
    """Refuse what the first sequences of a run cannot meet; `name` says what a sequence is."""
    if constraints and isinstance(model, ConditionalModel):
        raise InputError("translations take no constraints: drop them.")
    for constraint in constraints:
        constraint.check(model, sequences, resizable)
    _check_words(constraints, model)
    for constraint in constraints:
        wrong = (~constraint.possible(sequences, model)).nonzero().flatten()
        if wrong.numel():
            raise InputError(f"{name(int(wrong[0]))} {constraint.violation}.")


def _check_words(constraints: Sequence[Constraint], model: MaskedModel) -> None:
    """Refuse to contain and to avoid a word."""
    wanted = [w for one in constraints if isinstance(one, ContainsWords) for w in one.words]
    avoided = [w for one in constraints if isinstance(one, AvoidWords) for w in one.words]
    for word in wanted:
        for other in avoided:
            if all(
                any(_holds(ids, part) for part in spellings(model, other))
                for ids in spellings(model, word)
            ):
                raise InputError(
                    f"no sequence contains '{word}' and avoids '{other}': drop one of them."
                )


def _holds(ids: Spelling, part: Spelling) -> bool:
    return any(ids[i : i + len(part)] == part for i in range(len(ids) - len(part) + 1))
