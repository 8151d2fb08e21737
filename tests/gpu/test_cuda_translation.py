"""Translation on a GPU: the same chains as on the CPU, and the same translations of the twin."""

from __future__ import annotations

import pytest
import torch

from maskov import TranslationMethod, translate
from maskov.models.conditional.model import ConditionalModel
from tiny_translation import SOURCES, network, tokenizer

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU here")

METHODS = {
    "greedy": TranslationMethod("greedy"),
    "mask-predict": TranslationMethod("mask-predict", iterations=4, length_beam=3),
    "gibbs": TranslationMethod("gibbs", epochs=3),
    "block gibbs": TranslationMethod("block-gibbs", epochs=3),
    "mh raw": TranslationMethod("mh", energy="raw", epochs=3, chains=2),
    "mh norm": TranslationMethod("mh", energy="norm", epochs=3, anneal=0.04),
    "block mh": TranslationMethod("block-mh", energy="norm", epochs=3),
}


def _on(device: str) -> ConditionalModel:
    return ConditionalModel(network().to(device), tokenizer(), "tiny")


@pytest.mark.parametrize("method", METHODS.values(), ids=METHODS)
def test_the_same_translations_as_on_the_cpu(method):
    here, there = (translate(_on(device), SOURCES, method, seed=3) for device in ("cpu", "cuda"))
    assert [line.text for line in here] == [line.text for line in there]
    for mine, other in zip(here, there, strict=True):
        assert mine.energy_raw == pytest.approx(other.energy_raw, abs=1e-8)
        assert mine.energy_norm == pytest.approx(other.energy_norm, abs=1e-8)
