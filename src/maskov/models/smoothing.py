"""Remove the tail that label smoothing leaves in a model's conditionals.

The best that a model trained with label smoothing ε can do is (1 − ε) p + ε/V: it spreads a share ε
of every conditional over all V tokens of its vocabulary. `without_smoothing` subtracts ε/V from the
probability of each token. A token that has little more than that, or less, keeps a hundredth of its
probability, so that no state becomes impossible and chains stay irreducible.
"""

from __future__ import annotations

from maskov.errors import InputError
from maskov.types import Float, Tensor

# The share of its probability that every token keeps.
FLOOR = 0.01


def check_smoothing(share: float) -> None:
    """Refuse a share that no label smoothing has."""
    if not 0 <= share < 1:
        raise InputError(f"--remove-smoothing must be at least 0 and below 1, not {share}.")


def without_smoothing(
    scores: Float[Tensor, "*positions tokens"],
    log_normaliser: Float[Tensor, "*positions 1"],
    share: float,
    vocabulary: int,
) -> Float[Tensor, "*positions tokens"]:
    """Return scores f' without the tail of a label smoothing `share` (ε).

        f'_i = f_i + log(max(1 − (ε/V) exp(L − f_i), FLOOR))

    `scores` f are those of any tokens, `log_normaliser` L is the log-sum-exp of all V tokens of the
    `vocabulary` that the training's softmax had. The softmax of f' is the distribution without the
    tail. Nothing waits for the device, and no shape depends on values.
    """
    tail = (log_normaliser - scores).exp() * (share / vocabulary)
    return scores + (1 - tail).clamp(min=FLOOR).log()
