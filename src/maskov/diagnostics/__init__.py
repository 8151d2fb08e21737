"""Diagnostics: convergence, autocorrelation and acceptance rates of a run."""

from maskov.diagnostics.chains import to_arviz
from maskov.diagnostics.convergence import EnergyFigures, GroupFigures
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
