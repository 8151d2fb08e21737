"""Where chains begin: all masked and filled at random, one greedy pass, or given texts.

Filling accepts every draw, so it is initialisation: it samples from no target.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch

from maskov.errors import InputError
from maskov.execution.loop import whole_epoch
from maskov.kernels import Gibbs
from maskov.models.base import MaskedModel
from maskov.models.scorer import Scorer
from maskov.moves import MaskedConditional, Site, Sweep
from maskov.random import CounterRng, Purpose, Rng
from maskov.types import Chains, Int, Tensor

STARTS = ("masked", "greedy")


@dataclass(frozen=True)
class Layout:
    """The sequences of a run before it begins: tokens, with the mask where nothing stands yet.

    `free` positions may change; `template` says which line of the user's input a chain is from.
    """

    tokens: list[list[int]]
    free: list[list[bool]]
    template: list[int]

    @classmethod
    def blank(cls, model: MaskedModel, lengths: Sequence[int]) -> Layout:
        """Lay out sequences of the given lengths, all masked."""
        return cls(
            [[model.mask_id] * length for length in lengths],
            [[True] * length for length in lengths],
            [0] * len(lengths),
        )

    @classmethod
    def of_templates(cls, model: MaskedModel, templates: Sequence[str], chains: int) -> Layout:
        """Lay out `chains` chains of each template; only its blanks are free."""
        tokens: list[list[int]] = []
        for line, text in enumerate(templates, 1):
            ids = read_text(model, text, f"template {line}", blanks=True)
            if model.mask_id not in ids:
                raise InputError(f"template {line} has no blank; write [MASK] where one may stand.")
            tokens += [ids] * chains
        return cls(
            tokens,
            [[token == model.mask_id for token in ids] for ids in tokens],
            [index // chains for index in range(len(tokens))],
        )

    @classmethod
    def of_texts(cls, model: MaskedModel, texts: Sequence[str], chains: int) -> Layout:
        """Lay out chains that start at given texts, taken in turn; every position is free."""
        ids = [read_text(model, text, f"text {line}") for line, text in enumerate(texts, 1)]
        if not ids:
            raise InputError("there is no text to start from.")
        tokens = [ids[index % len(ids)] for index in range(chains)]
        return cls(
            tokens,
            [[True] * len(sequence) for sequence in tokens],
            [index % len(ids) for index in range(chains)],
        )

    @classmethod
    def of_sources(cls, model: MaskedModel, lengths: Sequence[Sequence[int]]) -> Layout:
        """Lay out the targets of each source, all masked, of the given lengths."""
        blank = cls.blank(model, [length for row in lengths for length in row])
        lines = [line for line, row in enumerate(lengths) for _ in row]
        return replace(blank, template=lines)

    def chains(self, model: MaskedModel, rows: range, width: int) -> Chains:
        """Return some chains at their layout, before any step, padded to a width."""
        lengths = torch.tensor([len(self.tokens[row]) for row in rows])
        shape = (len(rows), width)
        tokens = torch.full(shape, model.mask_id)
        free = torch.zeros(shape, dtype=torch.bool)
        for place, row in enumerate(rows):
            tokens[place, : len(self.tokens[row])] = torch.tensor(self.tokens[row])
            free[place, : len(self.free[row])] = torch.tensor(self.free[row])
        return Chains.at(
            tokens,
            lengths,
            free,
            chain=torch.arange(rows.start, rows.stop),
            source=torch.tensor(self.template[rows.start : rows.stop]),
        )


def read_text(
    model: MaskedModel, text: str, what: str, blanks: bool = False, unknown: bool = False
) -> list[int]:
    """Tokenise a line and refuse what no chain may hold; `what` names it in the complaint."""
    if not text.isascii() and any("\ud800" <= sign <= "\udfff" for sign in text):
        raise InputError(f"{what} is not UTF-8 text.")
    ids = model.encode(text)
    if not ids:
        raise InputError(f"{what} is empty; give at least one word.")
    if not model.min_length <= len(ids) <= model.max_length:
        raise InputError(
            f"{what} has {len(ids)} tokens; '{model.name}' takes {_between(model)}. Shorten it or "
            "use another model."
        )
    if model.mask_id in ids and not blanks:
        raise InputError(f"{what} holds a mask; fill it in, or use `maskov infill`.")
    control = model.control_ids() - {model.mask_id}
    for token in ids:
        bad = token in control if unknown else token != model.mask_id and model.forbidden[token]
        if bad:
            word = model.token_strings([token])[0]
            raise InputError(
                f"{what} holds '{word}', a special or unknown token, which no sample may hold; "
                "use words of the model's vocabulary."
            )
    return ids


def draw_lengths(
    model: MaskedModel, shortest: int, longest: int, chains: int, seed: int
) -> list[int]:
    """Draw each chain's length evenly between two bounds."""
    if shortest > longest or shortest < 1:
        raise InputError(f"the length {shortest}:{longest} is no range; write 20 or 15:45.")
    if shortest < model.min_length or longest > model.max_length:
        asked = f"{shortest}" if shortest == longest else f"{shortest}:{longest}"
        raise InputError(f"length {asked} is out of range: '{model.name}' takes {_between(model)}.")
    chain = torch.arange(chains)
    uniform = CounterRng(seed).uniform(chain, torch.zeros_like(chain), Purpose.LENGTH)
    drawn: Int[Tensor, " chains"] = shortest + (uniform * (longest - shortest + 1)).long()
    return [int(length) for length in drawn]


def fill(
    chains: Chains, start: str, conditional: MaskedConditional, scorer: Scorer, rng: Rng
) -> Chains:
    """Fill every blank, by one random sweep (`masked`) or one greedy pass (`greedy`)."""
    if start not in STARTS:
        raise InputError(f"unknown start '{start}'; use one of {', '.join(STARTS)}.")
    if start == "greedy":
        everywhere = Sweep("left-to-right", block=chains.tokens.shape[1])
        kernel = Gibbs(Site(MaskedConditional(temperature=0), everywhere))
    else:
        kernel = Gibbs(Site(conditional, Sweep("random")))
    return whole_epoch(kernel, chains, scorer, rng)


def _between(model: MaskedModel) -> str:
    if model.min_length == model.max_length:
        return f"exactly {model.max_length} tokens"
    return f"{model.min_length} to {model.max_length} tokens"
