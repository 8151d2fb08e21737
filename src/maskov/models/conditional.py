"""A conditional masked LM: the masked conditionals of a target, given a source.

`given` sets the sources, runs the encoder once and keeps the keys and values that the decoder
reads. The result is a masked model like any other: each chain carries the index of its source, and
a pass runs only the decoder.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self

import torch

from maskov.config import ModelSource
from maskov.encoders import Encoder, LMHead, Memory, Reading
from maskov.errors import InputError, ModelError, refuse
from maskov.models.base import MaskedModel, coarse
from maskov.models.network import TranslationNetwork, decoder_of
from maskov.models.packed import PackedModel
from maskov.models.scorer import Batcher, token_budget
from maskov.models.tokens import forbidden_tokens, token_ids
from maskov.random import CounterRng, Purpose, categorical
from maskov.types import Float, Int, Tensor, inside


@dataclass(frozen=True)
class Sources:
    """Concatenated encoder states of source texts, and the scores of their target lengths.

    No text has more tokens than `longest`, which the host knows.
    """

    texts: tuple[str, ...]
    states: Float[Tensor, "tokens width"]
    starts: Int[Tensor, " texts"]
    sizes: Int[Tensor, " texts"]
    length_scores: Float[Tensor, "texts lengths"]
    longest: int

    @classmethod
    def encode(
        cls, network: TranslationNetwork, texts: Sequence[str], ids: Sequence[Sequence[int]]
    ) -> Sources:
        """Run the encoder over all texts, batched by length."""
        weight = network.words.weight
        device = weight.device
        sizes = torch.tensor([len(line) for line in ids], device=device)
        starts = sizes.cumsum(0) - sizes
        flat = torch.tensor([token for line in ids for token in line], device=device)
        states = weight.new_zeros((len(flat), weight.shape[1]))
        lengths = weight.new_zeros((len(ids), network.lengths.weight.shape[0]))

        def work(rows: Tensor, width: int) -> None:
            within = inside(sizes[rows], width)
            place = starts[rows][:, None] + torch.arange(width, device=device)
            source = flat[torch.where(within, place, 0)]
            memory, _, lengths[rows] = network.read(source, within)
            states[place[within]] = memory[:, 1:][within]

        bytes_per_token = 16 * weight.shape[1] * weight.dtype.itemsize
        Batcher(token_budget(bytes_per_token, device)).each(sizes, work)
        return cls(tuple(texts), states, starts, sizes, lengths, max(map(len, ids)))

    def only(self, index: Int[Tensor, " n"]) -> Sources:
        """Return some of the texts, in this order."""
        sizes = self.sizes[index]
        starts = sizes.cumsum(0) - sizes
        moved = torch.repeat_interleave(self.starts[index] - starts, sizes)
        states = self.states[moved + torch.arange(len(moved), device=index.device)]
        texts = tuple(self.texts[number] for number in index.tolist())
        return Sources(texts, states, starts, sizes, self.length_scores[index], self.longest)


# Bytes that the keys and values of all sources may take; larger ones are computed when needed.
_CPU_KEPT, _GPU_KEPT = 2**30, 2**34


class ConditionalModel(PackedModel):
    """An encoder-decoder masked LM, its tokenizer and, once given, the sources it reads."""

    network: TranslationNetwork
    encoder: Encoder  # the decoder

    def __init__(
        self, network: TranslationNetwork, tokenizer: Any, source: ModelSource | str
    ) -> None:
        self._named(source)
        refuse(
            (
                network.shape.causal,
                f"'{self.name}' is autoregressive and has no masked conditionals; use it with "
                "--method ar.",
            ),
            kind=ModelError,
        )
        self.network = network.eval().requires_grad_(False)
        end = [int(tokenizer.eos_token_id)] if network.shape.target_end else []
        self._use(network, tokenizer, network.words.weight, [], end)
        self.head = LMHead(network.words.weight)
        self.forbidden = forbidden_tokens(tokenizer, network.shape.vocabulary).to(self.device)
        self.max_length = network.shape.longest - len(end)
        self.encoder = decoder_of(network)
        self.sources: Sources | None = None
        self._memory: Memory | None = None

    # Sources.

    def given(self, texts: Sequence[str], lines: Sequence[int] | None = None) -> ConditionalModel:
        """Return this model with these sources, encoded.

        Errors name them by `lines`, by default 1, 2, ...
        """
        refuse((not texts, "nothing to translate."))
        ids = source_ids(self, texts, lines)
        changed = self.changed(sources=Sources.encode(self.network, texts, ids))
        for model in (changed, changed.exact):
            if isinstance(model, ConditionalModel):
                model._keep_memory()
        return changed

    def _keep_memory(self) -> None:
        """Keep the keys and values of all sources, if there is room for them."""
        sources, shape = self.sources, self.network.shape
        assert sources is not None
        size = 2 * shape.width * shape.decoder_layers * self.dtype.itemsize * len(sources.states)
        # Recorded rounds need all of them.
        self.packs = size <= (_CPU_KEPT if self.device.type == "cpu" else _GPU_KEPT)
        self._memory = self._memory_of(sources) if self.packs else None

    def _memory_of(self, sources: Sources) -> Memory:
        crosses = (block.cross for block in self.encoder.blocks if block.cross is not None)
        with coarse(self.coarse_products):
            layers = tuple(cross.memory(sources.states.to(self.dtype)) for cross in crosses)
        return Memory(layers, sources.starts, sources.sizes)

    # Scores.

    def reading(self, source: Int[Tensor, " passes"] | None) -> Reading:
        """Return the keys and values that passes of these sources read."""
        sources = self.sources
        if sources is None or source is None:
            raise InputError(
                f"'{self.name}' is a translation model: give sources with `maskov translate` or "
                "`model.given(texts)`."
            )
        memory = self._memory
        if memory is None:
            distinct, source = torch.unique(source, return_inverse=True)
            memory = self._memory_of(sources.only(distinct))
        # A GPU does not wait to learn the longest of these sources.
        longest = memory.sizes[source].max() if source.device.type == "cpu" else sources.longest
        return Reading(memory, source, int(longest))

    def length_scores(
        self, source: Int[Tensor, " n"] | None = None
    ) -> Float[Tensor, "texts lengths"]:
        """Return the log-probability of each target length, from 0 content tokens up.

        There is a row for each source, or for each of those asked for.
        """
        assert self.sources is not None
        scores = self.sources.length_scores
        scores = (scores if source is None else scores[source]).double()
        # The network counts the end token, too, if targets have one.
        end = len(self.frame.after)
        scores = scores[:, end : end + self.max_length + 1].clone()
        scores[:, 0] = -torch.inf
        return scores.log_softmax(1)

    def in_precision(self, precision: str) -> Self:
        """Return this model with its decoder in another precision; head and encoder keep theirs."""
        changed = super().in_precision(precision)
        if self.sources is not None:
            changed._keep_memory()
        return changed

    @property
    def bytes_per_token(self) -> int:
        """Estimate the activations of one layer, and the keys and values of the source."""
        return 24 * self.network.shape.width * self.dtype.itemsize

    def other_inputs(self) -> dict[str, Any]:
        """Return the token that ends a text."""
        return {"end": int(self.tokenizer.eos_token_id)}


def source_ids(
    model: Any, texts: Sequence[str], lines: Sequence[int] | None = None
) -> list[list[int]]:
    """Tokenise the sources of a translation model, end token included, and refuse bad ones.

    Errors name them by `lines`, by default 1, 2, ...
    """
    numbers = lines or range(1, len(texts) + 1)
    refuse(
        *(
            (
                not text.isascii() and any("\ud800" <= sign <= "\udfff" for sign in text),
                f"line {line} is not UTF-8 text.",
            )
            for text, line in zip(texts, numbers, strict=True)
        )
    )
    most, end = model.network.shape.longest, int(model.tokenizer.eos_token_id)
    encoded = token_ids(model.tokenizer, list(texts), model.name, add_special_tokens=False)
    for ids, line in zip(encoded, numbers, strict=True):
        refuse(
            (
                not ids,
                f"line {line} is empty; give at least one word.",
            ),
            (
                len(ids) >= most,
                f"line {line} has {len(ids)} tokens; '{model.name}' takes at most {most - 1}. "
                "Split it into sentences.",
            ),
        )
    return [[*map(int, ids), end] for ids in encoded]


RULES = ("best", "top", "drawn", "searched")
# Of translations that start from drafts, as a manifest has it: nothing is chosen.
DRAFTED = "drafts"
# The likeliest lengths that a search tries.
SEARCHED = 5


def bounds_of(model: ConditionalModel, chosen: Sequence[Sequence[int]]) -> list[tuple[int, int]]:
    """Return the fewest and the most tokens of each source's translations, if lengths are sampled.

    They are half its likeliest length and half as much again, and hold the lengths `chosen` for its
    chains, which thus have one target.
    """
    likeliest = model.length_scores().argmax(1).tolist()
    return [
        (
            min((best + 1) // 2, *lengths),
            max(min(model.max_length, best + best // 2 + 1), *lengths),
        )
        for best, lengths in zip(likeliest, chosen, strict=True)
    ]


def choose_lengths(model: ConditionalModel, rule: str, chains: int, seed: int) -> list[list[int]]:
    """Return the lengths of the chains of each source.

    `best` gives all chains the likeliest length, `top` gives chain i the i-th likeliest, and
    `drawn` draws each chain's length.
    """
    refuse(
        (
            rule not in RULES or rule == "searched",  # which needs passes
            f"unknown length rule '{rule}'; use one of {', '.join(RULES)}.",
        ),
        (
            rule == "top" and chains > model.max_length,
            f"'{model.name}' has only {model.max_length} lengths to try.",
        ),
    )
    scores = model.length_scores()
    if rule == "best":
        lengths = scores.argmax(1, keepdim=True).expand(-1, chains)
    elif rule == "top":
        lengths = scores.topk(chains, dim=1).indices
    else:
        count = scores.shape[0] * chains
        chain = torch.arange(count, device=scores.device)
        uniform = CounterRng(seed).uniform(chain, torch.zeros_like(chain), Purpose.LENGTH)
        chances = scores.exp().repeat_interleave(chains, dim=0)
        lengths = categorical(chances, uniform).view(-1, chains)
    return [[int(length) for length in row] for row in lengths.tolist()]


def given_sources(model: MaskedModel, sources: Sequence[object]) -> ConditionalModel:
    """Return a translation model with the sources that a user gave; refuse any other model."""
    if not isinstance(model, ConditionalModel):
        raise InputError(f"'{model.name}' does not translate: drop --sources.")
    return model.given(list(map(str, sources)))
