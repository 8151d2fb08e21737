"""A run's model, kernel and sequences again, from its manifest: to go on, or to replay it."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from maskov.energies import Autoregressive
from maskov.errors import InputError, RunError
from maskov.kernels import Kernel, Metropolis
from maskov.models import MaskedModel, load
from maskov.models.conditional.model import ConditionalModel
from maskov.runs.describe import build_kernel, build_schedule
from maskov.runs.inputs import layout_of
from maskov.schedules import Schedule
from maskov.starts import Layout


@dataclass(frozen=True)
class Parts:
    """What moves the chains of a run, and where they began."""

    kernel: Kernel
    schedule: Schedule
    layout: Layout


def load_model(
    manifest: dict[str, Any], device: str | None = None, trust_remote_code: bool = False
) -> MaskedModel:
    """Load the model of a run again, where it was unless another device is named."""
    check_trusted(manifest, trust_remote_code)
    device = device or str(manifest["model"]["device"])
    precision = str(manifest["model"]["precision"])
    model = load(device=device, precision=precision, **manifest["model"]["source"])
    if isinstance(model, ConditionalModel):
        return model.given(manifest["origin"].get("sources", []))
    return model


def rebuild(manifest: dict[str, Any], model: MaskedModel) -> Parts:
    """Build kernel, schedule and layout again; refuse a model that has changed."""
    check_same(manifest["model"], model.fingerprint())
    try:
        kernel = kernel_of(manifest, model)
    except (InputError, KeyError, TypeError, ValueError, OverflowError) as error:
        raise RunError("the manifest of this run is damaged: its 'kernel' cannot be.") from error
    if isinstance(kernel, Metropolis):
        for name, found in kernel.energy.models().items():
            known = manifest["causal_models"].get(name)
            check_same({"name": name, "fingerprint": known}, found)
    return Parts(kernel, build_schedule(manifest["schedule"]), _layout(manifest, model))


def _layout(manifest: dict[str, Any], model: MaskedModel) -> Layout:
    layout = layout_of(model, manifest["origin"], manifest["chains_each"], manifest["seed"])
    lengths = [len(ids) for ids in layout.tokens]
    found = {"chains": len(lengths), "width": max(lengths), "shortest": min(lengths)}
    # Runs of older versions, which can be read and replayed, lack some of them.
    if any(manifest.get(name, value) != value for name, value in found.items()):
        raise RunError("the manifest of this run is damaged: its 'origin' cannot be.")
    return layout


def kernel_of(manifest: dict[str, Any], model: MaskedModel) -> Kernel:
    """Build the kernel of a run again; causal models are loaded where the masked one is."""
    trust = trusts_code(manifest)
    return build_kernel(
        manifest["kernel"],
        lambda name: Autoregressive(name, model.device, trust_remote_code=trust),
    )


def trusts_code(manifest: dict[str, Any]) -> bool:
    """Whether the run was begun with leave to run code that came with its model."""
    return bool(manifest["model"]["source"].get("trust_remote_code"))


def check_trusted(manifest: dict[str, Any], trust_remote_code: bool) -> None:
    """Refuse to run code on a manifest's word: it may be anybody's."""
    if trusts_code(manifest) and not trust_remote_code:
        raise RunError(
            f"the model '{manifest['model']['source']['name']}' of this run brings code of its "
            "own; if you trust it, say so with --trust-remote-code."
        )


def check_same(expected: dict[str, Any], found: str) -> None:
    """Refuse a model other than the one that a run began with."""
    if expected["fingerprint"] != found:
        raise RunError(
            f"the model '{expected['name']}' is not the one this run began with (its weights or "
            "vocabulary have changed); put the old one back, or start a new run."
        )


class LoadedModels:
    """The models of runs, each loaded once, on `device` if it is named; the last few are kept."""

    def __init__(self, device: str | None = None, most: int = 4, trust: bool = False) -> None:
        self._device = device
        self._trust = trust
        self._most = most
        self._loaded: dict[str, MaskedModel] = {}

    def of(self, manifest: dict[str, Any]) -> MaskedModel:
        """Return the model of a run, which must be the one that it began with."""
        expected = manifest["model"]
        # A model that translates is one with its sources.
        key = json.dumps([expected, manifest["origin"].get("sources")], sort_keys=True)
        model = self._loaded.pop(key, None)
        if model is None:
            model = load_model(manifest, self._device, self._trust)
            check_same(expected, model.fingerprint())
        self._loaded[key] = model
        while len(self._loaded) > self._most:
            del self._loaded[next(iter(self._loaded))]
        return model
