"""Every test runs with tensor shapes and types checked at each call of the package."""

from __future__ import annotations

import os

# One thread, so that the suite is as fast as it is steady on a shared machine.
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("HF_HUB_OFFLINE", "1")

from contextlib import nullcontext

try:
    from typecheck import CheckedImports

    _checked = CheckedImports("maskov")
except ImportError:  # a machine with the plain install, such as a borrowed GPU, checks no shapes
    _checked = nullcontext()

with _checked:
    import maskov
    import maskov.cli
    import maskov.exact
    import maskov.verify  # noqa: F401

import pytest
import torch


@pytest.fixture(autouse=True)
def _no_global_random_state():
    """Fail a test whose code under test touches torch's global generator."""
    before = torch.get_rng_state()
    yield
    assert torch.equal(before, torch.get_rng_state()), "the global random state was used"
