"""Where the sequences of a run come from, and their layout."""

from __future__ import annotations

from collections.abc import Sequence

from maskov.config import Inputs
from maskov.errors import InputError
from maskov.models import MaskedModel
from maskov.models.conditional.lengths import choose_lengths
from maskov.models.conditional.model import ConditionalModel
from maskov.starts import Layout, draw_lengths


def inputs_of(
    model: MaskedModel,
    length: int | tuple[int, int],
    texts: Sequence[str] | None,
    templates: Sequence[str] | None,
    lengths: str,
    chains: int,
    seed: int,
) -> Inputs:
    """Describe the sequences of a run."""
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
        return Inputs(
            sources=tuple(model.sources.texts), lengths=lengths, chosen=tuple(map(tuple, chosen))
        )
    if lengths != "best":
        raise InputError(f"'{model.name}' predicts no lengths: drop `lengths`, give `length`.")
    if texts is not None:
        if not texts:
            raise InputError("there is no text to start from.")
        return Inputs(texts=tuple(texts))
    if templates is not None:
        if not templates:
            raise InputError("there is no template to fill.")
        return Inputs(templates=tuple(templates))
    shortest, longest = (length, length) if isinstance(length, int) else length
    draw_lengths(model, shortest, longest, 1, seed)  # refuses a range that is none
    return Inputs(length=(shortest, longest))


def layout_of(model: MaskedModel, inputs: Inputs, chains: int, seed: int) -> Layout:
    """Lay out the sequences."""
    if inputs.texts is not None:
        return Layout.of_texts(model, inputs.texts, chains)
    if inputs.templates is not None:
        return Layout.of_templates(model, inputs.templates, chains)
    if inputs.chosen is not None:
        return Layout.of_sources(model, inputs.chosen)
    assert inputs.length is not None
    shortest, longest = inputs.length
    return Layout.blank(model, draw_lengths(model, shortest, longest, chains, seed))
