"""The public names of maskov and the module of each: `__init__.py` imports them from there."""

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
    Gibbs as Gibbs,
    Kernel as Kernel,
    Metropolis as Metropolis,
    Mixture as Mixture,
    Population as Population,
    Redraw as Redraw,
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
from maskov.rewriting import Rewriting as Rewriting
from maskov.runs import Run as Run, Sample as Sample
from maskov.runs.result import Fill as Fill
from maskov.scoring import Score as Score, score_autoregressive as score_autoregressive
from maskov.translation import Translation as Translation, TranslationMethod as TranslationMethod
from maskov.types import Chains as Chains, Proposal as Proposal
from maskov.version import __version__ as __version__
from maskov.workers import Workers as Workers
