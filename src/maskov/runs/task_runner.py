"""Carry out tasks: take a group of chains through epochs until its task is over."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace

import torch

from maskov.config import Manifest, PrecisionCheck
from maskov.energies import Energy, Norm, Raw
from maskov.energies.base import MaskedEnergy, evaluated
from maskov.energies.stages import AcceptanceStages
from maskov.errors import Interrupted, MaskovError
from maskov.execution.buffers import AHEAD, COUNTS, Buffers, SiteBuffers, WindowBuffers, sizes_of
from maskov.execution.population_rounds import PopulationRounds, population_sampler
from maskov.execution.recorded import new_buffers, rounds_of, sampler_for
from maskov.execution.recorded_gibbs import RecordedGibbs, records_gibbs
from maskov.execution.rounds import Rounds
from maskov.execution.site_rounds import SiteRounds
from maskov.execution.window_rounds import WindowRounds
from maskov.kernels import Gibbs, Kernel, Metropolis, Population
from maskov.kernels.base import ended, energies_of, epoch, kernel_at, with_leaves
from maskov.models.base import MaskedModel
from maskov.models.scorer import Scorer, refuse_out_of_memory
from maskov.moves import Site
from maskov.random import CounterRng, Rng
from maskov.runs.coordinator import Task, TaskOver, TaskResult
from maskov.runs.state import (
    GroupState,
    Row,
    kept_epochs,
    nothing_yet,
    traces_of,
)
from maskov.starts import fill
from maskov.types import Chains, Float, PartValues, Sequences, StepInfo, Tensor, Traces

# Chains that are shown to an observer in another process.
_SHOWN = 8
# Chains whose energies are compared with those of the exact model.
_MEASURED = 16
# Seconds between two looks at chains that advance asynchronously.
_FRAME_SECONDS = 1 / 12


class TaskRunner:
    """Everything that a process needs to carry out the tasks of a run, one after the other."""

    def __init__(
        self,
        manifest: Manifest,
        kernel: Kernel,
        model: MaskedModel,
        stop: Callable[[], bool] | None = None,
    ) -> None:
        self.manifest, self.kernel = manifest, kernel
        self.schedule, self.rng = manifest.schedule, CounterRng(manifest.config.seed)
        self.scorer = Scorer(model, manifest.config.execution.token_budget, stop)
        # Called with some chains while they move.
        self.watch: Callable[[Chains], None] | None = None
        # Called with a group and the row of an epoch as soon as it is complete; otherwise rows are
        # returned at the end of the task.
        self.deliver: Callable[[int, int, Traces], None] | None = None
        # What the last asynchronous group left on the device, for the next to use.
        self.sampler: Rounds | None = None
        self.gibbs: RecordedGibbs | None = None
        self.populations = PopulationRounds(self.scorer, self.rng, manifest.shortest, manifest.mean)
        # When chains that advance asynchronously were shown last.
        self._shown = 0.0
        self.group: GroupState
        self._task: Task

    def run(self, task: Task) -> TaskResult:
        """Take a group on; what was completed is returned even where somebody asks to stop."""
        self._task, self._deadline = task, time.monotonic() + task.seconds
        self._rows: list[tuple[int, Traces]] = []
        self.group = _with_target(task.state, self.kernel).to(self.scorer.model.device)
        self.scorer.batcher.budget, before = self.group.budget, self.scorer.passes
        check, stopped = None, None
        try:
            try:
                if not self.group.begun:
                    self._begin()
                    if not task.number:
                        check = check_precision(self.scorer.model, self.group.chains)
                self._go_on()
            except TaskOver:
                pass
            except Interrupted as error:
                # Asked to stop between two batches: the state is whole, if it is numbers.
                stopped = error
            self.scorer.check()
        except MaskovError as error:
            # The epochs before were checked and stay; the group stands where its task began.
            return TaskResult(task.number, task.state, self._rows, failure=error)
        target = _target_of(self.group, self.kernel)
        state = replace(self.group, budget=self.scorer.batcher.budget, target=target)
        state, passes = state.to(torch.device("cpu")), self.scorer.passes - before
        shown = None if self.watch else _first_chains(state)
        return TaskResult(task.number, state, self._rows, passes, shown, check, stopped)

    def _begin(self) -> None:
        """Fill the blanks, unless the kernel's first step does so itself."""
        chains = self.group.chains
        if isinstance(self.kernel, Population):
            chains = self.kernel.first(chains, self.scorer, self.rng)
        chains = filled(chains, self.manifest.config.start, self.kernel, self.scorer, self.rng)
        self.group = replace(self.group, chains=chains, begun=True)

    def _go_on(self) -> None:
        while self.group.epoch < self.schedule.epochs:
            kernel = kernel_at(self.kernel, self.schedule, self.group.epoch)
            # What is begun ends as it began.
            begun = bool(self.group.chains.epoch_step.any())
            begins = not begun and sampler_for(self.scorer.model, kernel) is not None
            if begins or (self.group.buffers and rounds_of(kernel) is not None):
                self._in_rounds(kernel)
            else:
                self._epoch(kernel)

    def _epoch(self, kernel: Kernel) -> None:
        """Run one epoch in lock-step, or the rest of it."""
        chains = kernel.init(self.group.chains, self.scorer)
        self.group, begins = replace(self.group, chains=chains), not bool(chains.epoch_step.any())
        if begins:
            counts, rejected = nothing_yet(chains, len(self.manifest.experts))
            self.group = replace(self.group, counts=counts, rejected=rejected)
        # Recorded steps are those of whole epochs, in which no length changes.
        if begins and records_gibbs(kernel, self.scorer.model) and not chains.resizable:
            assert isinstance(kernel, Gibbs)
            self._recorded_epoch(kernel)
        elif begins and population_sampler(self.scorer.model, kernel) is not None:
            assert isinstance(kernel, Population)
            experts = len(self.manifest.experts)
            chains, row = self.populations.point(kernel, chains, experts)
            counts, rejected = (
                row[name].to(chains.chain.device) for name in ("counts", "rejected")
            )
            self.group = replace(self.group, chains=chains, counts=counts, rejected=rejected)
            self._show(chains)
        else:
            for after, info in epoch(kernel, chains, self.scorer, self.rng):
                self._count(after, info)
                self._show(after)
                self._end_if_due()
        self._end_epoch(kernel)
        self._end_if_due()

    def _recorded_epoch(self, kernel: Gibbs) -> None:
        """Run one epoch that accepts everything, in recorded steps."""
        chains = self.group.chains
        if self.gibbs is None or not self.gibbs.serves(kernel, chains):
            self.gibbs = RecordedGibbs(kernel, chains, self.scorer, self.rng)
        with refuse_out_of_memory():
            after, happened = self.gibbs.epoch(chains)
        novel, stuck = happened.unbind(1)
        steps, counts = after.epoch_step, self.group.counts.clone()
        counts[:, : len(COUNTS)] += torch.stack([steps, novel, novel, steps, steps, stuck], dim=1)
        self.group = replace(self.group, chains=after, counts=counts)
        self._show(after)

    def _count(self, chains: Chains, info: StepInfo) -> None:
        """Count a step in the order of `COUNTS`, and then the calls of each expert."""
        group, rows, one = self.group, info.proposal.rows, torch.ones_like(info.passes)
        stuck = info.proposal.log_q_reverse == -torch.inf
        columns = (info.accepted, info.novel, info.proposal.novel, one, info.passes, stuck)
        counts = torch.cat([torch.stack([each.long() for each in columns], dim=1), info.calls], 1)
        # A step without an energy calls no expert; a prior of lengths that the run found is last.
        counts = torch.nn.functional.pad(counts, (0, group.counts.shape[1] - counts.shape[1]))
        counts = group.counts.index_add(0, rows, counts)
        rejected = group.rejected[rows] | (info.proposal.masked & ~info.accepted[:, None])
        rejected = group.rejected.index_copy(0, rows, rejected)
        self.group = replace(group, chains=chains, counts=counts, rejected=rejected)

    def _end_epoch(self, kernel: Kernel) -> None:
        group, chains = self.group, self.group.chains
        grouped = chains.pass_cache is not None and chains.pass_cache.groups is not None
        free = chains.pass_cache is not None and not grouped
        if free or self._traces_both(grouped):
            raw, norm = both_energies(chains.sequences, self.scorer)
        else:
            raw = norm = torch.full_like(chains.log_weight, torch.nan)
        target, experts = self._known(kernel, chains)
        self.group = replace(group, chains=ended(chains))
        self._write(
            {
                "energy": torch.stack([raw, norm, target], dim=1),
                "counts": group.counts,
                "tokens": chains.tokens,
                "rejected": group.rejected,
                "lengths": chains.lengths,
                "sizes": sizes_of(chains.region, chains.bounds),
                "expert_energy": experts,
                "log_weight": chains.log_weight,
                "ancestor": chains.ancestor,
            }
        )

    def _traces_both(self, grouped: bool) -> bool:
        """Whether E_raw and E_norm of the epoch are worth a pass for each position.

        Passes of groups are another energy's: only those of kept sequences are.
        """
        every = self.manifest.config.execution.trace == "every" and not grouped
        return every or self.group.epoch in kept_epochs(self.manifest)

    def _known(self, kernel: Kernel, chains: Chains) -> tuple[Tensor, Tensor]:
        """Return the energy of an epoch's target and those of its experts, if they are known."""
        energy, known, count = kernel.energy, chains.part_values, len(self.manifest.experts)
        unknown = torch.full_like(chains.log_weight, torch.nan)
        if energy is None or known is None or known.of is None or not energy.leads(known.of):
            return unknown, unknown[:, None].repeat(1, count)
        whole = known.energy if energy.same_as(known.of) else energy.total(known.values)
        return whole, self._experts(energy, known.values)

    def _experts(
        self, energy: Energy, values: Float[Tensor, "n parts"]
    ) -> Float[Tensor, "n experts"]:
        """Return the values of the run's experts, by those of the parts of an epoch's energy.

        Burn-in may have other experts, or in another order. A prior of lengths that the run found
        comes last, and has no trace.
        """
        count = len(self.manifest.experts)
        experts = values.new_full((len(values), count), torch.nan)
        places = list(range(len(energy.parts)))
        others = () if self.kernel.energy is None else self.kernel.energy.others[:count]
        for column, (_, expert) in enumerate(others):
            found = [place for place in places if energy.parts[place][1].is_part(expert)]
            if found:
                experts[:, column] = values[:, found[0]]
                places.remove(found[0])
        return experts

    # Chains that advance asynchronously.

    def _in_rounds(self, kernel: Kernel) -> None:
        """Take the group through all epochs that one kernel allows, or until the task is over.

        An epoch's results are written as soon as the slowest chain has finished it. A task may end
        anywhere on the way: the buffers are then kept as they are, and the next task continues with
        the same rounds.
        """
        # Where the run may end, all chains meet.
        end = self.group.epoch + 1
        epochs = min(check for check in self.manifest.checks if check >= end)
        while end < epochs and _alike(kernel, kernel_at(self.kernel, self.schedule, end)):
            end += 1
        sampler = self._rounds_of_group(kernel)
        # Rounds change their buffers in place: the group has them wherever the task ends.
        self.group = replace(self.group, buffers=sampler.buffers.tensors())
        while True:
            # No chain may run further ahead than its epochs can be kept.
            ahead = self.group.epoch + sampler.kept
            sampler.limit.fill_(min(end, ahead))
            self.scorer.batcher.raise_if_stopped()
            with refuse_out_of_memory():
                sampler.advance()
            slowest = sampler.slowest()
            while self.group.epoch < min(slowest, end):
                self._write(self._completed(kernel, sampler.row(self.group.epoch)))
            if slowest >= end:
                break
            self._end_if_due()
            if self.watch is not None and time.monotonic() - self._shown >= _FRAME_SECONDS:
                self._shown = time.monotonic()
                self._show(sampler.snapshot(self.group.chains))
        chains = sampler.state(self.group.chains)
        self.group = replace(self.group, chains=chains, buffers={})
        self._end_if_due()

    def _completed(self, kernel: Kernel, row: Row) -> Row:
        """Return the results of an epoch with what rounds do not know of its sequences."""
        assert kernel.energy is not None
        chains, model = self.group.chains, self.scorer.model
        tokens, lengths = (row[name].to(model.device) for name in ("tokens", "lengths"))
        sequences = Sequences(tokens, lengths, source=chains.source)
        if kernel.energy.groups is not None and self._traces_both(True):
            raw, norm = both_energies(sequences, self.scorer)
            row["energy"][:, :2] = torch.stack([raw, norm], dim=1).cpu()
        values = [
            torch.full_like(chains.log_weight, torch.nan)
            if isinstance(part, MaskedEnergy)
            else evaluated(part, model, sequences)
            for _, part in kernel.energy.parts
        ]
        row["expert_energy"] = self._experts(kernel.energy, torch.stack(values, dim=1))
        return row

    def _rounds_of_group(self, kernel: Kernel) -> Rounds:
        """Return the rounds of the group as it was left, or from its start."""
        kept, sampler = self.group.buffers, self.sampler
        # A run of a GPU may continue elsewhere, where its windows are not recorded.
        made = sampler_for(self.scorer.model, kernel) or WindowRounds
        kind = SiteBuffers if issubclass(made, SiteRounds) else WindowBuffers
        buffers = kind(**kept) if kept else self._new_buffers(made, kernel)
        if sampler is None or not (_alike(sampler.kernel, kernel) and sampler.reload(buffers)):
            epochs = range(self.schedule.epochs)
            kernels = [kernel_at(self.kernel, self.schedule, epoch) for epoch in epochs]
            self.sampler = None  # what it has recorded makes room
            sampler = made(
                kernel, self.scorer, self.rng, buffers, kernels,
                shortest=self.manifest.shortest, mean=self.manifest.mean,
            )  # fmt: skip
        # What a GPU has recorded serves the next group too.
        self.sampler = sampler
        return sampler

    def _new_buffers(self, kind: type[Rounds], kernel: Kernel) -> Buffers:
        """Return the buffers of a group between epochs, with the passes of its sequences."""
        chains = kernel.init(self.group.chains, self.scorer)
        slots = min(self.scorer.slots_for(chains), chains.tokens.shape[1])
        buffers = new_buffers(
            kind, kernel, self.scorer.model, chains, self.group.epoch, slots, AHEAD,
            len(self.manifest.experts),
        )  # fmt: skip
        # What the buffers hold need not be kept twice.
        self.group = replace(self.group, chains=chains.forget())
        return buffers

    # Results.

    def _write(self, row: Row) -> None:
        """Keep the results of an epoch."""
        self.scorer.check()  # before anything of this epoch is kept
        if self.deliver is not None:
            self.deliver(self._task.number, self.group.epoch, traces_of(row))
        else:
            self._rows.append((self.group.epoch, traces_of(row)))
        self.group = replace(self.group, epoch=self.group.epoch + 1)

    def _show(self, chains: Chains) -> None:
        """Let an observer see some chains."""
        if self.watch is not None:
            self.watch(chains)

    def _end_if_due(self) -> None:
        """End the task, if it has lasted long enough or all chains have reached its end."""
        if self.group.epoch >= self._task.until or time.monotonic() >= self._deadline:
            raise TaskOver


