"""The numbers of `maskov evaluate`, with a signature of how they were computed."""

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
from maskov.evaluation.diversity import distinct, self_bleu, subset
from maskov.evaluation.estimates import Estimate, mean
from maskov.evaluation.perplexity import perplexity
from maskov.fasta import Record, causal_spellings
from maskov.runs import Run
from maskov.runs.sample import record_of
from maskov.version import __version__

_SHORT = 12
_NO_SACREBLEU = "self-BLEU needs sacreBLEU: pip install '.[evaluate]'"
_ALONE = "self-BLEU needs at least two sentences"
_CORRELATED = (
    "samples of the same chain are correlated: the standard errors assume independence and are "
    "too small"
)


@dataclass(frozen=True)
class Evaluation:
    """The evaluation of texts; docs/how-to/evaluate.md defines each number.

    Standard errors are over sentences, None for a single one. `self_bleu` is None without
    sacreBLEU, `copied` without a training text, `run_signature` for texts that are not a run's.
    Of records of FASTA the letters are the words.
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
    texts: Sequence[str | Record], judge: Autoregressive, training: str | Path | None = None
) -> Evaluation:
    """Evaluate texts of one sentence each, or records of FASTA: perplexity, diversity, copies."""
    if not texts:
        raise InputError("there is no sentence to evaluate.")
    records = [text for text in texts if isinstance(text, Record)]
    if records and len(records) < len(texts):
        raise InputError("texts are all lines, or all records of FASTA.")
    labels = [_label(text, number) for number, text in enumerate(texts, 1)]
    # What is counted: of a sequence the letters are the words.
    counted = [" ".join(record.sequence) for record in records] or list(map(str, texts))
    for text, label in zip(counted, labels, strict=True):
        if not text.split():
            raise InputError(f"{label} is empty; give at least one word.")
    # Before any long work: the judge and the training file may be missing.
    ((name, fingerprint),) = judge.models().items()
    spelt = causal_spellings(judge, records) or counted
    copies, copies_signature = _copies(counted, training, fasta=bool(records))
    judged = perplexity(judge, spelt, labels)
    unit = "letters" if records else "words"
    bleu, bleu_signature, notes = _self_bleu(counted, "letters" if records else "13a")
    length = mean(np.array([len(text.split()) for text in counted]))
    signature = [
        f"judge:{name}#{fingerprint[:_SHORT]}",
        "perplexity:start-token,no-end",
        f"distinct:{unit}",
        f"self-bleu:{bleu_signature}",
        f"copied:{copies_signature}",
        f"version:{__version__}",
    ]
    return Evaluation(
        sentences=len(texts),
        tokens=judged.tokens,
        perplexity_per_sentence=judged.per_sentence.value,
        perplexity_per_sentence_standard_error=judged.per_sentence.standard_error,
        perplexity_per_token=judged.per_token.value,
        perplexity_per_token_standard_error=judged.per_token.standard_error,
        nll_per_sentence=judged.nll.value,
        nll_per_sentence_standard_error=judged.nll.standard_error,
        distinct_1=distinct(counted, 1),
        distinct_2=distinct(counted, 2),
        distinct_3=distinct(counted, 3),
        self_bleu=bleu.value if bleu else None,
        self_bleu_standard_error=bleu.standard_error if bleu else None,
        copied=copies.value if copies else None,
        copied_standard_error=copies.standard_error if copies else None,
        length=length.value,
        length_standard_error=length.standard_error,
        signature="|".join(signature),
        notes=notes,
    )


def evaluate_run(run: Run, judge: Autoregressive, training: str | Path | None = None) -> Evaluation:
    """Evaluate the samples of a run; its signature and notes are included.

    Those of a run that started from FASTA are sequences of letters.
    """
    samples = run.samples
    if not samples:
        raise InputError("the run has no samples yet; finish it with `maskov resume`.")
    texts: list[str | Record]
    if run.manifest.inputs.names is None:
        texts = [sample.text for sample in samples]
    else:
        several = bool(run.manifest.config.thin)
        texts = [record_of(sample, several) for sample in samples]
    evaluation = evaluate(texts, judge, training)
    notes = [*run.summary().notes, *evaluation.notes]
    if len({sample.chain for sample in samples}) < len(samples):
        notes.append(_CORRELATED)
    return replace(evaluation, run_signature=run.signature, notes=notes)


def _label(text: str | Record, number: int) -> str:
    """Return what a text is called in a refusal."""
    return f"'{text.name}'" if isinstance(text, Record) else f"sentence {number}"


def _self_bleu(texts: Sequence[str], tokens: str) -> tuple[Estimate | None, str, list[str]]:
    """Return self-BLEU, its part of the signature, and a note if it was not computed.

    `tokens` says in the signature what BLEU's tokens are.
    """
    if len(texts) < 2:
        return None, "none", [_ALONE]
    chosen = subset(texts)
    try:
        bleu = self_bleu(chosen)
    except ImportError:
        return None, "none", [_NO_SACREBLEU]
    return bleu, f"sacrebleu-{version('sacrebleu')},exp,{tokens},n={len(chosen)}", []


def _copies(
    texts: Sequence[str], training: str | Path | None, fasta: bool
) -> tuple[Estimate | None, str]:
    """Return the fraction of copied texts, and its part of the signature."""
    if training is None:
        return None, "none"
    copies, content = copied(texts, training, fasta)
    return copies, f"lower,no-space,training#{content[:_SHORT]}"
