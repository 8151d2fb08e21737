"""Sample by a chosen engine, which no option chooses."""

import pytest

import maskov
from maskov.models.scorer import Scorer


def sample(*arguments, lock_step: bool = False, slots: int | None = None, **settings):
    """Sample with all chains in lock-step, or with so many proposals of each under test at once."""
    with pytest.MonkeyPatch.context() as patch:
        if lock_step:
            patch.setattr("maskov.execution.recorded.rounds_of", lambda _: None)
        if slots is not None:
            patch.setattr(Scorer, "slots_for", lambda *_: slots)
        return maskov.sample(*arguments, **settings)
