"""Shaped tensor aliases and the records that flow between the parts of a step.

Shapes use one set of names throughout: `chains` (rows of the state), `length` (positions,
padded to the longest chain), `passes` (masked copies sent through a model), `masked` (all masked
positions of a batch of queries), `hidden` (width of what a model keeps per masked position) and
`vocabulary`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Annotated, Any, Self

import numpy.typing as npt
import torch
from torch import Tensor

if TYPE_CHECKING:
    from jaxtyping import Bool, Float, Int
else:
    try:  # jaxtyping is a development dependency: the shapes are checked in the tests
        from jaxtyping import Bool, Float, Int
    except ImportError:  # pragma: no cover - the plain install
        Bool = Float = Int = Annotated

__all__ = [
    "Bool",
    "Chains",
    "Float",
    "Int",
    "PartValues",
    "PassCache",
    "Proposal",
    "ProposalPasses",
    "Resized",
    "Sample",
    "Sequences",
    "StepInfo",
    "Tensor",
    "Traces",
    "groups_with",
    "inside",
    "joined",
    "masked_with",
    "padded",
    "positions_of",
    "unseen",
]

# What a run keeps of each epoch: a name, and an array of epochs × chains (or one row of it).
Traces = dict[str, npt.NDArray[Any]]


@dataclass(frozen=True)
class Batch:
    """Tensors with a row for each chain or sequence, and other batches of the same rows."""

    def tensors(self) -> dict[str, Tensor]:
        """Return every tensor by its name, but for those of batches within."""
        return {name: value for name, value in vars(self).items() if isinstance(value, Tensor)}

    def mapped(self, change: Callable[[Tensor], Tensor]) -> Self:
        """Return this batch with every tensor changed, and those of batches within."""
        changed: dict[str, Any] = {
            name: change(value) if isinstance(value, Tensor) else value.mapped(change)
            for name, value in vars(self).items()
            if isinstance(value, Tensor | Batch)
        }
        return replace(self, **changed)

    def rows(self, index: Int[Tensor, " n"]) -> Self:
        """Return the chosen rows."""
        return self.mapped(lambda value: value[index])

    def to(self, device: torch.device) -> Self:
        """Return this batch on a device."""
        return self.mapped(lambda value: value.to(device))

    def put(self, index: Int[Tensor, " n"], other: Self) -> Self:
        """Return this batch with the chosen rows replaced by those of `other`."""
        theirs = other.tensors()
        changed: dict[str, Any] = {
            name: mine.index_copy(0, index, theirs[name]) for name, mine in self.tensors().items()
        }
        return replace(self, **changed)


@dataclass(frozen=True)
class PassCache(Batch):
    """What the masked passes of some sequences gave at each position.

    `hidden` is what the model's head needs to answer any question about that position, `logit`
    the raw score of the token that stands there, `log_normaliser` the log-sum-exp over the
    model's full vocabulary (not-a-number where nobody asked for it). Padding holds zeros.

    The pass of a position masks it alone, or with `groups` every position of its group
    (`groups_with`).
    """

    hidden: Float[Tensor, "chains length hidden"]
    logit: Float[Tensor, "chains length"]
    log_normaliser: Float[Tensor, "chains length"]
    groups: int | None = None

    def put_at(
        self,
        row: Int[Tensor, " passes"],
        place: Int[Tensor, " passes"],
        hidden: Float[Tensor, "passes hidden"],
        logit: Float[Tensor, " passes"],
        log_normaliser: Float[Tensor, " passes"],
    ) -> PassCache:
        """Return this cache with some positions replaced."""
        where = (row, place)
        return PassCache(
            self.hidden.index_put(where, hidden),
            self.logit.index_put(where, logit),
            self.log_normaliser.index_put(where, log_normaliser),
            self.groups,
        )


@dataclass(frozen=True)
class Sequences(Batch):
    """Some sequences, padded on the right, and their masked passes where these are known.

    `source` says which of its sources a conditional model reads with each. `reference` are
    the tokens of the text that a sequence is compared with, padded with −1, where there is one.
    `free` are the positions that may change (None: all).
    """

    tokens: Int[Tensor, "n length"]
    lengths: Int[Tensor, " n"]
    pass_cache: PassCache | None = None
    source: Int[Tensor, " n"] | None = None
    reference: Int[Tensor, "n reference"] | None = None
    free: Bool[Tensor, "n length"] | None = None

    @property
    def inside(self) -> Bool[Tensor, "n length"]:
        """True at the positions of a sequence, false at padding."""
        return inside(self.lengths, self.tokens.shape[1])

    @property
    def scored(self) -> Bool[Tensor, "n length"]:
        """True at the positions that may change; all of a sequence where nothing says otherwise."""
        return self.inside if self.free is None else self.inside & self.free

    def with_tokens(self, tokens: Int[Tensor, "n length"]) -> Sequences:
        """Return these sequences with other tokens, of which nothing is known yet."""
        return replace(self, tokens=tokens, pass_cache=None)


def padded(rows: Sequence[Sequence[int]], fill: int, device: Any) -> Sequences:
    """Return sequences of any length, one at least, with `fill` after their ends."""
    lengths = [max(1, len(row)) for row in rows]
    tokens = [[*row, *[fill] * (max(lengths) - len(row))] for row in rows]
    return Sequences(torch.tensor(tokens, device=device), torch.tensor(lengths, device=device))


def joined(parts: Sequence[Tensor]) -> Tensor:
    """Concatenate; what is in one part already is not copied."""
    return parts[0] if len(parts) == 1 else torch.cat(list(parts))


def inside(lengths: Int[Tensor, " n"], width: int) -> Bool[Tensor, "n length"]:
    """Return true at the positions of each sequence, false at padding."""
    return torch.arange(width, device=lengths.device) < lengths[:, None]


@dataclass(frozen=True)
class PartValues(Batch):
    """The energy of the current tokens of some chains, and the values of its parts.

    `values` has a column for each part of the energy `of`, in their order, and one for each early
    stage of a part (`maskov.energies.stages`). Without `of` the energy is only to be looked at.
    """

    of: Any  # an `Energy`, which is built on these types
    values: Float[Tensor, "chains parts"]
    energy: Float[Tensor, " chains"]


@dataclass(frozen=True)
class Chains(Batch):
    """A batch of chains: everything the next step needs, and nothing else.

    What may differ between chains has an entry for each: its length, and the positions that are
    `free` to change (templates freeze the others). Where chains are drawn again by their
    `log_weight` (`maskov.kernels.population`), `ancestor` is the number of the one that they
    descend from. `source` is the line of the user's input
    that a chain belongs to, which a conditional model reads. `step` counts the steps of a chain
    and keys its random numbers; `epoch_step` counts those of the current epoch, and `rank` is
    the place of each position in the epoch's order. `pass_cache` and `part_values` describe the
    current tokens and are absent while they are unknown, as after a move that needed no energy.
    `confidence` is the probability with which each token was last predicted; only mask-predict
    reads it.

    Where lengths may change, every position that may come or go has the number of its `region`
    (−1 elsewhere), and a region has between `bounds[..., 0]` and `bounds[..., 1]` positions.

    `reference` are the tokens of the text that a chain started from, padded with −1; it has no
    columns where chains started from none.
    """

    chain: Int[Tensor, " chains"]
    source: Int[Tensor, " chains"]
    tokens: Int[Tensor, "chains length"]
    lengths: Int[Tensor, " chains"]
    free: Bool[Tensor, "chains length"]
    ancestor: Int[Tensor, " chains"]
    log_weight: Float[Tensor, " chains"]
    step: Int[Tensor, " chains"]
    epoch_step: Int[Tensor, " chains"]
    rank: Int[Tensor, "chains length"]
    confidence: Float[Tensor, "chains length"]
    region: Int[Tensor, "chains length"]
    bounds: Int[Tensor, "chains regions 2"]
    reference: Int[Tensor, "chains reference"]
    pass_cache: PassCache | None = None
    part_values: PartValues | None = None

    @classmethod
    def at(
        cls,
        tokens: Int[Tensor, "chains length"],
        chain: Int[Tensor, " chains"] | None = None,
        lengths: Int[Tensor, " chains"] | None = None,
        free: Bool[Tensor, "chains length"] | None = None,
        source: Int[Tensor, " chains"] | None = None,
        reference: Int[Tensor, "chains reference"] | None = None,
    ) -> Chains:
        """Return chains that stand at the given sequences, before any step.

        By default all of them have the number 0, one length and no frozen position.
        """
        zero = torch.zeros(len(tokens), dtype=torch.long, device=tokens.device)
        return cls(
            chain=zero if chain is None else chain,
            source=zero.clone() if source is None else source,
            tokens=tokens,
            lengths=zero + tokens.shape[1] if lengths is None else lengths,
            free=torch.ones_like(tokens, dtype=torch.bool) if free is None else free,
            # Each in its own memory, as checkpoints need it.
            ancestor=zero.clone(),
            log_weight=zero.double(),
            step=zero.clone(),
            epoch_step=zero.clone(),
            rank=torch.zeros_like(tokens),
            confidence=torch.zeros_like(tokens, dtype=torch.float64),
            region=torch.full_like(tokens, -1),
            bounds=zero.new_zeros((len(tokens), 0, 2)),
            reference=tokens[:, :0] if reference is None else reference,
        )

    @property
    def resizable(self) -> bool:
        """Whether lengths may change."""
        return self.bounds.shape[1] > 0

    @property
    def visits(self) -> Int[Tensor, " chains"]:
        """How many free positions an epoch counts on.

        Those there are; where lengths may change, those there are in the middle of the bounds. An
        epoch that was longer for longer sequences would stop by looking at its state, and leave no
        target invariant.
        """
        if not self.resizable:
            return self.free.sum(1)
        return (self.free & (self.region < 0)).sum(1) + self.bounds.sum((1, 2)) // 2

    @property
    def inside(self) -> Bool[Tensor, "chains length"]:
        """True at the positions of a sequence, false at padding."""
        return inside(self.lengths, self.tokens.shape[1])

    @property
    def energy(self) -> Float[Tensor, " chains"] | None:
        """The energy of the kernel's target, if it is known."""
        return None if self.part_values is None else self.part_values.energy

    @property
    def sequences(self) -> Sequences:
        """The current tokens and what is known of them."""
        return Sequences(
            self.tokens, self.lengths, self.pass_cache, self.source, self.reference, self.free
        )

    def rows(self, index: Int[Tensor, " n"], known: bool = False) -> Chains:
        """Return the chosen chains, with what is `known` of their tokens or with nothing."""
        return super(Chains, self if known else self.forget()).rows(index)

    def forget(self) -> Chains:
        """Return these chains without what was known of their tokens."""
        return replace(self, pass_cache=None, part_values=None)


