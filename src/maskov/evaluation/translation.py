"""How near translations are to references: BLEU and chrF, both sacreBLEU's own."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

from maskov.errors import InputError

if TYPE_CHECKING:
    from sacrebleu.metrics.base import Metric

RESAMPLES = 1000
# As many lines as make sacreBLEU warn; its warning names an option that a user here has not got.
_MANY = 100
_TOKENISED = (
    "many translations end in ' .' and look tokenised: sacreBLEU tokenises by itself, and its "
    "scores are meant for plain text"
)


@dataclass(frozen=True)
class Translation:
    """Scores of translations against one reference each, 0 to 100.

    An interval is half the width of sacreBLEU's 95 % bootstrap interval over sentences, and
    absent for a single one. `length_ratio` is tokens of translations over tokens of references.
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
) -> Translation:
    """Score each translation against the reference at its place; a translation may be empty."""
    if not any(text.split() for text in references):
        raise InputError("the references are empty; give one for each translation.")
    if len(hypotheses) != len(references):
        raise InputError(
            f"the number of translations is {len(hypotheses)}, that of references "
            f"{len(references)}; give one translation for each reference."
        )
    # Every resample of a single sentence is that sentence: an interval of 0 would be a lie.
    alone = len(hypotheses) < 2 or resamples < 2
    if not alone:
        _refuse_varying_seed()
    metrics = _metrics()
    bleu, chrf = (
        metric.corpus_score(hypotheses, [references], n_bootstrap=1 if alone else resamples)
        for metric in metrics
    )
    # Signatures say how often was resampled and with which seed, so they come after the scores.
    bleu_signature, chrf_signature = (metric.get_signature().format() for metric in metrics)
    tokenised = sum(text.endswith(" .") for text in hypotheses) >= _MANY
    return Translation(
        sentences=len(hypotheses),
        bleu=float(bleu.score),
        bleu_interval=None if alone else float(bleu._ci),
        bleu_signature=bleu_signature,
        brevity_penalty=float(bleu.bp),
        length_ratio=float(bleu.ratio),
        chrf=float(chrf.score),
        chrf_interval=None if alone else float(chrf._ci),
        chrf_signature=chrf_signature,
        notes=[_TOKENISED] if tokenised else [],
    )


def _metrics() -> tuple[Metric, Metric]:
    """Return BLEU and chrF as sacreBLEU has them by default."""
    try:
        from sacrebleu.metrics.bleu import BLEU
        from sacrebleu.metrics.chrf import CHRF
    except ImportError as error:
        raise InputError(
            "scores against references need sacreBLEU: pip install 'maskov[evaluate]'."
        ) from error

    class Chrf(CHRF):
        """chrF in plain floats.

        Resamples come in numpy's single precision, but a chrF of 0 is a plain 0.0, and sacreBLEU
        (2.6) breaks on a mean of both: a few empty translations are enough.
        """

        def _compute_f_score(self, statistics: Iterable[Any]) -> float:
            return super()._compute_f_score([int(count) for count in statistics])

    # `force` only silences a warning; the note says the same.
    return BLEU(force=True), Chrf()


def _refuse_varying_seed() -> None:
    """Hold the user to a seed: sacreBLEU draws from a generator of its own, seeded by this."""
    seed = os.environ.get("SACREBLEU_SEED")
    if seed is not None and not seed.isdecimal():
        raise InputError(
            f"SACREBLEU_SEED is '{seed}'; unset it or give a whole number, so that the intervals "
            "can be had again."
        )
