"""A run as the object that ArviZ works on: an xarray DataTree."""

from __future__ import annotations

from importlib import import_module
from typing import Any

import numpy as np

from maskov.config import Manifest
from maskov.diagnostics.chains import Sampled, chain_lengths, chain_templates, kept_epochs
from maskov.errors import InputError
from maskov.types import Traces

# What stands in `tokens` beyond the end of a chain shorter than the longest.
PADDING = -1


def to_arviz(
    manifest: Manifest, traces: Traces, sampled: Sampled = dict, *, warmup: bool = False
) -> Any:
    """Return the epochs after burn-in, and with `warmup` those of it, as a DataTree.

    Group `posterior` has the energies, and the tokens of small runs; `sample_stats` what each
    epoch did; `constant_data` the length and the template of each chain.
    """
    try:
        from_dict = import_module("arviz_base").from_dict
    except ImportError as error:
        raise InputError("ArviZ's format needs arviz-base: pip install 'maskov[diagnose]'.") from (
            error
        )
    kept = kept_epochs(manifest, traces)
    lengths = chain_lengths(manifest, traces, sampled)
    parts = {"": kept}
    if warmup:
        parts["warmup_"] = slice(0, kept.start)
    data: dict[str, dict[str, Any]] = {}
    for prefix, epochs in parts.items():
        data[f"{prefix}posterior"] = _posterior(traces, epochs, lengths)
        data[f"{prefix}sample_stats"] = _sample_stats(traces, epochs)
    data["constant_data"] = {"template": chain_templates(manifest)}
    if lengths is not None:
        data["constant_data"]["length"] = lengths
    about = {
        "signature": manifest.signature,
        "inference_library": "maskov",
        "inference_library_version": manifest.versions.get("maskov", ""),
        # Not every file format has booleans.
        "leaves_invariant": int(manifest.leaves_invariant),
        "burn_in": manifest.schedule.burn_in,
    }
    return from_dict(
        data,
        save_warmup=warmup,
        dims={"tokens": ["position"], "template": ["chain"], "length": ["chain"]},
        attrs={"/": about} | {group: dict(about) for group in data},
        # Fewer draws than chains are no mistake here.
        check_conventions=False,
    )


def _posterior(traces: Traces, epochs: slice, lengths: Any) -> dict[str, Any]:
    found = {name: traces[name][epochs].T for name in ("energy_raw", "energy_norm")}
    if "tokens" in traces:
        tokens = traces["tokens"][epochs].swapaxes(0, 1)
        if lengths is not None:
            inside = np.arange(tokens.shape[2]) < lengths[:, None, None]
            tokens = np.where(inside, tokens, PADDING)
        found["tokens"] = tokens
    return found


def _sample_stats(traces: Traces, epochs: slice) -> dict[str, Any]:
    steps, energy = traces["steps"][epochs].T, traces["energy_target"][epochs].T
    found = {
        "acceptance_rate": traces["accepted"][epochs].T / steps,
        "novel_rate": traces["novel"][epochs].T / steps,
        "passes": traces["passes"][epochs].T,
    }
    # Kernels that accept everything have no energy of their own.
    return found if np.isnan(energy).all() else found | {"energy": energy}
