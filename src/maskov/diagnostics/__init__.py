"""Diagnostics: convergence, autocorrelation and acceptance rates of a run."""

from maskov.diagnostics.convergence import EnergyFigures, GroupFigures, to_arviz
from maskov.diagnostics.diagnosis import (
    Diagnosis,
    ExpertFigures,
    Summary,
    diagnose,
    summarise,
)
from maskov.diagnostics.tokens import PositionFigures, TokenFigures, TokenStatistic
from maskov.diagnostics.verdict import Verdict

__all__ = [
    "Diagnosis",
    "EnergyFigures",
    "ExpertFigures",
    "GroupFigures",
    "PositionFigures",
    "Summary",
    "TokenFigures",
    "TokenStatistic",
    "Verdict",
    "diagnose",
    "summarise",
    "to_arviz",
]
