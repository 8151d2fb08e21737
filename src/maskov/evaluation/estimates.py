"""Means over sentences with their standard errors."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy.typing as npt


@dataclass(frozen=True)
class Estimate:
    """A number and its standard error over sentences; None for a single sentence."""

    value: float
    standard_error: float | None


def mean(values: npt.NDArray[Any]) -> Estimate:
    """Return the mean over sentences."""
    if len(values) < 2:
        return Estimate(float(values.mean()), None)
    return Estimate(float(values.mean()), float(values.std(ddof=1) / math.sqrt(len(values))))


def ratio(parts: npt.NDArray[Any], wholes: npt.NDArray[Any]) -> Estimate:
    """Return Σ parts / Σ wholes, both of which vary between sentences.

    The standard error is that of the ratio estimator, to first order: that of the mean of
    `part − ratio · whole`, divided by the mean whole.
    """
    value = float(parts.sum() / wholes.sum())
    error = mean(parts - value * wholes).standard_error
    return Estimate(value, None if error is None else error / float(wholes.mean()))
