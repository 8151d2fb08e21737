"""maskov: sample correctly and fast from any masked language model.

A masked language model defines an energy, and its conditionals propose moves that a
Metropolis-Hastings test accepts or rejects (Goyal, Dyer & Berg-Kirkpatrick, ICLR 2022).
"""

from maskov.diagnostics import Summary
from maskov.energies import Autoregressive, Energy, Norm, Raw, parse_energy
from maskov.errors import InputError, MaskovError, ModelError, RunError
from maskov.execution.scorer import Engine
from maskov.kernels import Delayed, Gibbs, Kernel, Metropolis, Sweep, mask_predict
from maskov.models import HuggingFaceModel, MaskedModel, TabularModel, counterexample, load
from maskov.models.conditional.model import ConditionalModel
from maskov.moves import MaskedConditional
from maskov.runs import Run, Sample, resume, sample
from maskov.schedules import Linear, Schedule
from maskov.scoring import Score, score, score_autoregressive
from maskov.translation.api import Translation, translate
from maskov.translation.autoregressive import Twin
from maskov.translation.methods import Method
from maskov.version import __version__
from maskov.workers import Workers

__all__ = [
    "Autoregressive",
    "ConditionalModel",
    "Delayed",
    "Energy",
    "Engine",
    "Gibbs",
    "HuggingFaceModel",
    "InputError",
    "Kernel",
    "Linear",
    "MaskedConditional",
    "MaskedModel",
    "MaskovError",
    "Method",
    "Metropolis",
    "ModelError",
    "Norm",
    "Raw",
    "Run",
    "RunError",
    "Sample",
    "Schedule",
    "Score",
    "Summary",
    "Sweep",
    "TabularModel",
    "Translation",
    "Twin",
    "Workers",
    "__version__",
    "counterexample",
    "load",
    "mask_predict",
    "parse_energy",
    "resume",
    "sample",
    "score",
    "score_autoregressive",
    "translate",
]
