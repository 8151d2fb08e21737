"""Batches: every row once, under the budget, with little padding, and through lack of memory."""

import pytest
import torch
from hypothesis import given, strategies as st

from maskov import Metropolis, Norm, Schedule, sample
from maskov.errors import Interrupted
from maskov.models.scorer import Batcher, Scorer, batch_bounds
from small import random_state, tiny_bert


@given(st.lists(st.integers(1, 30), min_size=1, max_size=200), st.integers(1, 300))
def test_packing_covers_every_row_once_within_the_budget(lengths, budget):
    ordered = torch.tensor(sorted(lengths))
    position = 0
    for begin, end, width in batch_bounds(ordered, budget):
        assert begin == position < end
        assert width == int(ordered[end - 1])
        assert (end - begin) * width <= max(budget, width)
        position = end
    assert position == len(lengths)


def test_a_batch_that_does_not_fit_is_halved_and_the_answers_stay_the_same():
    model = tiny_bert("red green blue")
    state = random_state(model, 6, 8)
    expected = Scorer(model, budget=10_000).cache(state.sequences)
    engine = Scorer(model, budget=10_000)
    hidden, sizes = model.hidden_at, []

    def limited(tokens, lengths, place, source):
        sizes.append(tokens.numel())
        if tokens.numel() > 100:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate ...")
        return hidden(tokens, lengths, place, source)

    model.hidden_at = limited
    found = engine.cache(state.sequences)
    assert torch.allclose(found.hidden, expected.hidden, atol=1e-10)
    assert torch.allclose(found.log_normaliser, expected.log_normaliser, atol=1e-10)
    assert engine.batcher.budget <= 100
    assert max(sizes) > 100
    # Passes that failed are not counted as done.
    assert engine.passes == 48


def test_a_stop_is_heard_between_batches():
    seen = []
    with pytest.raises(Interrupted):
        Batcher(4, stop=lambda: len(seen) == 2).each(
            torch.tensor([4] * 5), lambda rows, width: seen.append(rows)
        )
    assert len(seen) == 2


def test_chains_are_the_same_in_any_batch():
    model = tiny_bert("red green blue white")
    settings = {"schedule": Schedule(epochs=4), "length": (4, 9), "seed": 3}
    whole = sample(model, Metropolis(Norm()), chains=6, token_budget=4096, **settings)
    parts = sample(model, Metropolis(Norm()), chains=6, token_budget=16, **settings)
    fewer = sample(model, Metropolis(Norm()), chains=2, **settings)
    assert [one.ids for one in whole.samples] == [one.ids for one in parts.samples]
    assert [one.ids for one in whole.samples][:2] == [one.ids for one in fewer.samples]