def filled(chains: Chains, start: str, kernel: Kernel, scorer: Scorer, rng: Rng) -> Chains:
    """Return chains with their blanks filled, unless the kernel's first step does so itself."""
    blank = bool((chains.tokens == scorer.model.mask_id)[chains.inside].any())
    if not blank or kernel.fills_blanks:
        return chains
    return fill(chains, start, kernel.conditional, scorer, rng)


def _alike(one: Kernel, other: Kernel) -> bool:
    """Whether two kernels differ in nothing but the temperature of their target and their blocks.

    Rounds follow these from epoch to epoch.
    """
    same = rounds_of(one) is rounds_of(other)
    return same and with_leaves(one, _settled) == with_leaves(other, _settled)


def _settled(kernel: Kernel) -> Kernel:
    """Return a kernel with the temperature and the block that all have for a comparison."""
    if not isinstance(kernel, Metropolis):
        return kernel
    move = kernel.move.at(0, 1) if isinstance(kernel.move, Site) else kernel.move
    return replace(kernel, target_temperature=1.0, move=move)


def _first_chains(group: GroupState) -> Chains:
    """Return a few chains as they stand, for an observer in another process."""
    chains = replace(group.chains, tokens=group.buffers.get("tokens", group.chains.tokens))
    first = torch.arange(min(_SHOWN, len(chains.chain)))
    known = chains.part_values
    # It is sent to another process, which need not know the energy to show its value.
    shown = None if known is None else replace(known.rows(first), of=None)
    return replace(chains.rows(first), part_values=shown)


