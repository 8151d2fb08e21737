"""The manifest of a run: made when it begins, and what it describes, built again.

A manifest is a config, what that says about the run, and its signature: everything that decides
its numbers, in one line. From it, the model, kernel and sequences are built again, to continue or
replay the run.
"""

from __future__ import annotations

import hashlib
import json
import platform
from collections.abc import Iterator, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from types import MappingProxyType
from typing import Any

from maskov.config import (
    GROUPS,
    Inputs,
    LinearSchedule,
    Manifest,
    ModelConfig,
    ModelSource,
    RunConfig,
    Schedule,
)
from maskov.energies import Energy, grouped, parse_energy
from maskov.energies.base import Sum, distinct_names
from maskov.energies.counting import LengthPrior
from maskov.energies.networks import Loading
from maskov.energies.stages import DelayedAcceptance
from maskov.errors import InputError, RunError, refuse
from maskov.kernels import Kernel, Population
from maskov.kernels.base import BurnIn, energies_of, leaves
from maskov.kernels.registry import (
    energy_name,
    imported_parts,
    kernel_from_data,
    kernel_name,
    to_data,
)
from maskov.models import MaskedModel, load
from maskov.models.conditional import ConditionalModel
from maskov.moves import Resize, Site, Sweep
from maskov.parts import is_built_in, part_text
from maskov.starts import Layout
from maskov.version import __version__

_SHORT = 12


def kernel_data(kernel: Kernel, alone: bool) -> dict[str, Any]:
    """Return the kernel as plain data; one that cannot be built again must run `alone`."""
    try:
        return dict(to_data(kernel))
    except InputError:
        if not alone:
            raise
        return {"part": type(kernel).__name__, "unnamed": True}


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
    stay = {token for one in layout.starts for token in one.reference} & model.only_given
    names = ", ".join(f"'{name}'" for name in sorted(model.token_strings(sorted(stay))))
    further = (
        (model.caution, model.caution),
        (
            stay,
            f"letters of the given sequences that are never proposed stay as they are: {names} "
            "(extra_letters lets them be proposed)",
        ),
        (
            config.until is not None,
            "when the run ends is decided by its own diagnostics: every step leaves the target "
            "invariant, the number of epochs depends on the chains",
        ),
    )
    notes += [note for holds, note in further if holds]
    sweeps, energy = sweeps_of(kernel), kernel.energy
    others = () if energy is None else energy.others
    return Manifest(
        config=config,
        created=datetime.now(UTC).isoformat(timespec="seconds"),
        signature=signature(config, kernel, energy_models),
        kernel=kernel_name(kernel),
        energy=None if energy is None else energy_name(energy),
        order=sweeps[0].order if len(sweeps) == 1 else None,
        block=sweeps[0].block if len(sweeps) == 1 else None,
        leaves_invariant=invariant,
        notes=tuple(notes),
        versions=versions(),
        energy_models=energy_models,
        width=layout.width,
        shortest=layout.shortest,
        mean=layout.mean,
        # Parts of the energy that are not masked passes; each has another name.
        experts=distinct_names(part for _, part in others),
        expert_weights=tuple(weight for weight, _ in others),
        compares=energy is not None and energy.compares,
        regions=max(len(one.bounds) for one in layout.starts),
        particles=kernel.particles,
        name=name,
    )


def leaves_invariant(kernel: Kernel, schedule: Schedule) -> tuple[bool, list[str]]:
    """Say whether the kept epochs leave one target invariant, and why not or under what limits."""
    invariant, fixed, block = kernel.leaves_invariant, schedule.fixed_target(), schedule.block
    notes = (
        (
            not invariant,
            f"{kernel_name(kernel)} leaves no target invariant: its samples belong to neither "
            "energy",
        ),
        (
            invariant and not fixed,
            "the target temperature still moves, or acceptance is still forced, after burn-in: "
            "there is no fixed target",
        ),
        (
            block is not None and block.settled_at() > schedule.burn_in,
            "the block size still moves after burn-in: the target is unchanged, the mixing is not",
        ),
        (
            invariant and not any(leaf.reaches_everything for leaf in leaves(kernel)),
            "some sequences can never be proposed; where a proposal is truncated, a small epsilon "
            "makes the chain ergodic again",
        ),
    )
    return invariant and fixed, [note for holds, note in notes if holds]


# The signature.


