"""Chains whose answers are known, and the manifest and traces of runs that never were."""

from typing import Any

import numpy as np

from maskov.config import Execution, Inputs, Manifest, ModelConfig, ModelSource, RunConfig, Schedule


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


def manifest(
    epochs: int,
    chains: int,
    schedule: dict[str, Any] | None = None,
    inputs: Inputs | None = None,
    chains_each: int | None = None,
    **changes: Any,
) -> Manifest:
    """Return what a run of single-site Metropolis-Hastings on E_raw says of itself."""
    config = RunConfig(
        model=ModelConfig("made-up", "0", ModelSource("made-up")),
        kernel={"part": "made-up"},
        schedule=Schedule(**{"epochs": epochs} | (schedule or {})),
        inputs=inputs or Inputs(length=(5, 5)),
        execution=Execution(token_budget=100, resident=chains),
        chains=chains_each or chains,
    )
    values: dict[str, Any] = {
        "created": "2000-01-01T00:00:00+00:00",
        "signature": "made:up",
        "kernel": "mh",
        "energy": "raw",
        "order": "random",
        "block": 1,
        "leaves_invariant": True,
        "notes": (),
        "versions": {"maskov": "0"},
        "energy_models": {},
        "width": 5,
        "shortest": 5,
        "mean": 5,
    }
    made = Manifest(config=config, **values | changes)
    assert made.chains == chains
    return made


def traces(raw: np.ndarray, norm: np.ndarray | None = None, steps: Any = 5) -> dict[str, Any]:
    """Return traces with the given energies, all else being plain."""
    count = np.ones(raw.shape, dtype=np.int64)
    return {
        "energy_raw": raw,
        "energy_norm": raw if norm is None else norm,
        "energy_target": raw,
        "steps": count * steps,
        **dict.fromkeys(("accepted", "novel", "proposed_novel", "passes"), count),
        "lengths": count * steps,
    }


def autoregressive(correlation: float, draws: int, chains: int, seed: int = 0) -> np.ndarray:
    """Return stationary AR(1) chains of unit variance, draws × chains."""
    random = np.random.default_rng(seed)
    values = np.empty((draws, chains))
    values[0] = random.standard_normal(chains)
    for t in range(1, draws):
        noise = np.sqrt(1 - correlation**2) * random.standard_normal(chains)
        values[t] = correlation * values[t - 1] + noise
    return values