def _with_target(group: GroupState, kernel: Kernel) -> GroupState:
    """Return a group whose chains know again whose parts their values are of."""
    energies, known = energies_of(kernel), group.chains.part_values
    if known is None or known.of is not None:
        return group
    bound = None
    if 0 <= group.target < len(energies):
        energy, values = energies[group.target], known.values
        if values.shape[1] == AcceptanceStages(energy).columns(group.chains.tokens.shape[1]):
            # Its weights may be those of another epoch: what is known are the parts.
            bound = PartValues(energy, values, energy.total(values))
    return replace(group, chains=replace(group.chains, part_values=bound))


def _target_of(group: GroupState, kernel: Kernel) -> int:
    """Return the number of the energy whose parts the chains know, −1 if there is none."""
    known = group.chains.part_values
    if known is None or known.of is None:
        return -1
    energies = enumerate(energies_of(kernel))
    return next((n for n, one in energies if one.has_parts_of(known.of)), -1)


def both_energies(
    sequences: Sequences, scorer: Scorer
) -> tuple[Float[Tensor, " n"], Float[Tensor, " n"]]:
    """Return E_raw and E_norm of some sequences, at no pass where theirs are known."""
    if sequences.pass_cache is None or sequences.pass_cache.groups is not None:
        sites = scorer.cache(sequences)
    else:
        sites = scorer.with_normaliser(sequences.pass_cache, sequences.inside)
    sequences = replace(sequences, pass_cache=sites)
    return Raw()(scorer.model, sequences), Norm()(scorer.model, sequences)


def check_precision(model: MaskedModel, chains: Chains) -> PrecisionCheck | None:
    """Compare the energies of the first chains with those of the exact model, if it is coarser."""
    if model.exact is None:
        return None
    first = chains.rows(torch.arange(min(_MEASURED, len(chains.chain)), device=chains.chain.device))
    energies = []
    for one in (model, model.exact):
        sites = Scorer(one).cache(first.to(one.device).sequences)
        terms = torch.stack([-sites.logit, sites.log_normaliser - sites.logit]).cpu()
        energies.append(torch.where(first.inside.cpu(), terms, 0.0).sum(2))
    raw_shift, norm_shift = (energies[0] - energies[1]).abs()
    return PrecisionCheck(
        model.precision, len(first.chain), float(raw_shift.mean()), float(raw_shift.max()),
        float(norm_shift.mean()), float(norm_shift.max()),
    )  # fmt: skip