@dataclass(frozen=True)
class ProposalPasses:
    """Masked passes of proposed sequences that proposing has paid for: a vector at each place.

    They mask what `groups` says, as in `PassCache`; with groups, every position of a group is here
    or none.
    """

    row: Int[Tensor, " passes"]
    place: Int[Tensor, " passes"]
    hidden: Float[Tensor, "passes hidden"]
    groups: int | None = None


@dataclass(frozen=True)
class Resized:
    """What becomes of sequences whose window of old tokens gives way to one of another size.

    `origin` is where each position of the proposed sequence was before (−1: it is new), `removed`
    marks the old positions that are gone, `start` and `size` are the new window.
    """

    free: Bool[Tensor, "n length"]
    region: Int[Tensor, "n length"]
    origin: Int[Tensor, "n length"]
    removed: Bool[Tensor, "n length"]
    start: Int[Tensor, " n"]
    size: Int[Tensor, " n"]


@dataclass(frozen=True)
class Proposal:
    """A proposal of each of some chains, with both directions' exact log-probabilities.

    `rows` says which chains propose, `before` their tokens, `tokens` the whole proposed sequences,
    and `masked` the positions that the move looked away from. A truncated proposal can make
    `log_q_reverse` −inf, which is a rejection. `passes` is what proposing cost, and `passed` are
    masked passes of the proposed sequence among them. `confidence` are the model's probabilities of
    the new tokens, where the move knows them. If lengths may change, `resized` says how. An energy
    that proposing has `evaluated`, and what it found, need not be evaluated again.
    """

    rows: Int[Tensor, " n"]
    before: Int[Tensor, "n length"]
    tokens: Int[Tensor, "n length"]
    lengths: Int[Tensor, " n"]
    masked: Bool[Tensor, "n length"]
    log_q_forward: Float[Tensor, " n"]
    log_q_reverse: Float[Tensor, " n"]
    passes: Int[Tensor, " n"]
    passed: ProposalPasses | None = None
    confidence: Float[Tensor, "n length"] | None = None
    resized: Resized | None = None
    evaluated: tuple[Any, Any] | None = None

    @cached_property
    def changed(self) -> Bool[Tensor, "n length"]:
        """True where the token is another one, or in the new window where the length may change."""
        if self.resized is None:
            return self.tokens != self.before
        place = torch.arange(self.tokens.shape[1], device=self.tokens.device)
        start, size = self.resized.start[:, None], self.resized.size[:, None]
        return (place >= start) & (place < start + size)

    @property
    def novel(self) -> Bool[Tensor, " n"]:
        """True where the proposal differs from the current sequence."""
        # A sequence of another length has padding where the other has a token.
        return (self.tokens != self.before).any(1)


