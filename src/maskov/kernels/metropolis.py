"""Kernels that propose by a move: Metropolis-Hastings, and Gibbs, which accepts everything.

Metropolis-Hastings accepts by an energy. It is the paper's Algorithm 1, exactly.

    a(x'; x) = min(1, exp(β(E(x) − E(x'))) · q(x|x') / q(x'|x))

What makes it affordable:

- a proposal equal to the current sequence needs no energy: it is accepted as it stands;
- chains cache E(x) and the masked passes it came from, so proposing single sites is free;
- where one token changed, the masked pass at its place did not see it: T − 1 passes, not T, and
  B − 1, not B, for an energy of B groups of positions;
- tests come cheapest first, and a rejection ends them (`maskov.energies.stages`).

`step` is the plain algorithm, all chains in lock-step. Where move and energy allow it, runs go in
rounds (`maskov.execution.rounds`), which make the same decisions chain by chain.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property

import torch

from maskov.energies.base import Energy, MaskedEnergy, evaluated
from maskov.energies.counting import at_temperature
from maskov.energies.ordered import Ordered
from maskov.energies.stages import AcceptanceStages, DelayedAcceptance, Stage, near_all, near_window
from maskov.errors import InputError, refuse
from maskov.kernels.base import Kernel, counted, log_ratio, with_tokens
from maskov.models.scorer import Scorer
from maskov.moves import LowestConfidence, MaskedConditional, Move, Site
from maskov.random import Rng
from maskov.types import (
    Bool,
    Chains,
    Float,
    Int,
    PartValues,
    PassCache,
    Proposal,
    Sequences,
    StepInfo,
    Tensor,
    groups_with,
    inside,
    positions_of,
    unseen,
)


class MoveKernel(Kernel):
    """A kernel that proposes by a move, which says how an epoch goes."""

    move: Move

    def __post_init__(self) -> None:
        # The nearest class that says how to propose must say, too, that this keeps constraints.
        says = (vars(one) for one in type(self.move).__mro__)
        own = next(one for one in says if one.keys() & {"propose", "keeps_constraints"})
        refuse(
            (
                self.conditional.constraints and not own.get("keeps_constraints", False),
                f"the move '{type(self.move).__qualname__}' does not keep constraints: use site, "
                "span, insert-delete or resize, or set its `keeps_constraints` if it does.",
            ),
        )

    @property
    def conditional(self) -> MaskedConditional:  # type: ignore[override]
        """The move's."""
        return self.move.conditional

    @property
    def reaches_everything(self) -> bool:  # type: ignore[override]
        """Whether the move does."""
        return self.move.reaches_everything

    def begin(self, chains: Chains, rng: Rng) -> Chains:
        """Set the move's order."""
        return self.move.begin(chains, rng)

    def steps(self, chains: Chains) -> Int[Tensor, " chains"]:
        """Return the move's steps."""
        return self.move.steps(chains)

    def forced(self) -> Gibbs:
        """Accept everything, which needs no energies."""
        return Gibbs(self.move)


@dataclass(frozen=True)
class Gibbs(MoveKernel):
    """Propose by a move and keep whatever was proposed: degenerate Gibbs.

    A masked LM's conditionals are generally inconsistent with any joint distribution, so drawing
    from them in turn has no defined target. It is here for comparison, for starting chains, and
    because mask-predict is this kernel with the most probable token at the positions of lowest
    confidence.
    """

    move: Move = Site()

    leaves_invariant = False

    @property
    def fills_blanks(self) -> bool:  # type: ignore[override]
        """Whether the first step masks everything, as in mask-predict."""
        return isinstance(self.move, Site) and self.move.irreversible

    def init(self, chains: Chains, scorer: Scorer) -> Chains:
        """Cache nothing: every draw asks the model about the tokens as they are."""
        return chains.forget()

    def at(self, epoch: int, temperature: float | None, block: int | None) -> Gibbs:
        """Let the move follow the schedule."""
        return replace(self, move=self.move.at(epoch, block))

    def step(
        self, chains: Chains, rows: Int[Tensor, " n"], scorer: Scorer, rng: Rng
    ) -> tuple[Chains, StepInfo]:
        """Propose and accept."""
        proposal = self.move.propose(chains, rows, scorer, rng)
        # Where constraints left nothing to propose, chains stay.
        sequences = Sequences(proposal.tokens, proposal.lengths, reference=chains.reference[rows])
        accepted = self.conditional.possible(sequences, scorer.model)
        unknown = torch.full_like(proposal.log_q_forward, torch.nan)
        info = StepInfo(
            proposal=proposal,
            energy_old=unknown,
            energy_new=unknown,
            log_ratio=unknown[:, None],
            uniform=unknown[:, None],
            log_acceptance=torch.zeros_like(unknown),
            accepted=accepted,
            passes=proposal.passes,
            calls=proposal.passes.new_zeros((len(rows), 0)),
        )
        return counted(with_tokens(chains, proposal, accepted).forget(), rows), info

    def __str__(self) -> str:
        return f"gibbs({self.move})"


