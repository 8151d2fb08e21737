"""The model, kernel and sequences of a run again, from its manifest: to go on, or to replay it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any

from maskov.config import GROUPS, Manifest, RunConfig, Schedule, to_json
from maskov.energies import Energy, grouped, parse_energy
from maskov.energies.base import Sum
from maskov.energies.counting import LengthPrior
from maskov.energies.networks import Loading
from maskov.errors import InputError, RunError
from maskov.kernels import Exchange, Kernel
from maskov.kernels.base import BurnIn, energies_of
from maskov.kernels.registry import energy_name, imported_parts, kernel_from_data, to_data
from maskov.models import MaskedModel, load
from maskov.models.conditional import ConditionalModel
from maskov.runs.inputs import layout_of
from maskov.starts import Layout


@dataclass(frozen=True)
class Parts:
    """What moves the chains of a run, and where they began."""

    kernel: Kernel
    layout: Layout


@dataclass(frozen=True)
class GivenParts:
    """A kernel or an energy to use in place of the one that a manifest names, if it is the same."""

    kernel: Kernel | None = None
    energy: Energy | None = None

    def check(self, manifest: Manifest) -> None:
        """Refuse parts that are not those of the run."""
        if self.kernel is not None and self.energy is not None:
            raise InputError("a kernel has its energy: give `kernel` or `energy`, not both.")
        if self.energy is not None and energy_name(self.energy) != manifest.energy:
            raise InputError(
                f"the energy '{self.energy}' is not that of this run, '{manifest.energy}'."
            )
        if self.kernel is not None and not self._is_that_of(manifest):
            raise InputError(
                "the kernel is not the one that this run began with: give one with the same parts "
                "and arguments, or start a new run."
            )

    def kernel_of(self, manifest: Manifest) -> Kernel | None:
        """Return the kernel, with the replicas of the run."""
        data = manifest.config.kernel
        if self.kernel is None or isinstance(self.kernel, Exchange) or not _exchanges(data):
            return self.kernel
        return Exchange(self.kernel, tuple(data["ladder"]), data["replicas"])

    def energies(self) -> dict[str, Energy]:
        """Return the energies that are known by name: that of the target and its usual burn-in."""
        energy = self.energy if self.kernel is None else self.kernel.energy
        first = None if energy is None else grouped(energy, GROUPS)
        return {energy_name(one): one for one in (energy, first) if one is not None}

    def _is_that_of(self, manifest: Manifest) -> bool:
        data = manifest.config.kernel
        if _exchanges(data) and not isinstance(self.kernel, Exchange):
            data = data["kernel"]
        try:
            return bool(json.loads(json.dumps(to_data(self.kernel))) == data)
        except InputError:  # nobody can tell how it was made
            return False


def _exchanges(data: dict[str, Any]) -> bool:
    return data.get("part") == "exchange"


def load_model(
    manifest: Manifest,
    device: str | None = None,
    trust_remote_code: bool = False,
    allow_download: bool = False,
) -> MaskedModel:
    """Load the model of a run again, where it was unless another device is named.

    A manifest may be anybody's: the model it names is downloaded only if that is allowed here.
    """
    check_trusted(manifest, trust_remote_code)
    config = manifest.config.model
    model = load(
        config.source.name,
        device or config.device,
        config.precision,
        config.source.tokenizer,
        config.source.trust_remote_code,
        allow_download,
        config.source.prefix,
        config.source.remove_smoothing,
        config.source.extra_letters,
    )
    if isinstance(model, ConditionalModel):
        return model.given(list(manifest.inputs.sources or ()))
    return model


def rebuild(
    manifest: Manifest,
    model: MaskedModel,
    trust_parts: bool = False,
    allow_download: bool = False,
    given: GivenParts | None = None,
) -> Parts:
    """Build kernel and layout again; refuse a model or `given` parts that have changed."""
    check_same(manifest.config.model.name, manifest.config.model.fingerprint, model.fingerprint())
    kernel = kernel_of(manifest, model, trust_parts, allow_download, given)
    for name, found in models_of(kernel).items():
        check_same(name, manifest.energy_models.get(name), found)
    return Parts(kernel, _layout(manifest, model, kernel))


def models_of(kernel: Kernel) -> dict[str, str]:
    """Return the fingerprint of each model that the energies have beside the masked one."""
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
    return BurnIn(kernel, first, schedule.burn_in)


def _layout(manifest: Manifest, model: MaskedModel, kernel: Kernel) -> Layout:
    config = manifest.config
    constraints = kernel.conditional.constraints
    layout = layout_of(model, config.inputs, config.chains, config.seed, constraints)
    found = (len(layout.tokens), layout.width, layout.shortest)
    if found != (manifest.chains, manifest.width, manifest.shortest):
        raise RunError("the manifest of this run is damaged: 'inputs' give other sequences.")
    return layout


def kernel_of(
    manifest: Manifest,
    model: MaskedModel,
    trust_parts: bool = False,
    allow_download: bool = False,
    given: GivenParts | None = None,
) -> Kernel:
    """Build the kernel of a run again, with the energy of its burn-in."""
    config, trust = manifest.config, manifest.config.model.source.trust_remote_code
    loading = Loading(model.device, trust, allow_download)
    given = given or GivenParts()
    given.check(manifest)
    known = given.energies()
    try:
        kernel = given.kernel_of(manifest) or kernel_from_data(
            config.kernel, loading, trust_parts, known
        )
        if isinstance(kernel, Exchange) and manifest.ladder is not None:
            kernel = replace(kernel, ladder=manifest.ladder)
        if kernel.replicas != manifest.replicas:
            raise InputError("it has another number of replicas")
    except (KeyError, TypeError, ValueError, OverflowError, AttributeError) as error:
        raise RunError("the manifest of this run is damaged: invalid 'kernel'.") from error
    except InputError as error:
        # A part of the user's own that is missing is told as it is.
        if own_parts(config):
            raise
        raise RunError(
            f"the manifest of this run is damaged: invalid 'kernel' ({error})"
        ) from error
    try:
        return with_burn_in(
            kernel, config.schedule, model, trust, trust_parts, allow_download, known
        )
    except InputError as error:
        if own_parts(config):
            raise
        raise RunError(
            f"the manifest of this run is damaged: invalid 'schedule.burn_in_energy' ({error})"
        ) from error


def check_trusted(manifest: Manifest, trust_remote_code: bool) -> None:
    """Refuse to run code on a manifest's word: it may be anybody's."""
    source = manifest.config.model.source
    if source.trust_remote_code and not trust_remote_code:
        raise RunError(
            f"the model '{source.name}' of this run brings code of its own; if you trust it, say "
            "so with --trust-remote-code."
        )


def check_same(name: str, expected: str | None, found: str) -> None:
    """Refuse a model other than the one that a run began with."""
    if expected != found:
        raise RunError(
            f"the model '{name}' is not the one this run began with (its weights, its tokenizer "
            "or its special tokens have changed); put the old one back, or start a new run."
        )


class LoadedModels:
    """The models of runs, each loaded once, on `device` if it is named; the last few are kept."""

    def __init__(
        self,
        device: str | None = None,
        most: int = 4,
        trust: bool = False,
        allow_download: bool = False,
    ) -> None:
        self._device = device
        self._trust = trust
        self._allow_download = allow_download
        self._most = most
        self._loaded: dict[str, MaskedModel] = {}

    def of(self, manifest: Manifest) -> MaskedModel:
        """Return the model of a run, which must be the one that it began with."""
        expected = manifest.config.model
        # A model that translates is one with its sources.
        key = json.dumps([to_json(expected), manifest.inputs.sources], sort_keys=True)
        model = self._loaded.pop(key, None)
        if model is None:
            model = load_model(manifest, self._device, self._trust, self._allow_download)
            check_same(expected.name, expected.fingerprint, model.fingerprint())
        self._loaded[key] = model
        while len(self._loaded) > self._most:
            del self._loaded[next(iter(self._loaded))]
        return model
