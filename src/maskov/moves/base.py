"""A move proposes: it chooses its own positions and says how probable both directions are.

To write one, subclass `Move` and implement `propose`; `maskov.testing.check_move` proves it. A
move is state-free: what an epoch needs to remember (the order of its positions) is in the chains.

Most moves propose by the masked conditional: what the model would put at the masked positions.
Order of what is applied, always: forbidden tokens out, and those that constraints do not allow
(`maskov.constraints`), temperature, top-k, top-p, then the
defensive mixture q = (1 − ε)·q_truncated + ε·q_full. Temperature acts on the model's logits, the
cuts on the tempered distribution; q_full is the conditional at temperature 1 over the allowed
tokens.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass

import torch

from maskov.constraints import Constraint, PartlyFilled
from maskov.errors import refuse
from maskov.models.base import MaskedModel
from maskov.models.scorer import Scorer
from maskov.random import Purpose, Rng
from maskov.types import Bool, Chains, Float, Int, Proposal, Sequences, Tensor

# The rank of a position that has no turn: later than all.
NEVER = 2**30


@dataclass(frozen=True)
class MaskedConditional:
    """The model's masked conditional, sharpened and cut as asked.

    A truncated proposal without `epsilon` cannot propose every sequence: the chain still leaves
    its target invariant, but may never reach parts of it. Tokens that break one of the
    `constraints` are never proposed.
    """

    temperature: float = 1.0
    top_k: int | None = None
    top_p: float = 1.0
    epsilon: float = 0.0
    constraints: tuple[Constraint, ...] = ()

    def __post_init__(self) -> None:
        refuse(
            (
                not (math.isfinite(self.temperature) and self.temperature >= 0),
                f"the proposal temperature must be 0 or more, not {self.temperature}.",
            ),
            (
                self.top_k is not None and self.top_k < 1,
                f"top-k must keep at least one token, not {self.top_k}.",
            ),
            (
                not 0 < self.top_p <= 1,
                f"top-p must lie above 0 and at most at 1, not {self.top_p}.",
            ),
            (
                not 0 <= self.epsilon <= 1,
                f"epsilon must lie between 0 and 1, not {self.epsilon}.",
            ),
            (
                not all(isinstance(one, Constraint) for one in self.constraints),
                "a constraint must be a subclass of Constraint.",
            ),
        )

    @property
    def reaches_everything(self) -> bool:
        """Whether every allowed token can be proposed everywhere."""
        whole = self.top_k is None and self.top_p == 1 and self.temperature > 0
        return whole or self.epsilon > 0

    @property
    def only_tempers(self) -> bool:
        """Whether the model's own probabilities are proposed, at most at another temperature."""
        return self.reaches_everything and self.epsilon == 0 and not self.constraints

    def log_probabilities(
        self,
        logits: Float[Tensor, "n vocabulary"],
        forbidden: Bool[Tensor, " vocabulary"],
        allowed: Bool[Tensor, "n vocabulary"] | None = None,
    ) -> Float[Tensor, "n vocabulary"]:
        """Return the log-probability of proposing each token, in float64."""
        full = logits.double().masked_fill(forbidden, -torch.inf)
        if allowed is not None:
            full = full.masked_fill(~allowed, -torch.inf)
        scores = tempered(full, self.temperature)
        if self.top_k is not None:
            scores = top_k(scores, self.top_k)
        log_q = top_p(scores, self.top_p).log_softmax(1)
        if self.epsilon == 0:
            return log_q
        rest = math.log1p(-self.epsilon) if self.epsilon < 1 else -math.inf
        return torch.logaddexp(log_q + rest, full.log_softmax(1) + math.log(self.epsilon))

    def filling(
        self,
        sequences: Sequences,
        unfilled: Bool[Tensor, "n length"],
        place: Int[Tensor, " n"],
        model: MaskedModel,
    ) -> PartlyFilled | None:
        """Describe what is filled so far to the constraints, if there are some.

        Blanks outside the window, as there are before chains begin, are still to be filled, too.
        """
        if not self.constraints:
            return None
        tokens, reference = sequences.tokens, sequences.reference
        return PartlyFilled(
            tokens,
            sequences.lengths,
            unfilled | (tokens == model.mask_id),
            place,
            tokens[:, :0] if reference is None else reference,
        )

    def allowed(self, sequences: PartlyFilled, model: MaskedModel) -> Bool[Tensor, "n vocabulary"]:
        """Return the tokens that no constraint forbids at the next place."""
        allowed = ~model.forbidden.expand(len(sequences.place), -1)
        for constraint in self.constraints:
            allowed = allowed & constraint.allowed(sequences, model)
        return allowed

    def possible(self, sequences: Sequences, model: MaskedModel) -> Bool[Tensor, " n"]:
        """Return which sequences meet every constraint, or may do so once their blanks are filled.

        Each constraint is asked for itself.
        """
        filled = torch.zeros_like(sequences.tokens, dtype=torch.bool)
        partly = self.filling(sequences, filled, torch.zeros_like(sequences.lengths), model)
        if partly is None:
            return torch.ones_like(sequences.lengths, dtype=torch.bool)
        return torch.stack([one.possible(partly, model) for one in self.constraints]).all(0)

    def __str__(self) -> str:
        cuts = {
            f"top_k={self.top_k}": self.top_k is not None,
            f"top_p={self.top_p:g}": self.top_p < 1,
            f"epsilon={self.epsilon:g}": self.epsilon > 0,
        }
        parts = [f"temperature={self.temperature:g}", *(cut for cut, made in cuts.items() if made)]
        return f"masked({', '.join([*parts, *map(str, self.constraints)])})"