def versions() -> dict[str, str]:
    """Return the versions that a number depends on."""
    # Asked of the installation, since importing transformers only for this takes a while.
    return {
        "maskov": __version__,
        **{name: version(name) for name in ("torch", "transformers", "numpy")},
        "python": platform.python_version(),
    }


def signature(config: RunConfig, kernel: Kernel, energy_models: dict[str, str]) -> str:
    """Return one line that says how a number came about."""
    model, schedule, inputs = config.model, config.schedule, config.inputs
    sweeps, target, constraints = sweeps_of(kernel), kernel.target, kernel.conditional.constraints
    early = [getattr(leaf, "delayed", None) for leaf in leaves(kernel)]
    early_names = dict.fromkeys(str(one) for one in early if isinstance(one, DelayedAcceptance))
    # Of a whole path its end, since the rest is of one machine.
    named = Path(model.name).name if Path(model.name).is_absolute() else model.name
    parts = (
        ("model", f"{named}#{model.fingerprint[:_SHORT]}"),
        ("extra-letters", model.source.extra_letters or None),
        ("remove-smoothing", model.source.remove_smoothing or None),
        ("precision", model.precision),
        ("kernel", kernel_name(kernel)),
        ("energy", kernel.energy),
        *(("model", f"#{found[:_SHORT]}") for found in energy_models.values()),
        *(part for move in moves_of(kernel) for part in _signed_move(move)),
        ("constraints", ";".join(map(str, constraints)) or None),
        (
            "population",
            f"{kernel.particles},from={kernel.start},points={len(kernel.path)},"
            f"moves={kernel.moves},longer={kernel.longer}"
            if isinstance(kernel, Population)
            else None,
        ),
        ("delayed", "/".join(early_names) or None),
        ("block", _value(schedule.block, sweeps[-1].block if sweeps else 1)),
        ("T", _value(schedule.target_temperature, 1.0 if target is None else target.temperature)),
        ("epochs", f"{schedule.epochs}-{schedule.burn_in}"),
        ("burn-in", schedule.burn_in_energy),
        ("forced", schedule.force_accept),
        ("start", config.start if inputs.texts is None else "texts"),
        *_signed_inputs(inputs),
        ("thin", config.thin),
        ("length-prior", config.length_prior if inputs.sampled else None),
        ("chains", config.all_chains),
        ("seed", config.seed),
        ("until", config.until and f"converged,effective={config.until.effective}"),
        ("version", __version__),
    )
    return "|".join(f"{name}:{value}" for name, value in parts if value is not None)


