"""Averages over sentences and how far they can be trusted."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy.typing as npt


@dataclass(frozen=True)
class Estimate:
    """A number and its standard error over sentences; a single sentence gives none."""

    value: float
    standard_error: float | None


def mean(values: npt.NDArray[Any]) -> Estimate:
    """Return the mean, each sentence counting once."""
    if len(values) < 2:
        return Estimate(float(values.mean()), None)
    return Estimate(float(values.mean()), float(values.std(ddof=1) / math.sqrt(len(values))))


def ratio(parts: npt.NDArray[Any], wholes: npt.NDArray[Any]) -> Estimate:
    """Return Σ parts / Σ wholes, where both vary from sentence to sentence.

    The error is that of the ratio estimator: to first order the ratio moves by the mean of
    `part − ratio · whole`, in units of the mean whole.
    """
    value = float(parts.sum() / wholes.sum())
    error = mean(parts - value * wholes).standard_error
    return Estimate(value, None if error is None else error / float(wholes.mean()))