def mask_predict(iterations: int) -> Gibbs:
    """Return Mask-Predict (Ghazvininejad et al. 2019): greedy, re-masking what is least sure."""
    return Gibbs(Site(MaskedConditional(temperature=0), LowestConfidence(iterations)))


@dataclass(frozen=True)
class Metropolis(MoveKernel):
    """Sample from p(x) ∝ exp(−β E(x)/T), where β is the chain's own, usually 1."""

    energy: Energy
    move: Move = Site()
    target_temperature: float = 1.0
    delayed: DelayedAcceptance = DelayedAcceptance()

    def __post_init__(self) -> None:
        super().__post_init__()
        refuse(
            (
                self.move.conditional.temperature == 0,
                "a proposal temperature of 0 cannot be reversed, so 'mh' cannot use it; "
                "use a positive one, or --kernel gibbs.",
            ),
            (
                not self.target_temperature > 0,
                f"the target temperature must be above 0, not {self.target_temperature}.",
            ),
            (
                self.delayed.early and not self.energy.needs_passes,
                f"the energy '{self.energy}' has no masked passes to test early: drop --delayed.",
            ),
        )
        if self.delayed.nearest is None:
            # Passes of single positions justify an early test; of groups there are few.
            alone = self.energy.needs_passes and self.energy.groups is None
            delayed = DelayedAcceptance(2 if alone and self.move.local else 0)
            object.__setattr__(self, "delayed", delayed)

    @property
    def leaves_invariant(self) -> bool:
        """True unless the positions are chosen by looking at the tokens."""
        return not self.move.irreversible

    @cached_property
    def plan(self) -> AcceptanceStages:
        """The tests of each proposal, in order."""
        return AcceptanceStages(self.energy, self.delayed)

    def at(self, epoch: int, temperature: float | None, block: int | None) -> Metropolis:
        """Follow the schedule's temperature and block size."""
        target = self.target_temperature if temperature is None else temperature
        energy = at_temperature(self.energy, target / self.target_temperature)
        return replace(
            self, energy=energy, move=self.move.at(epoch, block), target_temperature=target
        )

    def with_energy(self, energy: Energy) -> Metropolis:
        """Return this kernel for another target; early tests that it cannot have are left out."""
        delayed = self.delayed if energy.needs_passes else DelayedAcceptance()
        return replace(self, energy=energy, delayed=delayed)

    def init(self, chains: Chains, scorer: Scorer) -> Chains:
        """Run the masked passes of the current tokens and every other part of the energy."""
        if self._initialised(chains):
            return chains
        energy, known, cache = self.energy, chains.part_values, chains.pass_cache
        # Passes that another kernel has cached may mask other positions.
        if not energy.needs_passes or (cache is not None and cache.groups != energy.groups):
            cache = None
        if energy.needs_passes and cache is None:
            cache = scorer.cache(chains.sequences, energy.needs_normaliser, groups=energy.groups)
        elif energy.needs_normaliser and cache is not None:
            cache = scorer.with_normaliser(cache, chains.inside)
        sequences = replace(chains.sequences, pass_cache=cache)
        # Another target of the same parts differs in weights alone.
        if known is not None and known.of is not None and energy.has_parts_of(known.of):
            values = known.values
        else:
            values = self._part_values(scorer, sequences)
        whole = energy.total(values)
        scorer.track_nan(whole)
        if bool(whole.isinf().any()):
            raise InputError(
                "a chain would start at a sequence of probability zero, where no move can be "
                "judged; start it elsewhere."
            )
        return replace(chains, pass_cache=cache, part_values=PartValues(energy, values, whole))

    def _part_values(self, scorer: Scorer, sequences: Sequences) -> Float[Tensor, "chains parts"]:
        """Evaluate every part of the energy and every early stage of one."""
        scorer.forget()
        count, width = sequences.tokens.shape
        values = sequences.lengths.new_zeros((count, self.plan.columns(width))).double()
        for column, (_, part) in enumerate(self.energy.parts):
            if isinstance(part, MaskedEnergy):
                values[:, column] = part(scorer.model, sequences)
        for other in self.plan.others:
            for column, stage in zip(other.columns, other.stages, strict=True):
                if isinstance(stage, Ordered):
                    found = stage.evaluate(scorer, sequences)
                    values[:, column] = found.value
                    values[:, self.plan.memory(stage, width)] = found.cells
                else:
                    values[:, column] = evaluated(stage, scorer.model, sequences)
        return values

    def _initialised(self, chains: Chains) -> bool:
        """Whether chains know this energy, and cache just the masked passes that it needs."""
        known, cache = chains.part_values, chains.pass_cache
        return (
            known is not None
            and self.energy.same_as(known.of)
            and self.energy.needs_passes == (cache is not None)
            and (cache is None or cache.groups == self.energy.groups)
        )

    def log_ratio(
        self, chains: Chains, proposal: Proposal, energy_drop: Tensor
    ) -> Float[Tensor, " n"]:
        """Return the log of the Metropolis-Hastings ratio, given by how much the energy falls."""
        return log_ratio(
            energy_drop, proposal.log_q_forward, proposal.log_q_reverse, self.target_temperature
        )

    def step(
        self, chains: Chains, rows: Int[Tensor, " n"], scorer: Scorer, rng: Rng
    ) -> tuple[Chains, StepInfo]:
        """Propose, test stage by stage, and move the chains that pass every test."""
        if not self._initialised(chains):
            raise InputError("the chains were not initialised: call the kernel's `init` first.")
        proposal = self.move.propose(chains, rows, scorer, rng)
        scores = ProposalScores(self, chains, proposal, scorer)
        info = self._test(chains, proposal, scores, rng)
        return counted(self._moved(chains, proposal, scores, info.accepted), rows), info

    def _test(
        self, chains: Chains, proposal: Proposal, scores: ProposalScores, rng: Rng
    ) -> StepInfo:
        """Test every proposal until it is rejected or has passed all stages."""
        rows, stages = proposal.rows, self.plan.stages
        chain, step = chains.chain[rows], chains.step[rows]
        ratios = torch.full(
            (len(rows), len(stages)), torch.nan, dtype=torch.float64, device=rows.device
        )
        uniforms = ratios.clone()
        before = torch.zeros_like(proposal.log_q_forward)
        log_acceptance, accepted = before.clone(), torch.ones_like(rows, dtype=torch.bool)
        # A proposal equal to the current sequence is accepted whatever rounding says of its q.
        testing = proposal.novel
        for number in range(len(stages)):
            index = testing.nonzero().flatten()
            if not index.numel():
                break
            energy_drop = torch.zeros_like(before).index_copy(
                0, index, scores.energy_drop(number, index)
            )
            ratio = self.log_ratio(chains, proposal, energy_drop)
            passed, uniform = rng.accept(
                (ratio - before)[index], chain[index], step[index], stage=number
            )
            ratios[index, number], uniforms[index, number] = ratio[index], uniform
            log_acceptance[index] += (ratio - before)[index].clamp(max=0.0)
            accepted[index] = passed
            testing = testing & accepted
            before = torch.where(testing, ratio, before)
        return StepInfo(
            proposal=proposal,
            energy_old=scores.energy_old,
            energy_new=scores.energy_new,
            log_ratio=ratios,
            uniform=uniforms,
            log_acceptance=log_acceptance,
            accepted=accepted,
            passes=proposal.passes + scores.passes,
            calls=scores.calls,
        )

    def _moved(
        self, chains: Chains, proposal: Proposal, scores: ProposalScores, accepted: Tensor
    ) -> Chains:
        """Return the chains with the accepted proposals, and what is known of these, in place."""
        after = with_tokens(chains, proposal, accepted)
        kept = (accepted & proposal.novel).nonzero().flatten()
        if not kept.numel():
            return after
        moved = proposal.rows[kept]
        assert chains.part_values is not None
        new = PartValues(self.energy, scores.values[kept], scores.energy_new[kept])
        after = replace(after, part_values=chains.part_values.put(moved, new))
        if scores.pass_cache is None or chains.pass_cache is None:
            return after
        return replace(after, pass_cache=chains.pass_cache.put(moved, scores.pass_cache.rows(kept)))

    def __str__(self) -> str:
        return f"mh({self.energy}, {self.move})"


