"""Chains whose autocorrelation is known."""

import numpy as np


def autoregressive(correlation: float, draws: int, chains: int, seed: int = 0) -> np.ndarray:
    """Return stationary AR(1) chains of unit variance, draws × chains."""
    random = np.random.default_rng(seed)
    values = np.empty((draws, chains))
    values[0] = random.standard_normal(chains)
    for t in range(1, draws):
        noise = np.sqrt(1 - correlation**2) * random.standard_normal(chains)
        values[t] = correlation * values[t - 1] + noise
    return values
