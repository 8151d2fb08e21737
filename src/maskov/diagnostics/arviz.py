"""A run as ArviZ's data structure: an xarray DataTree."""

from __future__ import annotations

from typing import Any

import numpy as np

from maskov.config import Manifest
from maskov.diagnostics.chains import chain_lengths, chain_templates, kept_epochs
from maskov.types import Traces

# The value of `tokens` beyond the end of a chain.
PADDING = -1
_POSTERIOR = ("energy_raw", "energy_norm", "tokens", "expert_energy")


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
        chains = {name: values[epochs].swapaxes(0, 1) for name, values in traces.items()}
        if lengths is not None and "tokens" in chains:
            inside = np.arange(manifest.width) < lengths[:, None, None]
            chains["tokens"] = np.where(inside, chains["tokens"], PADDING)
        stats = {
            "acceptance_rate": chains["accepted"] / chains["steps"],
            "novel_rate": chains["novel"] / chains["steps"],
            "passes": chains["passes"],
        }
        # Kernels that accept everything have no target energy.
        if not np.isnan(chains["energy_target"]).all():
            stats["energy"] = chains["energy_target"]
        data[f"{prefix}posterior"] = {name: chains[name] for name in _POSTERIOR if name in chains}
        data[f"{prefix}sample_stats"] = stats
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
