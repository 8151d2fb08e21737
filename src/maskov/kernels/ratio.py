"""The one Metropolis-Hastings ratio in the package; `maskov.random.accept` decides by it."""

from __future__ import annotations

from maskov.types import Float, Tensor


def log_ratio(
    fall: Float[Tensor, " n"],
    log_q_forward: Float[Tensor, " n"],
    log_q_reverse: Float[Tensor, " n"],
    beta: Float[Tensor, " n"],
) -> Float[Tensor, " n"]:
    """Return log π(x')q(x|x') − log π(x)q(x'|x), where `fall` = E(x) − E(x') and π ∝ exp(−βE)."""
    return fall * beta + (log_q_reverse - log_q_forward)