class ProposalScores:
    """The energies of some proposals and those of their chains, where tests need them."""

    def __init__(
        self, kernel: Metropolis, chains: Chains, proposal: Proposal, scorer: Scorer
    ) -> None:
        self._kernel, self._chains, self._proposal, self._scorer = kernel, chains, proposal, scorer
        self._plan, self._energy = kernel.plan, kernel.energy
        rows = proposal.rows
        assert chains.part_values is not None
        self._known = chains.part_values.rows(rows)
        self.energy_old = self._known.energy
        # Those of proposals that nothing tests are the chains' own.
        self.energy_new = torch.where(proposal.novel, torch.nan, self.energy_old)
        self.passes = torch.zeros_like(rows)
        # Evaluations of each other part of the energy, its stages together.
        self.calls = rows.new_zeros((len(rows), len(self._plan.others)))
        self.pass_cache: PassCache | None = None
        # Those of the proposals are right up to where the tests are.
        self.values = self._known.values.clone()
        self._missing = torch.zeros_like(proposal.changed)
        if self._energy.needs_passes and chains.pass_cache is not None and proposal.novel.any():
            self._begin_passes(chains.pass_cache.rows(rows))

    def _begin_passes(self, known: PassCache) -> None:
        """Start from the chain's own passes: those that saw no change need only the new token."""
        proposal, scorer, groups = self._proposal, self._scorer, self._energy.groups
        alike = proposal.lengths == self._chains.lengths[proposal.rows]
        still = unseen(proposal.changed, groups) & alike[:, None]
        row, place = (still & proposal.changed).nonzero(as_tuple=True)
        if row.numel():
            tokens = proposal.tokens[row, place]
            score = scorer.model.logit_of(known.hidden[row, place], tokens)
            scorer.track_nan(score)
            known = replace(known, logit=known.logit.index_put((row, place), score.double()))
        held = inside(proposal.lengths, proposal.tokens.shape[1])
        missing = held & ~still & proposal.novel[:, None]
        passed = proposal.passed
        if passed is not None and passed.groups == groups:
            # Proposing has run some of those that are missing.
            wanted = missing[passed.row, passed.place]
            row, place, hidden = passed.row[wanted], passed.place[wanted], passed.hidden[wanted]
            if row.numel():
                tokens = proposal.tokens[row, place]
                scores = scorer.scores(hidden, tokens, self._energy.needs_normaliser)
                known = known.put_at(row, place, hidden, *scores)
                missing = missing.index_put((row, place), torch.zeros_like(wanted[wanted]))
        self.pass_cache, self._missing = known, missing

    def energy_drop(self, number: int, index: Int[Tensor, " n"]) -> Float[Tensor, " n"]:
        """Return by how much the energy falls, from what stage `number` knows."""
        stage = self._plan.stages[number]
        self._scorer.forget()
        for part, column, energy in self._plan.new_evaluations(number):
            self.calls[index, part] += 1
            if isinstance(energy, Ordered):
                self._evaluate(energy, column, index)
                continue
            # What an expert cannot read is impossible, whatever the sign of its weight.
            weight = self._plan.others[part].weight
            too_long = math.copysign(math.inf, weight) if weight else 0.0
            self.values[index, column] = evaluated(
                energy, self._scorer.model, self._sequences(index), too_long
            )
        if self.pass_cache is not None and stage.nearest != 0:
            self._run_passes(self.pass_cache, stage, index)
        if number == len(self._plan.stages) - 1:
            return self._whole_drop(index)
        others = self._plan.other_drop(stage, self._known.values[index], self.values[index])
        return self._masked_drop(stage, index) + others

    def _evaluate(self, energy: Ordered, column: int, index: Tensor) -> None:
        """Evaluate an energy from what it remembers of the chains' own sequences."""
        proposal, memory = self._proposal, self._plan.memory(energy, self._proposal.tokens.shape[1])
        if proposal.evaluated is not None and energy.is_part(proposal.evaluated[0]):
            # Its passes are among those of proposing.
            found = proposal.evaluated[1].rows(index)
        else:
            known, changed = self._known.values[index, memory], proposal.changed[index]
            if proposal.resized is not None:  # nothing is where it was
                changed = torch.ones_like(changed)
            found = energy.evaluate(self._scorer, self._sequences(index), known, changed)
            self.passes = self.passes.index_add(0, index, found.passes)
        self.values[index, column] = found.value
        self.values[index, memory] = found.cells

    def _sequences(self, index: Tensor) -> Sequences:
        proposal, chains = self._proposal, self._chains
        rows, cache = proposal.rows[index], self.pass_cache
        free = chains.free[rows] if proposal.resized is None else proposal.resized.free[index]
        return Sequences(
            proposal.tokens[index], proposal.lengths[index], cache and cache.rows(index),
            chains.source[rows], chains.reference[rows], free,
        )  # fmt: skip

    def _run_passes(self, cache: PassCache, stage: Stage, index: Tensor) -> None:
        """Run the masked passes that a stage is the first to need."""
        energy, near = self._energy, self._near(stage, index)
        near = positions_of(groups_with(near, energy.groups), near.shape[1])
        needed = self._missing[index] & near
        found = self._scorer.cache(
            self._sequences(index), energy.needs_normaliser, needed, energy.groups
        )
        self.pass_cache = cache.put(index, found)
        self._missing = self._missing.index_copy(0, index, self._missing[index] & ~needed)
        run = groups_with(needed, energy.groups).sum(1)
        self.passes = self.passes.index_add(0, index, run)

    def _masked_drop(self, stage: Stage, index: Tensor) -> Float[Tensor, " n"]:
        """Return by how much the terms of the masked passes fall that are known so far."""
        energy, old, new = self._energy.masked, self._chains.pass_cache, self.pass_cache
        if energy is None or old is None or new is None:
            return torch.zeros_like(self.energy_old[index])
        rows, resized = self._proposal.rows[index], self._proposal.resized
        known = self._near(stage, index) & ~self._missing[index]
        terms = energy.of_scores(old.logit[rows], old.log_normaliser[rows])
        after = energy.of_scores(new.logit[index], new.log_normaliser[index])
        if resized is None:
            return torch.where(known, terms - after, 0.0).sum(1)
        origin = resized.origin[index]
        before = terms.gather(1, origin.clamp(min=0)).masked_fill(origin < 0, 0.0)
        # What is removed is known to every test, whichever way the move goes.
        gone = torch.where(resized.removed[index], terms, 0.0).sum(1)
        drop = torch.where(known, before - after, 0.0).sum(1) + gone
        if stage.nearest != 0:
            return drop
        # A window of several positions that gives way to one of another size is known one way only:
        # tests without passes leave its terms out, whichever way the move goes.
        single = torch.maximum(resized.size, resized.removed.sum(1))[index] <= 1
        return torch.where(single & (self._energy.groups is None), drop, 0.0)

    def _near(self, stage: Stage, index: Tensor) -> Bool[Tensor, "n length"]:
        """Return the positions of which a stage knows the masked passes."""
        proposal, count = self._proposal, stage.nearest
        lengths, resized, width = proposal.lengths[index], proposal.resized, self._missing.shape[1]
        if count is None:
            return inside(lengths, width)
        if resized is not None:
            start, size = resized.start[index], resized.size[index]
            return near_window(start, size, lengths, width) < count
        near = near_all(proposal.changed[index], lengths) < count
        # The groups that hold one of them are known as a whole.
        return positions_of(groups_with(near, self._energy.groups), width) & inside(lengths, width)

    def _whole_drop(self, index: Tensor) -> Float[Tensor, " n"]:
        """Return by how much the energy falls, part by part: a large constant cancels nothing."""
        sequences = self._sequences(index)
        for column, (_, part) in enumerate(self._energy.parts):
            if isinstance(part, MaskedEnergy):
                self.values[index, column] = part(self._scorer.model, sequences)
        values = self.values[index]
        energy = self._energy.total(values)
        self._scorer.track_nan(energy)
        self.energy_new = self.energy_new.index_copy(0, index, energy)
        return self._energy.total(self._known.values[index] - values)
