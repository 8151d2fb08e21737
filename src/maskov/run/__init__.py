"""Runs: many chains from start to samples, interrupted or not."""

from maskov.run.api import resume, sample
from maskov.run.result import Run
from maskov.run.sample import Sample

__all__ = ["Run", "Sample", "resume", "sample"]
