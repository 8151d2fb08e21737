"""The engine: batches of masked passes under a token budget."""

from maskov.engine.batches import Batcher, token_budget
from maskov.engine.engine import Answers, Engine

__all__ = ["Answers", "Batcher", "Engine", "token_budget"]