def _signed_move(move: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(move, Site):
        given = {
            k: v for k, v in vars(move.conditional).items() if v is not None and k != "constraints"
        }
        yield "proposal", ",".join(f"{key}={value}" for key, value in given.items())
        if isinstance(move.positions, Sweep):
            yield "order", move.positions.order
    else:
        yield "move", move if is_built_in(move) else part_text(move)


def _signed_inputs(inputs: Inputs) -> Iterator[tuple[str, Any]]:
    """Name the lengths, and hash the texts that the chains begin from."""
    if inputs.length is not None:
        lengths = "-".join(map(str, sorted(set(inputs.length))))
        yield "lengths" if inputs.sampled else "length", lengths
    if inputs.sources is not None:
        yield "lengths", inputs.lengths + ",sampled" * inputs.sampled
    for name in ("sources", "templates", "texts", "frozen"):
        lines = getattr(inputs, name)
        if lines is not None:
            text = "\n".join(map(str, lines))
            yield name, f"#{hashlib.sha256(text.encode()).hexdigest()[:_SHORT]}"


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


def _value(scheduled: LinearSchedule | None, otherwise: float) -> str:
    return f"{otherwise:g}" if scheduled is None else str(scheduled)


def load_model(
    config: ModelConfig,
    sources: tuple[str, ...] | None,
    device: str | None = None,
    trust_remote_code: bool = False,
    allow_download: bool = False,
) -> MaskedModel:
    """Load the model that a run began with, where it was unless another device is named.

    A manifest may be anybody's: the model it names is downloaded, and code that comes with it run,
    only if that is allowed here. A model that translates is one with its `sources`.
    """
    check_trusted(config.source, trust_remote_code)
    model = load(
        **vars(config.source),
        device=device or config.device,
        precision=config.precision,
        allow_download=allow_download,
    )
    return model.given(list(sources or ())) if isinstance(model, ConditionalModel) else model


def models_of(kernel: Kernel) -> dict[str, str]:
    """Return the fingerprint of each model that the energies have besides the masked one."""
    return {
        name: found for energy in energies_of(kernel) for name, found in energy.models().items()
    }


def own_parts(config: RunConfig) -> list[str]:
    """Return the import paths that the description of a run names."""
    return imported_parts([config.kernel, {"energy": config.schedule.burn_in_energy}])


def usual_burn_in(kernel: Kernel) -> Energy | None:
    """Return the energy that burn-in has by default: the kernel's own with positions in groups."""
    if kernel.energy is None or kernel.energy.masked is None:
        return None
    parts = tuple(part for part in kernel.energy.parts if not isinstance(part[1], LengthPrior))
    return grouped(parts[0][1] if len(parts) == 1 and parts[0][0] == 1 else Sum(parts), GROUPS)


def with_burn_in(
    kernel: Kernel,
    schedule: Schedule,
    model: MaskedModel,
    trust_remote_code: bool = False,
    trust_parts: bool = False,
    allow_download: bool = True,
    known: Mapping[str, Energy] = MappingProxyType({}),
) -> Kernel:
    """Return the kernel with the energy that the schedule's burn-in has, if it has one.

    Energies that are `known` by their names are taken as they are, and the usual one has the
    experts of the kernel's own.
    """
    text = schedule.burn_in_energy
    if text is None:
        return kernel
    first = known.get(text) or usual_burn_in(kernel)
    if first is None or energy_name(first) != text:
        loading = Loading(model.device, trust_remote_code, allow_download)
        first = parse_energy(text, loading=loading, trust_parts=trust_parts)
    kernel.with_energy(first)  # which refuses what it cannot do
    return BurnIn(first, schedule.burn_in, (kernel,))


def kernel_of(
    manifest: Manifest,
    model: MaskedModel,
    trust_parts: bool = False,
    allow_download: bool = False,
    given: Kernel | None = None,
    energy: Energy | None = None,
) -> Kernel:
    """Build the kernel of a run again, with the energy of its burn-in.

    A kernel or an energy that is given takes the place of the one that the manifest names, if it is
    the same.
    """
    config, trust = manifest.config, manifest.config.model.source.trust_remote_code
    loading = Loading(model.device, trust, allow_download)
    _check_given(manifest, given, energy)
    target = energy if given is None else given.energy
    usual = None if target is None else grouped(target, GROUPS)
    known = {energy_name(one): one for one in (target, usual) if one is not None}
    try:
        kernel = given or kernel_from_data(config.kernel, loading, trust_parts, known)
        return with_burn_in(
            kernel, config.schedule, model, trust, trust_parts, allow_download, known
        )
    except (KeyError, TypeError, ValueError, OverflowError, AttributeError) as error:
        raise RunError("the manifest of this run is damaged: invalid 'kernel'.") from error
    except InputError as error:
        # A custom part that is missing is told as it is.
        if own_parts(config):
            raise
        raise RunError(
            "the manifest of this run is damaged: invalid 'kernel' or 'schedule.burn_in_energy' "
            f"({error})"
        ) from error


def _check_given(manifest: Manifest, kernel: Kernel | None, energy: Energy | None) -> None:
    """Refuse parts that are not those of the run."""
    refuse(
        (
            kernel is not None and energy is not None,
            "a kernel has its energy: give `kernel` or `energy`, not both.",
        ),
        (
            energy is not None and energy_name(energy) != manifest.energy,
            f"the energy '{energy}' is not that of this run, '{manifest.energy}'.",
        ),
    )
    if kernel is None:
        return
    with suppress(InputError):  # nobody can tell how it was made
        if json.loads(json.dumps(to_data(kernel))) == manifest.config.kernel:
            return
    raise InputError(
        "the kernel is not the one that this run began with: give one with the same parts "
        "and arguments, or start a new run."
    )


def check_trusted(source: ModelSource, trust_remote_code: bool) -> None:
    """Refuse to run code on a manifest's word: it may be anybody's."""
    refuse(
        (
            source.trust_remote_code and not trust_remote_code,
            f"the model '{source.name}' of this run brings its own code; if you trust it, say "
            "so with --trust-remote-code.",
        ),
        kind=RunError,
    )


def check_same(name: str, expected: str | None, found: str) -> None:
    """Refuse a model other than the one that a run began with."""
    refuse(
        (
            expected != found,
            f"the model '{name}' is not the one this run began with (its weights, its tokenizer "
            "or its special tokens have changed); put the old one back, or start a new run.",
        ),
        kind=RunError,
    )
