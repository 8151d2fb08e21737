"""The manifest of a run that begins: its config, what that says about the run, and its signature.

A signature is everything that decides the numbers of a run, in one line.
"""

from __future__ import annotations

import hashlib
import platform
from collections.abc import Iterable
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

from maskov.config import Inputs, LinearSchedule, Manifest, RunConfig, Schedule
from maskov.energies.base import distinct_names
from maskov.energies.stages import DelayedAcceptance
from maskov.errors import InputError
from maskov.kernels import Exchange, Kernel, Population
from maskov.kernels.base import leaves
from maskov.kernels.registry import energy_name, kernel_name, to_data
from maskov.models import MaskedModel
from maskov.moves import Resize, Site, Span, Sweep
from maskov.parts import part_text
from maskov.starts import Layout
from maskov.version import __version__

_SHORT = 12


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


# The signature.


def versions() -> dict[str, str]:
    """Return the versions that a number depends on."""
    # Asked of the installation, since importing transformers only for this takes a while.
    others = {name: version(name) for name in ("torch", "transformers", "numpy")}
    return {"maskov": __version__, **others, "python": platform.python_version()}


def signature(config: RunConfig, kernel: Kernel, energy_models: dict[str, str]) -> str:
    """Return one line that says how a number came about."""
    model, schedule = config.model, config.schedule
    parts = [
        f"model:{_named(model.name)}#{model.fingerprint[:_SHORT]}",
        f"precision:{model.precision}",
        f"kernel:{kernel_name(kernel)}",
    ]
    if model.source.remove_smoothing:
        parts.insert(1, f"remove-smoothing:{model.source.remove_smoothing}")
    if model.source.extra_letters:
        parts.insert(1, f"extra-letters:{model.source.extra_letters}")
    if kernel.energy is not None:
        parts.append(f"energy:{kernel.energy}")
    parts += [f"model:#{hash_[:_SHORT]}" for hash_ in energy_models.values()]
    block = 1
    for move in moves_of(kernel):
        if isinstance(move, Site):
            given = {
                k: v
                for k, v in vars(move.conditional).items()
                if v is not None and k != "constraints"
            }
            parts.append("proposal:" + ",".join(f"{key}={value}" for key, value in given.items()))
            if isinstance(move.positions, Sweep):
                parts.append(f"order:{move.positions.order}")
                block = move.positions.block
        else:
            parts.append(f"move:{move if isinstance(move, Span | Resize) else part_text(move)}")
    constraints = map(str, kernel.conditional.constraints)
    parts += [f"constraints:{';'.join(constraints)}"] if kernel.conditional.constraints else []
    if isinstance(kernel, Exchange):
        ladder = ",".join(f"{beta:g}" for beta in kernel.ladder)
        parts.append(f"ladder:{ladder}" if ladder else f"replicas:{kernel.replicas}")
    if isinstance(kernel, Population):
        parts.append(
            f"population:{kernel.particles},from={kernel.start},points={len(kernel.path)},"
            f"moves={kernel.moves},longer={kernel.longer}"
        )
    early = [getattr(leaf, "delayed", None) for leaf in leaves(kernel)]
    names = dict.fromkeys(str(one) for one in early if isinstance(one, DelayedAcceptance))
    if names:
        parts.append(f"delayed:{'/'.join(names)}")
    temperature = 1.0 if kernel.target is None else kernel.target.temperature
    parts += [
        f"block:{_value(schedule.block, block)}",
        f"T:{_value(schedule.target_temperature, temperature)}",
        f"epochs:{schedule.epochs}-{schedule.burn_in}",
        *([f"burn-in:{schedule.burn_in_energy}"] if schedule.burn_in_energy else []),
        f"forced:{schedule.force_accept}",
        f"start:{config.start if config.inputs.texts is None else 'texts'}",
        f"{_inputs(config.inputs)}",
        f"thin:{config.thin}",
        *([f"length-prior:{config.length_prior}"] if config.inputs.sampled else []),
        f"chains:{config.all_chains}",
        f"seed:{config.seed}",
        f"version:{__version__}",
    ]
    if config.until is not None:
        parts.insert(-1, f"until:converged,effective={config.until.effective}")
    return "|".join(parts)


def moves_of(kernel: Kernel) -> list[Any]:
    """Return the moves of a kernel or of those it is made of."""
    return [leaf.move for leaf in leaves(kernel) if hasattr(leaf, "move")]


def sweeps_of(kernel: Kernel) -> list[Sweep]:
    """Return how the moves of a kernel sweep over sites, where they do."""
    positions = [move.positions for move in moves_of(kernel) if isinstance(move, Site)]
    return [sweep for sweep in positions if isinstance(sweep, Sweep)]


def resizes(kernel: Kernel) -> bool:
    """Whether some move of a kernel changes the length."""
    return any(isinstance(move, Resize) for move in moves_of(kernel))


def _named(model: str) -> str:
    """Name a model; of a whole path its end, since the rest is of one machine."""
    return Path(model).name if Path(model).is_absolute() else model


def _inputs(inputs: Inputs) -> str:
    """Name the length, or hash the texts that the chains begin from."""
    if inputs.length is not None:
        shortest, longest = inputs.length
        name = "lengths" if inputs.sampled else "length"
        held = f"{name}:{shortest}" if shortest == longest else f"{name}:{shortest}-{longest}"
        return held if inputs.texts is None else f"{held}|texts:#{_hash(inputs.texts)}"
    if inputs.sources is not None:
        sampled = ",sampled" if inputs.sampled else ""
        drafts = "" if inputs.texts is None else f"|texts:#{_hash(inputs.texts)}"
        return f"lengths:{inputs.lengths}{sampled}|sources:#{_hash(inputs.sources)}{drafts}"
    if inputs.templates is not None:
        return f"templates:#{_hash(inputs.templates)}"
    texts = f"texts:#{_hash(inputs.texts or ())}"
    return texts if inputs.frozen is None else f"{texts}|frozen:#{_hash(map(str, inputs.frozen))}"


def _hash(lines: Iterable[str]) -> str:
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()[:_SHORT]


def _value(scheduled: LinearSchedule | None, otherwise: float) -> str:
    return f"{otherwise:g}" if scheduled is None else str(scheduled)
