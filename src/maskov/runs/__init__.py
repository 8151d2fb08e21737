"""Runs: many chains from start to samples, interrupted or not."""

from maskov.runs.result import Run
from maskov.types import Sample

__all__ = ["Run", "Sample"]