def tempered(
    scores: Float[Tensor, "n vocabulary"], temperature: float
) -> Float[Tensor, "n vocabulary"]:
    """Divide by the temperature; at zero only the most probable token is left."""
    if temperature == 1:
        return scores
    if temperature == 0:
        return top_k(scores, 1)
    # Counted from the best, so that no temperature, however small, overflows.
    return (scores - scores.amax(1, keepdim=True)) / temperature


def top_k(scores: Float[Tensor, "n vocabulary"], count: int) -> Float[Tensor, "n vocabulary"]:
    """Keep the `count` most probable tokens; among equals, those that come first."""
    if count >= scores.shape[1]:
        return scores
    keep = torch.zeros_like(scores, dtype=torch.bool)
    best = (
        scores.max(1, keepdim=True).indices  # the first of the largest; much faster than to sort
        if count == 1
        else scores.sort(dim=1, descending=True, stable=True).indices[:, :count]
    )
    return scores.masked_fill(~keep.scatter(1, best, True), -torch.inf)


def top_p(scores: Float[Tensor, "n vocabulary"], mass: float) -> Float[Tensor, "n vocabulary"]:
    """Keep the smallest set of most probable tokens that holds at least `mass` (the nucleus)."""
    if mass >= 1:
        return scores
    ordered = scores.sort(dim=1, descending=True, stable=True)
    probabilities = ordered.values.softmax(1)
    # A token belongs to the nucleus while those before it hold less than the mass.
    needed = probabilities.cumsum(1) - probabilities < mass
    keep = torch.zeros_like(needed).scatter(1, ordered.indices, needed)
    return scores.masked_fill(~keep, -torch.inf)


class Move(ABC):
    """A way to propose other sequences."""

    # Whether its positions are chosen by looking at the tokens in a way its probabilities leave
    # out; if so, no kernel that uses the move leaves a target invariant.
    irreversible: bool = False
    # Whether it proposes only what the constraints of its `conditional` allow. A subclass that
    # proposes by its own rules says so itself.
    keeps_constraints: bool = False
    # Whether it changes a few neighbours, so that passes next to them make a good early test.
    local: bool = True
    # The distribution from which blanks are filled before the first epoch.
    conditional: MaskedConditional = MaskedConditional()

    @abstractmethod
    def propose(
        self, chains: Chains, rows: Int[Tensor, " n"], scorer: Scorer, rng: Rng
    ) -> Proposal:
        """Propose a sequence for each of the chosen chains."""

    def begin(self, chains: Chains, rng: Rng) -> Chains:
        """Set the order of the epoch that starts now."""
        return chains

    def steps(self, chains: Chains) -> Int[Tensor, " chains"]:
        """Return the number of steps of this epoch for each chain."""
        return chains.visits

    def at(self, epoch: int, block: int | None) -> Move:
        """Return the move as it is in one epoch; `block` is the schedule's, if it has one."""
        return self

    @property
    def reaches_everything(self) -> bool:
        """Whether every allowed token can be proposed everywhere."""
        return self.conditional.reaches_everything


def ranked(
    keys: Float[Tensor, "n length"], chosen: Bool[Tensor, "n length"]
) -> Int[Tensor, "n length"]:
    """Rank the chosen positions by their keys; the others have the rank `NEVER`."""
    others = ~chosen
    order = keys.masked_fill(others, torch.inf).argsort(dim=1, stable=True)
    place = torch.arange(order.shape[1], device=order.device).expand(order.shape)
    return torch.empty_like(order).scatter(1, order, place).masked_fill(others, NEVER)


def numbered(
    chain: Int[Tensor, " n"], step: Int[Tensor, " n"], count: int, rng: Rng, purpose: Purpose
) -> Float[Tensor, "n count"]:
    """Return the first numbers of each chain's step."""
    index = torch.arange(count, device=chain.device).expand(len(chain), count)
    who, when = (one[:, None].expand(index.shape).flatten() for one in (chain, step))
    return rng.uniform(who, when, purpose, index.flatten()).view(index.shape)


def random_rank(
    chain: Int[Tensor, " n"],
    step: Int[Tensor, " n"],
    chosen: Bool[Tensor, "n length"],
    rng: Rng,
    purpose: Purpose,
) -> Int[Tensor, "n length"]:
    """Rank the chosen positions at random."""
    return ranked(numbered(chain, step, chosen.shape[1], rng, purpose), chosen)
