"""Diagnostics: convergence, autocorrelation and acceptance rates of a run."""

from maskov.diagnostics.arviz import to_arviz
from maskov.diagnostics.diagnosis import Diagnosis, TokenFigures, diagnose
from maskov.diagnostics.energies import EnergyFigures, GroupFigures
from maskov.diagnostics.exchange import ExchangeFigures
from maskov.diagnostics.experts import ExpertFigures
from maskov.diagnostics.headline import headline, tone
from maskov.diagnostics.positions import PositionFigures
from maskov.diagnostics.statistics import TokenStatistic
from maskov.diagnostics.summary import Summary, summarise
from maskov.diagnostics.verdict import Verdict

__all__ = [
    "Diagnosis",
    "EnergyFigures",
    "ExchangeFigures",
    "ExpertFigures",
    "GroupFigures",
    "PositionFigures",
    "Summary",
    "TokenFigures",
    "TokenStatistic",
    "Verdict",
    "diagnose",
    "headline",
    "summarise",
    "to_arviz",
    "tone",
]
