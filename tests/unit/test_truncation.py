"""Temperature, top-k, top-p and the defensive mixture: each alone, and in their stated order."""

import math

import pytest
import torch
from hypothesis import given, strategies as st

from maskov import MaskedConditional

LOGITS = torch.tensor([[2.0, 1.0, 0.5, 0.0, -1.0, -3.0]], dtype=torch.float64)


def _by_hand(logits, forbidden, temperature, k, p, epsilon):
    """Do the same in plain Python, one rule after the other."""
    allowed = [i for i in range(len(logits)) if not forbidden[i]]

    def softmax(scores):
        top = max(scores.values())
        weights = {i: math.exp(s - top) for i, s in scores.items()}
        total = sum(weights.values())
        return {i: w / total for i, w in weights.items()}

    full = softmax({i: logits[i] for i in allowed})
    kept = {i: logits[i] / temperature for i in allowed}
    ranked = sorted(kept, key=lambda i: (-kept[i], i))
    kept = {i: kept[i] for i in ranked[: k or len(ranked)]}
    q, mass, nucleus = softmax(kept), 0.0, {}
    for i in sorted(q, key=lambda i: (-q[i], i)):
        if mass >= p:
            break
        nucleus[i] = q[i]
        mass += q[i]
    cut = {i: q[i] / sum(nucleus.values()) for i in nucleus}
    return [
        (1 - epsilon) * cut.get(i, 0.0) + epsilon * full.get(i, 0.0) for i in range(len(logits))
    ]


@given(
    st.lists(st.integers(-40, 40), min_size=4, max_size=8, unique=True),
    st.sampled_from([0.3, 1.0, 1.7]),
    st.sampled_from([None, 1, 2, 3, 50]),
    st.sampled_from([0.05, 0.5, 0.9, 1.0]),
    st.sampled_from([0.0, 0.01, 1.0]),
    st.integers(0, 3),
)
def test_all_together_equal_the_rules_done_by_hand(tenths, temperature, k, p, epsilon, banned):
    logits = [value / 10 for value in tenths]
    forbidden = [i == banned for i in range(len(logits))]
    proposal = MaskedConditional(temperature, k, p, epsilon)
    found = proposal.log_probabilities(
        torch.tensor([logits], dtype=torch.float64), torch.tensor(forbidden)
    ).exp()[0]
    expected = _by_hand(logits, forbidden, temperature, k, p, epsilon)
    assert found.tolist() == pytest.approx(expected, abs=1e-9)


@pytest.mark.parametrize("temperature", [1e-310, 1e-100, 1e-3])
def test_a_tiny_temperature_is_the_best_token_and_never_a_forbidden_one(temperature):
    forbidden = torch.tensor([True, False, False, False, False, True])
    q = MaskedConditional(temperature).log_probabilities(LOGITS, forbidden).exp()
    assert q[0].tolist() == pytest.approx([0, 1, 0, 0, 0, 0])
    assert (q[0, forbidden] == 0).all()