@dataclass(frozen=True)
class StepInfo:
    """What happened in one step, chain by chain; rates and plots are computed from this.

    `proposal` is what was proposed, whether or not it was accepted. The energies are those of
    the kernel's target, not-a-number for kernels that have none and for proposals that an early
    test rejected. A test passes if the log of its `uniform` is below its `log_ratio` less that of
    the test before it; both are not-a-number where a test was not taken. `log_acceptance` is the
    log of the probability of passing all tests that were taken. `calls` counts the evaluations of
    each part of the energy other than masked passes.
    """

    proposal: Proposal
    energy_old: Float[Tensor, " n"]
    energy_new: Float[Tensor, " n"]
    log_ratio: Float[Tensor, "n stages"]
    uniform: Float[Tensor, "n stages"]
    log_acceptance: Float[Tensor, " n"]
    accepted: Bool[Tensor, " n"]
    passes: Int[Tensor, " n"]
    calls: Int[Tensor, "n experts"]

    @property
    def novel(self) -> Bool[Tensor, " n"]:
        """True where the proposal was different and accepted."""
        return self.accepted & self.proposal.novel


@dataclass(frozen=True)
class Sample:
    """A sequence that a chain held at the end of an epoch, with both energies.

    `ids` are the content tokens and are what the energies belong to: decoding them and
    tokenising the text again may give others. `template` is the line of the user's input the
    chain belongs to, 0 where there was none. `energies` are, where the energy has experts, those
    of the `target` and of each expert by name. Of chains that started from FASTA, `name` is the
    parent's and `mutations`, where lengths are fixed, are the differences to it, such as S31R.
    Samples of populations have the number of theirs, their weight in it, and which of its first
    particles they descend from.
    """

    chain: int
    epoch: int
    text: str
    tokens: list[str]
    ids: list[int]
    energy_raw: float
    energy_norm: float
    template: int = 0
    energies: dict[str, float] = field(default_factory=dict)
    name: str | None = None
    mutations: list[str] | None = None
    population: int | None = None
    weight: float | None = None
    ancestor: int | None = None

    def to_json(self) -> str:
        """Return the sample as one line of JSON."""
        data = {name: value for name, value in asdict(self).items() if value not in (None, {})}
        return json.dumps(data, ensure_ascii=False)


