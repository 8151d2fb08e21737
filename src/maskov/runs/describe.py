"""Kernels and schedules as plain data and back, for manifests and the command line."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, replace
from typing import Any, cast

from maskov.energies import Autoregressive, parse_energy
from maskov.errors import InputError
from maskov.kernels import Delayed, Gibbs, Kernel, LowestConfidence, Metropolis, Sweep
from maskov.moves import MaskedConditional
from maskov.schedules import Linear, Schedule

KERNELS = ("mh", "gibbs", "mask-predict")


def describe_kernel(kernel: Kernel) -> dict[str, Any]:
    """Return a kernel as plain data; one made elsewhere is only named, as `custom`.

    Types are compared exactly: a subclass may do anything, and would be rebuilt as its parent.
    """
    parts = (type(kernel), type(kernel.proposal), type(kernel.positions))
    if parts == (Gibbs, MaskedConditional, LowestConfidence):
        assert isinstance(kernel.positions, LowestConfidence)
        return {
            "name": "mask-predict",
            "iterations": kernel.positions.iterations,
            "proposal": asdict(kernel.proposal),
        }
    if parts[0] not in (Gibbs, Metropolis) or parts[1:] != (MaskedConditional, Sweep):
        return {"name": type(kernel).__name__, "custom": True}
    assert isinstance(kernel.positions, Sweep)
    data: dict[str, Any] = {
        "proposal": asdict(kernel.proposal),
        "order": kernel.positions.order,
        "block": kernel.positions.block,
    }
    if isinstance(kernel, Metropolis):
        return {
            "name": "mh",
            "energy": str(kernel.energy),
            "target_temperature": kernel.target_temperature,
            "delayed": asdict(kernel.delayed),
            **data,
        }
    return {"name": "gibbs", **data}


def build_kernel(
    data: dict[str, Any], load: Callable[[str], Autoregressive] = Autoregressive
) -> Kernel:
    """Build the kernel that `describe_kernel` described."""
    if data["name"] == "mask-predict":
        proposal = MaskedConditional(**data["proposal"])
        return Gibbs(proposal, LowestConfidence(data["iterations"]))
    proposal = MaskedConditional(**data["proposal"])
    positions = Sweep(data["order"], data["block"])
    if data["name"] == "mh":
        energy = parse_energy(data["energy"], load=load)
        delayed = Delayed(**data.get("delayed", {"nearest": 0}))
        return Metropolis(energy, proposal, positions, data["target_temperature"], delayed)
    if data["name"] == "gibbs":
        return Gibbs(proposal, positions)
    raise InputError(f"unknown kernel '{data['name']}'; use one of {', '.join(KERNELS)}.")


def describe_schedule(schedule: Schedule) -> dict[str, Any]:
    """Return a schedule as plain data."""
    return asdict(schedule)


def build_schedule(data: dict[str, Any]) -> Schedule:
    """Build the schedule that `describe_schedule` described."""
    fields = dict(data)
    for name in ("target_temperature", "block"):
        if fields[name] is not None:
            fields[name] = Linear(**fields[name])
    return Schedule(**fields)


def kernel_at(kernel: Kernel, schedule: Schedule, epoch: int) -> Kernel:
    """Return the kernel as the schedule has it in one epoch."""
    positions = kernel.positions
    if isinstance(positions, LowestConfidence):
        positions = replace(positions, iteration=epoch)
    elif schedule.block is not None and isinstance(positions, Sweep):
        positions = replace(positions, block=schedule.block_at(epoch))
    if epoch < schedule.forced_epochs:
        # To accept everything is to be degenerate Gibbs, which needs no energies.
        return Gibbs(kernel.proposal, positions)
    changes: dict[str, Any] = {}
    if positions is not kernel.positions:
        changes["positions"] = positions
    if isinstance(kernel, Metropolis) and schedule.target_temperature is not None:
        changes["target_temperature"] = schedule.target_temperature.at(epoch)
    # Kernels are frozen dataclasses; one made elsewhere need not be, if nothing changes.
    return cast(Kernel, replace(cast(Any, kernel), **changes)) if changes else kernel


def leaves_invariant(kernel: Kernel, schedule: Schedule) -> tuple[bool, list[str]]:
    """Say whether the kept epochs leave one target invariant, and why not or under what limits."""
    notes = []
    invariant = kernel.leaves_invariant
    if not invariant:
        notes.append(
            f"{describe_kernel(kernel)['name']} leaves no target invariant: its samples belong to "
            "neither energy"
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
    if kernel.leaves_invariant and not kernel.proposal.reaches_everything:
        notes.append(
            "the proposal is truncated: some sequences can never be proposed; a small epsilon "
            "makes the chain ergodic again"
        )
    return invariant, notes
