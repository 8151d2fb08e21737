"""Models loaded by several threads at once: one after the other, and the same as by one thread."""

import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

import maskov.models
from maskov import load
from maskov.energies import Autoregressive, networks as loading_module
from maskov.errors import ModelError
from maskov.models.huggingface import HuggingFaceModel


class Overlap:
    """Counts how many threads are inside at once."""

    def __init__(self):
        self.now = self.most = 0
        self._lock = threading.Lock()

    def __call__(self, *_, **__):
        with self._lock:
            self.now += 1
            self.most = max(self.most, self.now)
        time.sleep(0.02)
        with self._lock:
            self.now -= 1
        raise ModelError("seen")


def test_masked_and_causal_models_are_loaded_one_at_a_time(monkeypatch):
    inside = Overlap()
    monkeypatch.setattr(HuggingFaceModel, "load", inside)
    monkeypatch.setattr(maskov.models, "untrained", inside)
    monkeypatch.setattr(loading_module, "load_checkpoint", inside)
    ways = [
        lambda: load("wiki-small", "cpu"),
        lambda: load("untrained", "cpu"),
        lambda: Autoregressive("wiki-judge").token_terms([[1, 2]]),
    ]

    def refused(way):
        with pytest.raises(ModelError, match="seen"):
            way()

    with ThreadPoolExecutor(6) as threads:
        list(threads.map(refused, ways * 2))
    assert inside.most == 1


def test_random_weights_do_not_depend_on_other_threads():
    """Weights come from the process's random numbers, which other threads use too."""
    expected = load("untrained", "cpu").fingerprint()
    with ThreadPoolExecutor(4) as threads:
        loaded = list(threads.map(lambda _: load("untrained", "cpu").fingerprint(), range(4)))
    assert set(loaded) == {expected}
