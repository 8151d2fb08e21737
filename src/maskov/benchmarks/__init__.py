"""Speed, side by side: the paper's algorithm in plain code, maskov, and other people's scorers."""

from maskov.benchmarks.options import Options
from maskov.benchmarks.side_by_side import run

__all__ = ["Options", "run"]
