"""Replays: the steps of a recorded run again, one by one, with the reason of each decision."""

from maskov.replay.record import Replay, Share, Step, Test
from maskov.replay.replayer import Replayer

__all__ = ["Replay", "Replayer", "Share", "Step", "Test"]
