"""Where the sequences of a run come from, and their layout."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from maskov.config import Inputs
from maskov.constraints import Constraint
from maskov.energies import Norm
from maskov.errors import InputError, refuse
from maskov.fasta import Record, spelled, with_blanks
from maskov.models import MaskedModel
from maskov.models.conditional import (
    DRAFTED,
    SEARCHED,
    ConditionalModel,
    bounds_of,
    choose_lengths,
)
from maskov.models.scorer import Scorer
from maskov.moves import MaskedConditional
from maskov.random import CounterRng
from maskov.starts import Layout, draw_lengths, fill
from maskov.texts import Mask, frozen_positions, read_text


def inputs_of(
    model: MaskedModel,
    length: tuple[int, int] | None,
    texts: Sequence[str | Record] | None,
    templates: Sequence[str | Record] | None,
    lengths: str,
    chains: int,
    seed: int,
    sampled: bool = False,
    frozen: str | Sequence[Mask] | None = None,
    scorer: Scorer | None = None,
) -> Inputs:
    """Describe the sequences of a run; `sampled` says that its moves change lengths.

    The `scorer` runs the passes of a search for lengths.
    """
    given = texts is not None
    refuse(
        (given and templates is not None, "chains start at texts or fill templates, not both."),
        (
            frozen is not None and not given,
            "frozen tokens are those of texts to start from (--start-text).",
        ),
        (given and not texts, "there is no text to start from."),
        (templates is not None and not templates, "there is no template to fill."),
    )
    if isinstance(model, ConditionalModel):
        if model.sources is None:
            raise InputError(
                f"'{model.name}' translates: use `maskov translate`, or `model.given(texts)`."
            )
        if templates is not None or frozen is not None:
            raise InputError("translations have no templates and no frozen tokens: drop them.")
        # Kept as they are: on another device a near tie could be decided otherwise.
        if texts is not None:
            lengths, chosen = DRAFTED, _draft_lengths(model, texts, chains)
        elif lengths == "searched":
            chosen = search_lengths(model, chains, scorer or Scorer(model))
        else:
            chosen = choose_lengths(model, lengths, chains, seed)
        return Inputs(
            sources=tuple(model.sources.texts),
            texts=None if texts is None else tuple(map(str, texts)),
            lengths=lengths,
            chosen=tuple(map(tuple, chosen)),
            bounds=tuple(bounds_of(model, chosen)) if sampled else None,
            sampled=sampled,
        )
    if lengths != "best":
        raise InputError(f"'{model.name}' predicts no lengths: drop `lengths`, give `length`.")
    if texts is not None:
        lines, names = named_texts(model, texts)
        held = frozen_positions(model, lines, frozen, names is not None)
        if not sampled:
            return Inputs(texts=lines, names=names, frozen=held)
        if held is not None and length is not None:
            raise InputError(
                "between frozen tokens each stretch has its own length: drop --length."
            )
        return Inputs(texts=lines, length=length, sampled=True, names=names, frozen=held)
    if templates is not None:
        lines, names = named_texts(model, templates, blanks=True)
        return Inputs(templates=lines, sampled=sampled, names=names)
    assert length is not None
    shortest, longest = length
    draw_lengths(model, shortest, longest, 1, seed)  # refuses what is not a range
    if sampled and shortest == longest:
        raise InputError(
            "moves that change the length need a range of lengths, such as 8:24 (--length 8:24)."
        )
    return Inputs(length=(shortest, longest), sampled=sampled)


def _draft_lengths(
    model: ConditionalModel, texts: Sequence[str | Record], chains: int
) -> list[list[int]]:
    """Return the lengths of the chains of each source, those of its draft."""
    assert model.sources is not None
    if len(texts) != len(model.sources.texts):
        raise InputError(
            f"there are {len(texts)} drafts of {len(model.sources.texts)} sources: give one of "
            "each."
        )
    drafts = enumerate(map(str, texts), 1)
    return [[len(read_text(model, text, f"draft {line}"))] * chains for line, text in drafts]


def named_texts(
    model: MaskedModel, lines: Sequence[str | Record], blanks: bool = False
) -> tuple[tuple[str, ...], tuple[str, ...] | None]:
    """Return texts as the model reads them, and their names if they are records of FASTA."""
    if not any(isinstance(line, Record) for line in lines):
        if not blanks:
            return tuple(map(str, lines)), None
        named = enumerate(map(str, lines), 1)
        return tuple(with_blanks(model, line, f"template {n}") for n, line in named), None
    texts, names = list[str](), list[str]()
    for line in lines:
        if not isinstance(line, Record):
            raise InputError("texts are all lines, or all records of FASTA.")
        texts.append(spelled(model, line, blanks))
        names.append(line.name)
        read_text(model, texts[-1], f"'{line.name}'", blanks)  # refused by its name
    return tuple(texts), tuple(names)


def layout_of(
    model: MaskedModel,
    inputs: Inputs,
    chains: int,
    seed: int,
    constraints: Sequence[Constraint] = (),
) -> Layout:
    """Lay out the sequences, with room for what constraints ask for."""
    return _layout(model, inputs, chains, seed).fitted(model, constraints)


def _layout(model: MaskedModel, inputs: Inputs, chains: int, seed: int) -> Layout:
    """Lay out the sequences."""
    if inputs.templates is not None:
        layout = Layout.of_templates(model, inputs.templates, chains, seed)
        if inputs.sampled and not layout.resizable:
            raise InputError(
                "no template has a blank of unknown length: write [MASK*] or [MASK{2,5}], or drop "
                "insert-delete and resize."
            )
        if layout.resizable and not inputs.sampled:
            raise InputError(
                "blanks of unknown length need moves that change the length: --moves "
                "site,span,insert-delete."
            )
        return layout
    chosen = None if inputs.chosen is None else [size for row in inputs.chosen for size in row]
    if inputs.texts is not None:
        layout = Layout.of_texts(model, inputs.texts, chains, inputs.frozen)
    elif inputs.chosen is not None:
        layout = Layout.of_sources(model, inputs.chosen)
    else:
        assert inputs.length is not None
        layout = Layout.blank(model, draw_lengths(model, *inputs.length, chains, seed))
    if chosen is not None and chosen != list(map(len, layout.tokens)):
        raise InputError("'inputs.chosen' are not the lengths of the drafts.")
    if inputs.bounds is not None:
        return layout.resized([[inputs.bounds[line]] for line in layout.template])
    return _with_bounds(model, layout, inputs) if inputs.sampled else layout


def _with_bounds(model: MaskedModel, layout: Layout, inputs: Inputs) -> Layout:
    """Let every chain have any length of the range, or from half its text's length to twice it.

    Between frozen tokens each stretch has one token at least and twice its own at most, or what is
    left of the model's length.
    """
    bounds = []
    for row, tokens in enumerate(layout.tokens):
        size, sizes = len(tokens), layout.stretches(row)
        if sum(sizes) < size:
            room = model.max_length - size
            bounds.append([(1, own + min(own, room * own // sum(sizes))) for own in sizes])
            continue
        usual = (max(model.min_length, (size + 1) // 2), min(model.max_length, 2 * size))
        fewest, most = inputs.length or usual
        if not fewest <= size <= most:
            raise InputError(
                f"text {layout.template[row] + 1} has {size} tokens, outside the length "
                f"{fewest}:{most} that chains may have."
            )
        bounds.append([(fewest, most)])
    resized = layout.resized(bounds)
    if resized.shortest < model.min_length:
        raise InputError(
            f"a text may shrink to {resized.shortest} tokens, '{model.name}' takes "
            f"{model.min_length} at least: freeze more, or drop insert-delete and resize."
        )
    return resized


# Sources whose candidates are held at once.
_AT_ONCE = 256


def search_lengths(model: ConditionalModel, chains: int, scorer: Scorer) -> list[list[int]]:
    """Return the lengths of the chains of each source: for all of them the best of a few.

    Mask-predict translates at each of the likeliest lengths; the one whose translation has the
    lowest E_norm per token is chosen, as mask-predict with several lengths does.
    """
    count = min(SEARCHED, model.max_length)
    tried = choose_lengths(model, "top", count, 0)
    layout = Layout.of_sources(model, tried)
    found: list[list[int]] = []
    for first in range(0, len(tried), _AT_ONCE):
        rows = range(first * count, min(first + _AT_ONCE, len(tried)) * count)
        width = max(len(layout.tokens[row]) for row in rows)
        blank = layout.chains(model, rows, width).to(model.device)
        filled = fill(blank, "mask-predict", MaskedConditional(), scorer, CounterRng(0)).sequences
        filled = replace(filled, pass_cache=scorer.cache(filled))
        energy = (Norm()(model, filled) / filled.lengths).view(-1, count)
        best = filled.lengths.view(-1, count).gather(1, energy.argmin(1, keepdim=True))
        found += [[int(length)] * chains for length in best.flatten().tolist()]
    scorer.check()
    return found
