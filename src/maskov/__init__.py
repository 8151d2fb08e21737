"""maskov: sample correctly and fast from any masked language model.

A masked language model defines an energy, and its conditionals propose moves that a
Metropolis-Hastings test accepts or rejects (Goyal, Dyer & Berg-Kirkpatrick, ICLR 2022).
"""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # what the table below says, for editors and type checkers
    from maskov.api import (
        evidence as evidence,
        infill as infill,
        resume as resume,
        rewrite as rewrite,
        sample as sample,
        score as score,
        translate as translate,
    )
    from maskov.arguments import (
        default_kernel as default_kernel,
        default_schedule as default_schedule,
    )
    from maskov.config import LinearSchedule as LinearSchedule, Schedule as Schedule
    from maskov.constraints import (
        AllowedTokens as AllowedTokens,
        AvoidWords as AvoidWords,
        Constraint as Constraint,
        ContainsWords as ContainsWords,
        MaxChanges as MaxChanges,
        MaxEdits as MaxEdits,
    )
    from maskov.diagnostics import Summary as Summary
    from maskov.energies import (
        Autoregressive as Autoregressive,
        Energy as Energy,
        Norm as Norm,
        Raw as Raw,
        parse_energy as parse_energy,
    )
    from maskov.energies.ordered import Ordered as Ordered
    from maskov.errors import (
        InputError as InputError,
        Interrupted as Interrupted,
        MaskovError as MaskovError,
        ModelError as ModelError,
        RunError as RunError,
    )
    from maskov.fasta import Record as Record, read_fasta as read_fasta, to_fasta as to_fasta
    from maskov.filling import Filling as Filling, TemplateFills as TemplateFills
    from maskov.kernels import (
        DelayedAcceptance as DelayedAcceptance,
        Draws as Draws,
        Exchange as Exchange,
        Gibbs as Gibbs,
        Kernel as Kernel,
        Metropolis as Metropolis,
        Mixture as Mixture,
        Population as Population,
        mask_predict as mask_predict,
    )
    from maskov.models import (
        HuggingFaceModel as HuggingFaceModel,
        MaskedModel as MaskedModel,
        TabularModel as TabularModel,
        counterexample as counterexample,
        load as load,
    )
    from maskov.models.autoregressive import AutoregressiveTranslator as AutoregressiveTranslator
    from maskov.models.conditional import ConditionalModel as ConditionalModel
    from maskov.models.scorer import Scorer as Scorer
    from maskov.moves import (
        LowestConfidence as LowestConfidence,
        MaskedConditional as MaskedConditional,
        Move as Move,
        Site as Site,
        Span as Span,
        Sweep as Sweep,
    )
    from maskov.random import Rng as Rng
    from maskov.rewriting import Rewriter as Rewriter, Rewriting as Rewriting
    from maskov.runs import Run as Run, Sample as Sample
    from maskov.runs.result import Fill as Fill
    from maskov.scoring import Score as Score, score_autoregressive as score_autoregressive
    from maskov.translation.api import Translation as Translation
    from maskov.translation.methods import TranslationMethod as TranslationMethod
    from maskov.types import Chains as Chains, Proposal as Proposal
    from maskov.version import __version__ as __version__
    from maskov.workers import Workers as Workers

# The public names of each module.
_NAMES = {
    "api": "evidence infill resume rewrite sample score translate",
    "arguments": "default_kernel default_schedule",
    "config": "LinearSchedule Schedule",
    "constraints": "AllowedTokens AvoidWords Constraint ContainsWords MaxChanges MaxEdits",
    "diagnostics": "Summary",
    "energies": "Autoregressive Energy Norm Raw parse_energy",
    "energies.ordered": "Ordered",
    "errors": "InputError Interrupted MaskovError ModelError RunError",
    "fasta": "Record read_fasta to_fasta",
    "filling": "Filling TemplateFills",
    "kernels": "DelayedAcceptance Draws Exchange Gibbs Kernel Metropolis Mixture Population "
    "mask_predict",
    "models": "HuggingFaceModel MaskedModel TabularModel counterexample load",
    "models.autoregressive": "AutoregressiveTranslator",
    "models.conditional": "ConditionalModel",
    "models.scorer": "Scorer",
    "moves": "LowestConfidence MaskedConditional Move Site Span Sweep",
    "random": "Rng",
    "rewriting": "Rewriter Rewriting",
    "runs": "Run Sample",
    "runs.result": "Fill",
    "scoring": "Score score_autoregressive",
    "translation.api": "Translation",
    "translation.methods": "TranslationMethod",
    "types": "Chains Proposal",
    "version": "__version__",
    "workers": "Workers",
}
_MODULES = {name: module for module, names in _NAMES.items() for name in names.split()}


def __getattr__(name: str) -> Any:
    """Import what is used: PyTorch takes seconds, and `maskov --help` does not need it."""
    if name == "__all__":
        return sorted(_MODULES)
    if name in _MODULES:
        return getattr(import_module(f"maskov.{_MODULES[name]}"), name)
    if not name.startswith("_") and find_spec(f"maskov.{name}") is not None:
        return import_module(f"maskov.{name}")
    raise AttributeError(f"module 'maskov' has no attribute '{name}'")


def __dir__() -> list[str]:
    return sorted({*globals(), *_MODULES})
