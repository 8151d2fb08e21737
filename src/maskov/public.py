"""What `import maskov` offers, imported all at once when the first of it is used."""

from maskov.api import evidence, infill, resume, rewrite, sample, score, translate
from maskov.arguments import default_kernel, default_schedule
from maskov.config import LinearSchedule, Schedule
from maskov.constraints import (
    AllowedTokens,
    AvoidWords,
    Constraint,
    ContainsWords,
    MaxChanges,
    MaxEdits,
)
from maskov.diagnostics import Summary
from maskov.energies import Autoregressive, Energy, Norm, Raw, parse_energy
from maskov.energies.ordered import Ordered
from maskov.errors import InputError, Interrupted, MaskovError, ModelError, RunError
from maskov.fasta import Record, read_fasta, to_fasta
from maskov.filling import Filling, TemplateFills
from maskov.kernels import (
    DelayedAcceptance,
    Draws,
    Exchange,
    Gibbs,
    Kernel,
    Metropolis,
    Mixture,
    Population,
    mask_predict,
)
from maskov.models import HuggingFaceModel, MaskedModel, TabularModel, counterexample, load
from maskov.models.autoregressive import AutoregressiveTranslator
from maskov.models.conditional import ConditionalModel
from maskov.models.scorer import Scorer
from maskov.moves import LowestConfidence, MaskedConditional, Move, Site, Span, Sweep
from maskov.random import Rng
from maskov.rewriting import Rewriter, Rewriting
from maskov.runs import Run, Sample
from maskov.runs.result import Fill
from maskov.scoring import Score, score_autoregressive
from maskov.translation.api import Translation
from maskov.translation.methods import TranslationMethod
from maskov.types import Chains, Proposal
from maskov.version import __version__
from maskov.workers import Workers

__all__ = [
    "AllowedTokens",
    "Autoregressive",
    "AutoregressiveTranslator",
    "AvoidWords",
    "Chains",
    "ConditionalModel",
    "Constraint",
    "ContainsWords",
    "DelayedAcceptance",
    "Draws",
    "Energy",
    "Exchange",
    "Fill",
    "Filling",
    "Gibbs",
    "HuggingFaceModel",
    "InputError",
    "Interrupted",
    "Kernel",
    "LinearSchedule",
    "LowestConfidence",
    "MaskedConditional",
    "MaskedModel",
    "MaskovError",
    "MaxChanges",
    "MaxEdits",
    "Metropolis",
    "Mixture",
    "ModelError",
    "Move",
    "Norm",
    "Ordered",
    "Population",
    "Proposal",
    "Raw",
    "Record",
    "Rewriter",
    "Rewriting",
    "Rng",
    "Run",
    "RunError",
    "Sample",
    "Schedule",
    "Score",
    "Scorer",
    "Site",
    "Span",
    "Summary",
    "Sweep",
    "TabularModel",
    "TemplateFills",
    "Translation",
    "TranslationMethod",
    "Workers",
    "__version__",
    "counterexample",
    "default_kernel",
    "default_schedule",
    "evidence",
    "infill",
    "load",
    "mask_predict",
    "parse_energy",
    "read_fasta",
    "resume",
    "rewrite",
    "sample",
    "score",
    "score_autoregressive",
    "to_fasta",
    "translate",
]
