"""BLEU and chrF of translations against references, and the text most like others: by sacreBLEU."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

from maskov.errors import InputError

if TYPE_CHECKING:
    from sacrebleu.metrics.base import Metric

RESAMPLES = 1000
# sacreBLEU warns from this many lines on, but names an option that does not exist here.
_MANY = 100
_TOKENISED = (
    "many translations end in ' .' and look tokenised: sacreBLEU does its own tokenisation and "
    "expects plain text"
)


@dataclass(frozen=True)
class TranslationScores:
    """Scores of translations against one reference each, 0 to 100.

    An interval is half the width of sacreBLEU's 95 % bootstrap interval over sentences, None for a
    single one. `length_ratio` is the tokens of translations over those of references.
    """

    sentences: int
    bleu: float
    bleu_interval: float | None
    bleu_signature: str
    brevity_penalty: float
    length_ratio: float
    chrf: float
    chrf_interval: float | None
    chrf_signature: str
    notes: list[str] = field(default_factory=list)

    def to_dict(self) -> dict[str, Any]:
        """Return plain data."""
        return asdict(self)


def compare(
    hypotheses: Sequence[str], references: Sequence[str], resamples: int = RESAMPLES
) -> TranslationScores:
    """Score each translation against its reference; translations may be empty."""
    if not any(text.split() for text in references):
        raise InputError("the references are empty; give one for each translation.")
    if len(hypotheses) != len(references):
        raise InputError(
            f"the number of translations is {len(hypotheses)}, that of references "
            f"{len(references)}; give one translation for each reference."
        )
    # All resamples of a single sentence are equal: an interval of 0 would be wrong.
    single = len(hypotheses) < 2 or resamples < 2
    if not single:
        _refuse_varying_seed()
    metrics = _metrics()
    bleu, chrf = (
        metric.corpus_score(hypotheses, [references], n_bootstrap=1 if single else resamples)
        for metric in metrics
    )
    # After the scores: signatures contain the number of resamples and the seed.
    bleu_signature, chrf_signature = (metric.get_signature().format() for metric in metrics)
    tokenised = sum(text.endswith(" .") for text in hypotheses) >= _MANY
    return TranslationScores(
        sentences=len(hypotheses),
        bleu=float(bleu.score),
        bleu_interval=None if single else float(bleu._ci),
        bleu_signature=bleu_signature,
        brevity_penalty=float(bleu.bp),
        length_ratio=float(bleu.ratio),
        chrf=float(chrf.score),
        chrf_interval=None if single else float(chrf._ci),
        chrf_signature=chrf_signature,
        notes=[_TOKENISED] if tokenised else [],
    )


def _metrics() -> tuple[Metric, Metric]:
    """Return BLEU and chrF with sacreBLEU's defaults."""
    try:
        from sacrebleu.metrics.bleu import BLEU
        from sacrebleu.metrics.chrf import CHRF
    except ImportError as error:
        raise InputError(
            "scores against references need sacreBLEU: pip install '.[evaluate]'."
        ) from error

    class Chrf(CHRF):
        """chrF in plain floats.

        Resampled scores are numpy floats of single precision, but a chrF of 0 is a Python float;
        sacreBLEU (2.6) fails on a mean of both, which a few empty translations cause.
        """

        def _compute_f_score(self, statistics: Iterable[Any]) -> float:
            return super()._compute_f_score([int(count) for count in statistics])

    # `force` only silences the warning, which the note replaces.
    return BLEU(force=True), Chrf()


def _refuse_varying_seed() -> None:
    """Refuse a seed that is not a number: sacreBLEU would then draw different resamples."""
    seed = os.environ.get("SACREBLEU_SEED")
    if seed is not None and not seed.isdecimal():
        raise InputError(
            f"SACREBLEU_SEED is '{seed}'; unset it or give a whole number, so that the intervals "
            "are reproducible."
        )


def most_alike(texts: Sequence[str]) -> int:
    """Return which text is the most similar to all others by chrF, the first of equals."""
    if len(texts) < 2:
        return 0
    try:
        from sacrebleu.metrics.chrf import CHRF
    except ImportError as error:
        raise InputError("--pick mbr needs sacreBLEU: pip install '.[evaluate]'.") from error
    metric = CHRF()
    # Each distinct text is compared once.
    distinct = list(dict.fromkeys(texts))

    def gain(text: str) -> float:
        alike = (metric.sentence_score(text, [other]).score for other in distinct)
        return float(sum(texts.count(o) * a for o, a in zip(distinct, alike, strict=True)))

    return texts.index(max(distinct, key=gain))
