"""All that `maskov evaluate` says of some texts, and the line that says how it came about."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

from maskov.energies import Autoregressive
from maskov.errors import InputError
from maskov.evaluation.copies import copied
from maskov.evaluation.diversity import distinct, self_bleu, spread
from maskov.evaluation.estimates import Estimate, mean
from maskov.evaluation.perplexity import perplexity
from maskov.runs import Run
from maskov.version import __version__

_SHORT = 12
_NO_SACREBLEU = "self-BLEU needs sacreBLEU: pip install 'maskov[evaluate]'"
_ALONE = "a single sentence has no other to be like: there is no self-BLEU"
_CORRELATED = (
    "some samples are of the same chain and correlated: the standard errors take them as "
    "independent and are too small"
)


@dataclass(frozen=True)
class Evaluation:
    """Numbers about texts; docs/evaluation.md says what each means exactly.

    Standard errors are over sentences and absent for a single one. `self_bleu` is absent without
    sacreBLEU, `copied` without a training text, `run_signature` where the texts are of no run.
    """

    sentences: int
    tokens: int
    perplexity_per_sentence: float
    perplexity_per_sentence_standard_error: float | None
    perplexity_per_token: float
    perplexity_per_token_standard_error: float | None
    nll_per_sentence: float
    nll_per_sentence_standard_error: float | None
    distinct_1: float | None
    distinct_2: float | None
    distinct_3: float | None
    self_bleu: float | None
    self_bleu_standard_error: float | None
    copied: float | None
    copied_standard_error: float | None
    length: float
    length_standard_error: float | None
    signature: str
    run_signature: str | None = None
    notes: list[str] = field(default_factory=list)

    def to_dict(self) -> dict[str, Any]:
        """Return plain data."""
        return asdict(self)


def evaluate(
    texts: Sequence[str], judge: Autoregressive, training: str | Path | None = None
) -> Evaluation:
    """Judge texts, one sentence each, and say how varied they are and how many were copied."""
    if not texts:
        raise InputError("there is no sentence to evaluate.")
    for number, text in enumerate(texts, 1):
        if not text.split():
            raise InputError(f"sentence {number} is empty; give at least one word.")
    # What may be missing comes first: the judge and the training file, before any long work.
    ((name, fingerprint),) = judge.models().items()
    copies, copying = _copies(texts, training)
    said = perplexity(judge, texts)
    alike, bleu, notes = _self_bleu(texts)
    words = mean(np.array([len(text.split()) for text in texts]))
    signature = [
        f"judge:{name}#{fingerprint[:_SHORT]}",
        "perplexity:start-token,no-end",
        "distinct:words",
        f"self-bleu:{bleu}",
        f"copied:{copying}",
        f"version:{__version__}",
    ]
    return Evaluation(
        sentences=len(texts),
        tokens=said.tokens,
        perplexity_per_sentence=said.per_sentence.value,
        perplexity_per_sentence_standard_error=said.per_sentence.standard_error,
        perplexity_per_token=said.per_token.value,
        perplexity_per_token_standard_error=said.per_token.standard_error,
        nll_per_sentence=said.nll.value,
        nll_per_sentence_standard_error=said.nll.standard_error,
        distinct_1=distinct(texts, 1),
        distinct_2=distinct(texts, 2),
        distinct_3=distinct(texts, 3),
        self_bleu=alike.value if alike else None,
        self_bleu_standard_error=alike.standard_error if alike else None,
        copied=copies.value if copies else None,
        copied_standard_error=copies.standard_error if copies else None,
        length=words.value,
        length_standard_error=words.standard_error,
        signature="|".join(signature),
        notes=notes,
    )


def evaluate_run(run: Run, judge: Autoregressive, training: str | Path | None = None) -> Evaluation:
    """Judge the samples of a run; what the run says of itself goes with them."""
    samples = run.samples
    if not samples:
        raise InputError("the run has no samples yet; finish it with `maskov resume`.")
    found = evaluate([sample.text for sample in samples], judge, training)
    notes = [*run.summary().notes, *found.notes]
    if len({sample.chain for sample in samples}) < len(samples):
        notes.append(_CORRELATED)
    return replace(found, run_signature=run.signature, notes=notes)


def _self_bleu(texts: Sequence[str]) -> tuple[Estimate | None, str, list[str]]:
    """Return self-BLEU, how it was computed, and a note where it was not."""
    if len(texts) < 2:
        return None, "none", [_ALONE]
    chosen = spread(texts)
    try:
        found = self_bleu(chosen)
    except ImportError:
        return None, "none", [_NO_SACREBLEU]
    return found, f"sacrebleu-{version('sacrebleu')},exp,13a,n={len(chosen)}", []


def _copies(texts: Sequence[str], training: str | Path | None) -> tuple[Estimate | None, str]:
    """Return the share of copied texts, and which training text they were looked for in."""
    if training is None:
        return None, "none"
    found, content = copied(texts, training)
    return found, f"lower,no-space,training#{content[:_SHORT]}"