# Groups of positions that one masked pass hides together: position t belongs to group t mod B. The
# group of a position depends on the position and on B alone, never on the length of the sequence,
# so that it stays the same whatever a move does.


def groups_with(marked: Bool[Tensor, "n length"], groups: int | None) -> Bool[Tensor, "n groups"]:
    """Mark the groups that hold a marked position; groups without any position are left out.

    Without `groups`, each position is one.
    """
    if groups is None:
        return marked
    width = marked.shape[1]
    count = min(groups, width)
    rows = -(-width // count)
    padded = torch.nn.functional.pad(marked, (0, rows * count - width))
    return padded.view(len(marked), rows, count).any(1)


def positions_of(held: Bool[Tensor, "n groups"], width: int) -> Bool[Tensor, "n length"]:
    """Mark the positions of the marked groups, those of padding included."""
    return held[:, torch.arange(width, device=held.device) % held.shape[1]]


def masked_with(
    place: Int[Tensor, " n"], inside: Bool[Tensor, "n length"], groups: int | None
) -> Bool[Tensor, "n length"]:
    """Mark what the pass of each place masks: the place alone, or its whole group."""
    position = torch.arange(inside.shape[1], device=place.device)
    if groups is None:
        return position == place[:, None]
    count = min(groups, inside.shape[1])
    return (position % count == place[:, None] % count) & inside


def unseen(changed: Bool[Tensor, "n length"], groups: int | None) -> Bool[Tensor, "n length"]:
    """Mark the positions whose pass saw none of the changes: the one group that holds them all."""
    held = groups_with(changed, groups)
    return positions_of(held, changed.shape[1]) & (held.sum(1) == 1)[:, None]
