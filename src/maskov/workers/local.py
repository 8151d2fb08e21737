"""A crew of one: the process itself."""

from __future__ import annotations

from maskov.runs.loop import Loop
from maskov.runs.task import Taken, Turn
from maskov.workers.base import Crew


class Here(Crew):
    """Takes each turn at once."""

    def __init__(self, loop: Loop) -> None:
        self._loop = loop
        self._turn: Turn | None = None

    @property
    def free(self) -> int:
        """One, unless a turn was given."""
        return int(self._turn is None)

    @property
    def passes(self) -> int:
        """The passes of the engine."""
        return self._loop.engine.passes

    def give(self, turn: Turn) -> None:
        """Remember it."""
        self._turn = turn

    def take(self) -> Taken:
        """Take the turn now."""
        assert self._turn is not None
        turn, self._turn = self._turn, None
        return self._loop.take(turn)

    def turn_seconds(self, checkpoint_seconds: float) -> float:
        """Nothing is handed over: a turn lasts until its checkpoint is due."""
        return checkpoint_seconds

    def close(self) -> None:
        """Leave: there is nobody to send home."""
