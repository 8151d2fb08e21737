"""Chains whose answers are known, and the manifest and traces of runs that never were."""

from __future__ import annotations

from typing import Any

import numpy as np


def sticky(
    keep: float, draws: int, chains: int, width: int, words: int, seed: int = 0
) -> np.ndarray:
    """Return tokens that stay with one chance and are drawn anew, evenly, with the other."""
    random = np.random.default_rng(seed)
    shape = (chains, width)
    tokens = np.empty((draws, *shape), dtype=np.int32)
    tokens[0] = random.integers(words, size=shape)
    for t in range(1, draws):
        stays = random.random(shape) < keep
        tokens[t] = np.where(stays, tokens[t - 1], random.integers(words, size=shape))
    return tokens


def manifest(epochs: int, chains: int, **changes: Any) -> dict[str, Any]:
    """Return what a run of single-site Metropolis-Hastings on E_raw says of itself."""
    schedule = {
        "epochs": epochs,
        "burn_in": 0,
        "target_temperature": None,
        "block": None,
        "forced_epochs": 0,
    }
    kernel = {"name": "mh", "energy": "raw", "order": "random", "block": 1}
    return {
        "schedule": schedule | changes.pop("schedule", {}),
        "kernel": kernel | changes.pop("kernel", {}),
        "chains": chains,
        "chains_each": chains,
        "origin": {"length": [5, 5]},
        "leaves_invariant": True,
        "signature": "made:up",
        "versions": {"maskov": "0"},
        "notes": [],
    } | changes


def traces(raw: np.ndarray, norm: np.ndarray | None = None, steps: Any = 5) -> dict[str, Any]:
    """Return traces with the given energies, all else being plain."""
    count = np.ones(raw.shape, dtype=np.int64)
    return {
        "energy_raw": raw,
        "energy_norm": raw if norm is None else norm,
        "energy_target": raw,
        "steps": count * steps,
        **dict.fromkeys(("accepted", "novel", "proposed_novel", "passes"), count),
    }
