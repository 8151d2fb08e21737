"""Shaped tensor aliases and the records that flow between the parts of a step.

Shapes use one set of names throughout: `chains` (rows of the state), `length` (positions,
padded to the longest chain), `passes` (masked copies sent through a model), `masked` (all masked
positions of a batch of queries), `hidden` (width of what a model keeps per masked position) and
`vocabulary`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy.typing as npt
import torch
from torch import Tensor

if TYPE_CHECKING:
    from jaxtyping import Bool, Float, Int
else:
    try:  # jaxtyping is a development dependency: the shapes are checked in the tests
        from jaxtyping import Bool, Float, Int
    except ImportError:  # pragma: no cover - the plain install

        class _Shaped:
            def __getitem__(self, item: Any) -> Any:
                return item[0]

        Bool = Float = Int = _Shaped()

__all__ = [
    "Bool",
    "ChainState",
    "Float",
    "Int",
    "Proposed",
    "Sequences",
    "Sites",
    "StepInfo",
    "Tensor",
    "Traces",
    "inside",
]

# What a run keeps of each epoch: a name, and an array of epochs × chains (or one row of it).
Traces = dict[str, npt.NDArray[Any]]


@dataclass(frozen=True)
class Sites:
    """What the masked passes of some sequences gave, one pass per position.

    `hidden` is what the model's head needs to answer any question about that position, `logit`
    the raw score of the token that stands there, `log_normaliser` the log-sum-exp over the
    model's full vocabulary (not-a-number where nobody asked for it). Padding holds zeros.
    """

    hidden: Float[Tensor, "chains length hidden"]
    logit: Float[Tensor, "chains length"]
    log_normaliser: Float[Tensor, "chains length"]

    def rows(self, index: Int[Tensor, " n"]) -> Sites:
        """Return the sites of the chosen chains."""
        return Sites(self.hidden[index], self.logit[index], self.log_normaliser[index])

    def put(self, index: Int[Tensor, " n"], other: Sites) -> Sites:
        """Return these sites with the chosen chains replaced by those of `other`."""
        return Sites(
            self.hidden.index_copy(0, index, other.hidden),
            self.logit.index_copy(0, index, other.logit),
            self.log_normaliser.index_copy(0, index, other.log_normaliser),
        )


@dataclass(frozen=True)
class Sequences:
    """Some sequences, padded on the right, and their sites where these are known.

    `source` says which of its sources a conditional model is to read beside each.
    """

    tokens: Int[Tensor, "n length"]
    lengths: Int[Tensor, " n"]
    sites: Sites | None = None
    source: Int[Tensor, " n"] | None = None

    @property
    def inside(self) -> Bool[Tensor, "n length"]:
        """True at the positions of a sequence, false at padding."""
        return inside(self.lengths, self.tokens.shape[1])


def inside(lengths: Int[Tensor, " n"], width: int) -> Bool[Tensor, "n length"]:
    """Return true at the positions of each sequence, false at padding."""
    return torch.arange(width, device=lengths.device) < lengths[:, None]


@dataclass(frozen=True)
class ChainState:
    """A batch of chains: everything the next step needs, and nothing else.

    `source` is the line of the user's input that a chain belongs to, which a conditional model
    reads. `free` marks the positions that may change (templates freeze the others), `step` counts
    the steps of each chain and keys its random numbers, `rank` is the place of each position in the
    order of the current epoch. `sites` and `energy` describe the current tokens and are absent
    while they are unknown, as after a move that needed no energy. `confidence` is the
    probability with which each token was last predicted; only mask-predict reads it.
    """

    chain: Int[Tensor, " chains"]
    source: Int[Tensor, " chains"]
    tokens: Int[Tensor, "chains length"]
    lengths: Int[Tensor, " chains"]
    free: Bool[Tensor, "chains length"]
    step: Int[Tensor, " chains"]
    rank: Int[Tensor, "chains length"]
    confidence: Float[Tensor, "chains length"]
    sites: Sites | None = None
    energy: Float[Tensor, " chains"] | None = None

    @property
    def inside(self) -> Bool[Tensor, "chains length"]:
        """True at the positions of a sequence, false at padding."""
        return inside(self.lengths, self.tokens.shape[1])

    @property
    def sequences(self) -> Sequences:
        """The current tokens and what is known of them."""
        return Sequences(self.tokens, self.lengths, self.sites, self.source)

    def rows(self, index: Int[Tensor, " n"]) -> ChainState:
        """Return the chosen chains, with nothing known of their tokens."""
        names = ("chain", "source", "tokens", "lengths", "free", "step", "rank", "confidence")
        return ChainState(**{name: getattr(self, name)[index] for name in names})

    def to(self, device: torch.device) -> ChainState:
        """Return these chains on a device."""
        if self.tokens.device == device:
            return self
        moved: dict[str, Any] = {
            name: value.to(device)
            for name, value in vars(self).items()
            if isinstance(value, Tensor)
        }
        if self.sites is not None:
            parts = {name: value.to(device) for name, value in vars(self.sites).items()}
            moved["sites"] = Sites(**parts)
        return replace(self, **moved)

    def forget(self) -> ChainState:
        """Return this state without what was known of its tokens."""
        return replace(self, sites=None, energy=None)


@dataclass(frozen=True)
class Proposed:
    """A proposal of each of some chains, with both directions' exact log-probabilities.

    `rows` says which chains of the state propose, `masked` which positions were masked together,
    `tokens` the whole proposed sequences. The context is the same in both directions, so factors
    at unchanged positions cancel; a truncated proposal can make `log_q_reverse` −inf, which is a
    rejection.
    """

    rows: Int[Tensor, " n"]
    masked: Bool[Tensor, "n length"]
    tokens: Int[Tensor, "n length"]
    changed: Bool[Tensor, "n length"]
    confidence: Float[Tensor, "n length"]
    log_q_forward: Float[Tensor, " n"]
    log_q_reverse: Float[Tensor, " n"]
    passes: Int[Tensor, " n"]


@dataclass(frozen=True)
class StepInfo:
    """What happened in one step, chain by chain; rates and plots are computed from this.

    `proposal` is what was proposed, whether or not it was accepted. The energies are those of
    the kernel's target, not-a-number for kernels that have none. The proposal was accepted if the
    log of `uniform` was below `log_ratio`, which is 0 where there was nothing to decide.
    """

    proposal: Proposed
    energy_old: Float[Tensor, " n"]
    energy_new: Float[Tensor, " n"]
    log_ratio: Float[Tensor, " n"]
    uniform: Float[Tensor, " n"]
    accepted: Bool[Tensor, " n"]
    passes: Int[Tensor, " n"]

    @property
    def log_acceptance(self) -> Float[Tensor, " n"]:
        """The log of the probability with which the proposal was accepted."""
        return self.log_ratio.clamp(max=0.0)

    @property
    def proposed_novel(self) -> Bool[Tensor, " n"]:
        """True where the proposal differs from the current sequence."""
        return self.proposal.changed.any(1)

    @property
    def novel(self) -> Bool[Tensor, " n"]:
        """True where the proposal was different and accepted."""
        return self.accepted & self.proposed_novel
