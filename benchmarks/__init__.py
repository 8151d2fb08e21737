"""Benchmarks: the paper's algorithm in plain code, maskov, and other scorers.

`python -m benchmarks NAME` runs the module of that name. docs/reference/benchmarks.md describes
them, and how everything is counted.
"""
