"""A run as ArviZ's data structure: an xarray DataTree."""

from __future__ import annotations

from typing import Any

import numpy as np

from maskov.config import Manifest
from maskov.diagnostics.chains import chain_lengths, chain_templates, kept_epochs
from maskov.types import Traces

# The value of `tokens` beyond the end of a chain.
PADDING = -1


def to_arviz(manifest: Manifest, traces: Traces, *, warmup: bool = False) -> Any:
    """Return the epochs after burn-in, and with `warmup` also those before, as a DataTree.

    Group `posterior` has the energies, those of experts, and the tokens if they were traced;
    `sample_stats` the rates and passes of each epoch; `constant_data` the length and the template
    of each chain.
    """
    from arviz_base import from_dict  # slow to import

    kept = kept_epochs(manifest, traces)
    lengths = chain_lengths(manifest, traces)
    parts = {"": kept}
    if warmup:
        parts["warmup_"] = slice(0, kept.start)
    data: dict[str, dict[str, Any]] = {}
    for prefix, epochs in parts.items():
        data[f"{prefix}posterior"] = _posterior(traces, epochs, lengths)
        if manifest.experts:
            experts = traces["expert_energy"][epochs].swapaxes(0, 1)
            data[f"{prefix}posterior"]["expert_energy"] = experts
        data[f"{prefix}sample_stats"] = _sample_stats(traces, epochs)
    data["constant_data"] = {"template": chain_templates(manifest)}
    if lengths is not None:
        data["constant_data"]["length"] = lengths
    about = {
        "signature": manifest.signature,
        "inference_library": "maskov",
        "inference_library_version": manifest.versions.get("maskov", ""),
        # Some file formats have no booleans.
        "leaves_invariant": int(manifest.leaves_invariant),
        "burn_in": kept.start,
    }
    return from_dict(
        data,
        save_warmup=warmup,
        dims={
            "tokens": ["position"],
            "expert_energy": ["expert"],
            "template": ["chain"],
            "length": ["chain"],
        },
        coords={"expert": list(manifest.experts)} if manifest.experts else None,
        attrs={"/": about} | {group: dict(about) for group in data},
        # Otherwise ArviZ warns of fewer draws than chains.
        check_conventions=False,
    )


def _posterior(traces: Traces, epochs: slice, lengths: Any) -> dict[str, Any]:
    posterior = {name: traces[name][epochs].T for name in ("energy_raw", "energy_norm")}
    if "tokens" in traces:
        tokens = traces["tokens"][epochs].swapaxes(0, 1)
        if lengths is not None:
            inside = np.arange(tokens.shape[2]) < lengths[:, None, None]
            tokens = np.where(inside, tokens, PADDING)
        posterior["tokens"] = tokens
    return posterior


def _sample_stats(traces: Traces, epochs: slice) -> dict[str, Any]:
    steps, energy = traces["steps"][epochs].T, traces["energy_target"][epochs].T
    stats = {
        "acceptance_rate": traces["accepted"][epochs].T / steps,
        "novel_rate": traces["novel"][epochs].T / steps,
        "passes": traces["passes"][epochs].T,
    }
    # Kernels that accept everything have no target energy.
    return stats if np.isnan(energy).all() else stats | {"energy": energy}
