"""Where the sequences of a run come from, as plain data for its manifest, and their layout."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from maskov.errors import InputError
from maskov.models import MaskedModel
from maskov.models.conditional.lengths import choose_lengths
from maskov.models.conditional.model import ConditionalModel
from maskov.starts import Layout, draw_lengths


def origin_of(
    model: MaskedModel,
    length: int | tuple[int, int],
    texts: Sequence[str] | None,
    templates: Sequence[str] | None,
    lengths: str,
    chains: int,
    seed: int,
) -> dict[str, Any]:
    """Say in plain data where the sequences come from."""
    if texts is not None and templates is not None:
        raise InputError("chains start at texts or fill templates, not both.")
    if isinstance(model, ConditionalModel):
        if model.sources is None:
            raise InputError(
                f"'{model.name}' translates: use `maskov translate`, or `model.given(texts)`."
            )
        if texts is not None or templates is not None:
            raise InputError("translations start from their sources: drop texts and templates.")
        # Kept as they are: on another device a near tie could be decided otherwise.
        chosen = choose_lengths(model, lengths, chains, seed)
        return {"sources": list(model.sources.texts), "lengths": lengths, "chosen": chosen}
    if lengths != "best":
        raise InputError(f"'{model.name}' predicts no lengths: drop `lengths`, give `length`.")
    if texts is not None:
        return {"texts": list(texts)}
    if templates is not None:
        return {"templates": list(templates)}
    shortest, longest = (length, length) if isinstance(length, int) else length
    return {"length": [shortest, longest]}


def layout_of(model: MaskedModel, origin: dict[str, Any], chains: int, seed: int) -> Layout:
    """Lay out the sequences that an origin describes."""
    if "texts" in origin:
        return Layout.of_texts(model, origin["texts"], chains)
    if "templates" in origin:
        return Layout.of_templates(model, origin["templates"], chains)
    if "sources" in origin:
        return Layout.of_sources(model, origin["chosen"])
    shortest, longest = origin["length"]
    return Layout.blank(model, draw_lengths(model, shortest, longest, chains, seed))
