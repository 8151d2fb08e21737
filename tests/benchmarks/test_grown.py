"""The grown model is as large as BERT-base and says what the small one says."""

from __future__ import annotations

import pytest
import torch
from benchmarks.models import load_model

from maskov.models import load


@pytest.mark.slow
def test_the_grown_model_computes_the_same():
    small, large = load("wiki-small", "cpu"), load_model("wiki-small-grown", "cpu")
    config = large.network.config
    assert (config.num_hidden_layers, config.hidden_size, config.num_attention_heads) == (
        12,
        768,
        12,
    )
    body = sum(weight.numel() for weight in large.network.model.layers.parameters())
    assert 80e6 < body < 95e6  # BERT-base has 85 M there
    assert large.encoder is not None
    ids = torch.tensor([small.encode("the cat sat on the mat and looked at the dog .")])
    lengths, place = torch.tensor([ids.shape[1]]), torch.tensor([4])
    scores = [model.logits(model.hidden_at(ids, lengths, place)) for model in (small, large)]
    assert torch.allclose(*scores, atol=2e-3)
    assert all(
        weight.abs().sum() > 0 for weight in large.network.model.layers[-1].attn.Wqkv.parameters()
    )
