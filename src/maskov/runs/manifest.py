"""The manifest of a run that begins: its config, and what that says about the run."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from maskov.config import Manifest, RunConfig
from maskov.energies.base import distinct_names
from maskov.errors import InputError
from maskov.kernels import Exchange, Kernel
from maskov.kernels.registry import energy_name, kernel_name, to_data
from maskov.models import MaskedModel
from maskov.runs.signature import signature, sweeps_of, versions
from maskov.schedules import Schedule
from maskov.starts import Layout


def kernel_data(kernel: Kernel, alone: bool) -> dict[str, Any]:
    """Return the kernel as plain data; one that cannot be built again must run `alone`."""
    try:
        data: dict[str, Any] = to_data(kernel)
    except InputError:
        if not alone:
            raise
        return {"part": type(kernel).__name__, "unnamed": True}
    return data


def manifest_of(
    config: RunConfig,
    model: MaskedModel,
    kernel: Kernel,
    energy_models: dict[str, str],
    layout: Layout,
    name: str = "",
) -> Manifest:
    """Return the config with what is known of the run before it begins."""
    invariant, notes = leaves_invariant(kernel, config.schedule)
    if model.caution:
        notes.append(model.caution)
    stay = {token for tokens in layout.reference for token in tokens} & model.only_given
    if stay:
        names = ", ".join(f"'{name}'" for name in sorted(model.token_strings(sorted(stay))))
        notes.append(
            f"letters of the given sequences that are never proposed stay as they are: {names} "
            "(extra_letters lets them be proposed)"
        )
    if config.until is not None:
        notes.append(
            "when the run ends is decided by its own diagnostics: every step leaves the target "
            "invariant, the number of epochs depends on the chains"
        )
    sweeps = sweeps_of(kernel)
    return Manifest(
        config=config,
        created=datetime.now(UTC).isoformat(timespec="seconds"),
        signature=signature(config, kernel, energy_models),
        kernel=kernel_name(kernel),
        energy=None if kernel.energy is None else energy_name(kernel.energy),
        order=sweeps[0].order if len(sweeps) == 1 else None,
        block=sweeps[0].block if len(sweeps) == 1 else None,
        leaves_invariant=invariant,
        notes=tuple(notes),
        versions=versions(),
        energy_models=energy_models,
        width=layout.width,
        shortest=layout.shortest,
        mean=layout.mean,
        experts=experts_of(kernel),
        expert_weights=() if kernel.energy is None else tuple(w for w, _ in kernel.energy.others),
        compares=kernel.energy is not None and kernel.energy.compares,
        regions=max(map(len, layout.bounds), default=0),
        replicas=kernel.replicas,
        particles=kernel.particles,
        ladder=(kernel.ladder or None) if isinstance(kernel, Exchange) else None,
        name=name,
    )


def experts_of(kernel: Kernel) -> tuple[str, ...]:
    """Return names of the energy's parts that are not masked passes, each another."""
    others = () if kernel.energy is None else kernel.energy.others
    return distinct_names(part for _, part in others)


def leaves_invariant(kernel: Kernel, schedule: Schedule) -> tuple[bool, list[str]]:
    """Say whether the kept epochs leave one target invariant, and why not or under what limits."""
    notes = []
    invariant = kernel.leaves_invariant
    if not invariant:
        notes.append(
            f"{kernel_name(kernel)} leaves no target invariant: its samples belong to neither "
            "energy"
        )
    elif not schedule.fixed_target():
        invariant = False
        notes.append(
            "the target temperature still moves, or acceptance is still forced, after burn-in: "
            "there is no fixed target"
        )
    if schedule.block is not None and schedule.block.settled_at() > schedule.burn_in:
        notes.append(
            "the block size still moves after burn-in: the target is unchanged, the mixing is not"
        )
    if kernel.leaves_invariant and not kernel.reaches_everything:
        notes.append(
            "some sequences can never be proposed; where a proposal is truncated, a small epsilon "
            "makes the chain ergodic again"
        )
    return invariant, notes
