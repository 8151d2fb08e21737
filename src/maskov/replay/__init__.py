"""Replays: the steps of a recorded run again, one by one, with the reason of each decision."""

from maskov.replay.record import Replay, Step, Test
from maskov.replay.replayer import Replayer

__all__ = ["Replay", "Replayer", "Step", "Test"]
