"""What `maskov evaluate` says: perplexity, diversity and copies; of translations BLEU and chrF."""

from __future__ import annotations

import gzip
import hashlib
import lzma
import math
import os
import zlib
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from maskov.energies import Autoregressive
from maskov.errors import InputError, ModelError, reason_of, refuse, refusing
from maskov.fasta import Record, causal_spellings
from maskov.runs.result import Run, record_of
from maskov.version import __version__

if TYPE_CHECKING:
    from sacrebleu.metrics.base import Metric

# Letters of a hash in a signature.
_SHORT = 12
# Self-BLEU grows with the number of references; the cap makes large sets comparable.
MAX_SENTENCES = 500
_ORDER = 4
# Maximum bytes of a line or a record: a compressed file could expand beyond memory.
_MAX_LINE = 2**20
_OPEN: dict[str, Callable[..., Any]] = {".xz": lzma.open, ".gz": gzip.open}
RESAMPLES = 1000
# sacreBLEU warns from this many lines on, but names an option that does not exist here.
_MANY = 100


@dataclass(frozen=True)
class Estimate:
    """A number and its standard error over sentences; None for a single sentence."""

    value: float
    standard_error: float | None


def mean(values: npt.NDArray[Any]) -> Estimate:
    """Return the mean over sentences."""
    error = float(values.std(ddof=1) / math.sqrt(len(values))) if len(values) > 1 else None
    return Estimate(float(values.mean()), error)


def ratio(parts: npt.NDArray[Any], wholes: npt.NDArray[Any]) -> Estimate:
    """Return Σ parts / Σ wholes, both of which vary between sentences.

    The standard error is that of the ratio estimator, to first order: that of the mean of
    `part − ratio · whole`, divided by the mean whole.
    """
    value = float(parts.sum() / wholes.sum())
    error = mean(parts - value * wholes).standard_error
    return Estimate(value, None if error is None else error / float(wholes.mean()))


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


def evaluate(
    texts: Sequence[str | Record], judge: Autoregressive, training: str | Path | None = None
) -> Evaluation:
    """Evaluate texts of one sentence each, or records of FASTA: perplexity, diversity, copies."""
    records = [text for text in texts if isinstance(text, Record)]
    refuse(
        (not texts, "there is no sentence to evaluate."),
        (0 < len(records) < len(texts), "texts are all lines, or all records of FASTA."),
    )
    labels = [
        f"'{text.name}'" if isinstance(text, Record) else f"sentence {number}"
        for number, text in enumerate(texts, 1)
    ]
    # What is counted: of a sequence the letters are the words.
    counted = [" ".join(record.sequence) for record in records] or list(map(str, texts))
    refuse(
        *(
            (not text.split(), f"{label} is empty; give at least one word.")
            for text, label in zip(counted, labels, strict=True)
        )
    )
    # Before any long work: the judge and the training file may be missing.
    ((name, fingerprint),) = judge.models().items()
    spelt = causal_spellings(judge, records) or counted
    copies, copies_signature = None, "none"
    if training is not None:
        copies, content = copied(counted, training, fasta=bool(records))
        copies_signature = f"lower,no-space,training#{content[:_SHORT]}"
    tokens, per_sentence, per_token, nll = perplexity(judge, spelt, labels)
    bleu, bleu_signature, notes = _self_bleu(counted, "letters" if records else "13a")
    length = mean(np.array([len(text.split()) for text in counted]))
    signature = [
        f"judge:{name}#{fingerprint[:_SHORT]}",
        "perplexity:start-token,no-end",
        f"distinct:{'letters' if records else 'words'}",
        f"self-bleu:{bleu_signature}",
        f"copied:{copies_signature}",
        f"version:{__version__}",
    ]
    return Evaluation(
        sentences=len(texts),
        tokens=tokens,
        perplexity_per_sentence=per_sentence.value,
        perplexity_per_sentence_standard_error=per_sentence.standard_error,
        perplexity_per_token=per_token.value,
        perplexity_per_token_standard_error=per_token.standard_error,
        nll_per_sentence=nll.value,
        nll_per_sentence_standard_error=nll.standard_error,
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
    refuse((not samples, "the run has no samples yet; finish it with `maskov resume`."))
    letters, several = run.manifest.inputs.names is not None, bool(run.manifest.config.thin)
    texts = [record_of(one, several) if letters else one.text for one in samples]
    evaluation = evaluate(texts, judge, training)
    notes = [*run.summary().notes, *evaluation.notes]
    if len({sample.chain for sample in samples}) < len(samples):
        notes.append(
            "samples of the same chain are correlated: the standard errors assume independence "
            "and are too small"
        )
    return replace(evaluation, run_signature=run.signature, notes=notes)


def _self_bleu(texts: Sequence[str], tokens: str) -> tuple[Estimate | None, str, list[str]]:
    """Return self-BLEU, its part of the signature, and a note if it was not computed.

    `tokens` says in the signature what BLEU's tokens are.
    """
    if len(texts) < 2:
        return None, "none", ["self-BLEU needs at least two sentences"]
    size = min(MAX_SENTENCES, len(texts))
    chosen = [texts[index * len(texts) // size] for index in range(size)]  # evenly spaced
    try:
        bleu = self_bleu(chosen)
    except ImportError:
        return None, "none", ["self-BLEU needs sacreBLEU: pip install '.[evaluate]'"]
    return bleu, f"sacrebleu-{version('sacrebleu')},exp,{tokens},n={size}", []


def perplexity(
    judge: Autoregressive, texts: Sequence[str], labels: Sequence[str] | None = None
) -> tuple[int, Estimate, Estimate, Estimate]:
    """Return the tokens of texts, their perplexity by sentence and by token, and the mean NLL.

    Each text is scored after the judge's start token, without an end token. With the negative
    log-likelihood (NLL, −log p in nats), the perplexity by sentence is the mean over sentences of
    exp(NLL / tokens), which weighs sentences equally; that by token is exp(Σ NLL / Σ tokens).
    `labels` name the texts in refusals; without them they are counted.
    """
    labels = labels or [f"sentence {number}" for number in range(1, len(texts) + 1)]
    ids = [judge.tokenise(text) for text in texts]
    for label, tokens in zip(labels, ids, strict=True):
        refuse(
            (not tokens, f"{label} has no token in the vocabulary of '{judge.name}'."),
            (
                len(tokens) > judge.max_length,
                f"{label} has {len(tokens)} tokens; '{judge.name}' takes at most "
                f"{judge.max_length}.",
            ),
        )
    nll = np.array([float(terms.sum()) for terms in judge.token_terms(ids)])
    counts = np.array([len(tokens) for tokens in ids])
    with np.errstate(over="ignore"):
        each = np.exp(nll / counts)
    if not np.isfinite(each).all():
        label = labels[int(np.flatnonzero(~np.isfinite(each))[0])]
        raise ModelError(
            f"the judge '{judge.name}' gives {label} a perplexity that is not finite; "
            "use another judge."
        )
    rate = ratio(nll, counts)
    per_token, error = math.exp(rate.value), rate.standard_error
    # Its error is that of the rate to first order.
    by_token = Estimate(per_token, None if error is None else per_token * error)
    return int(counts.sum()), mean(each), by_token, mean(nll)


def distinct(texts: Sequence[str], n: int) -> float | None:
    """Return the fraction of distinct n-grams of words; n-grams do not cross sentences."""
    grams = [gram for text in texts for gram in _ngrams(text.split(), n)]
    return len(set(grams)) / len(grams) if grams else None


def self_bleu(texts: Sequence[str]) -> Estimate:
    """Return the mean sentence BLEU-4 of each text against all the others, 0 to 100.

    Tokens and scores are sacreBLEU's. The counting is done here: BLEU needs the largest count of
    each n-gram over the references, and the largest over all other texts is the largest or the
    second largest over all texts. So each text is counted once rather than once per other text.
    """
    from sacrebleu.metrics.bleu import BLEU

    tokenise = BLEU(effective_order=True).tokenizer
    words = [tokenise(text.rstrip()).split() for text in texts]
    counts = [Counter(gram for n in range(_ORDER) for gram in _ngrams(w, n + 1)) for w in words]
    # The second largest and the largest count of each n-gram in any text.
    largest = defaultdict[tuple[str, ...], list[int]](lambda: [0, 0])
    for each in counts:
        for gram, count in each.items():
            largest[gram] = sorted([*largest[gram], count])[1:]
    scores = []
    for index, own in enumerate(counts):
        correct, total = [0] * _ORDER, [0] * _ORDER
        for gram, count in own.items():
            second, first = largest[gram]
            correct[len(gram) - 1] += min(count, second if count == first else first)
            total[len(gram) - 1] += count
        size = len(words[index])
        others = (len(other) for number, other in enumerate(words) if number != index)
        nearest = min(others, key=lambda length: (abs(length - size), length))
        scores.append(
            BLEU.compute_bleu(
                correct, total, size, nearest, smooth_method="exp", effective_order=True
            ).score
        )
    return mean(np.array(scores))


def _ngrams(words: Sequence[str], n: int) -> list[tuple[str, ...]]:
    return [tuple(words[i : i + n]) for i in range(len(words) - n + 1)]


def copied(texts: Sequence[str], training: str | Path, fasta: bool = False) -> tuple[Estimate, str]:
    """Return the fraction of texts that are a line of the training text, and that text's hash.

    Case and white space are ignored, since tokenizers change both. The training text may be plain,
    .xz or .gz; it is read line by line, and only hashes are kept in memory. Where the texts are
    sequences (`fasta`), it may be FASTA, too.
    """
    hashes = [_hash(text) for text in texts]
    missing = set(hashes)
    content = hashlib.sha256()
    try:
        with _OPEN.get(Path(training).suffix, open)(training, "rb") as file:
            lines = _lines(file, training, content.update)
            for text in _sequences(lines, training) if fasta else lines:
                missing.discard(_hash(text))
    except (OSError, EOFError, lzma.LZMAError, zlib.error) as error:
        raise InputError(f"cannot read '{training}': {reason_of(error).rstrip('.')}.") from error
    return mean(np.array([key not in missing for key in hashes], float)), content.hexdigest()


def _lines(file: Any, training: object, update: Callable[[bytes], object]) -> Iterator[str]:
    """Yield the lines of a file, whose bytes `update` is told of."""
    number = 0
    for number, line in enumerate(iter(lambda: file.readline(_MAX_LINE), b""), 1):
        if len(line) == _MAX_LINE:
            raise InputError(f"line {number} of '{training}' is too long for a sentence.")
        update(line)
        try:
            text = line.decode("utf-8-sig" if number == 1 else "utf-8")
        except UnicodeDecodeError as error:
            raise InputError(f"'{training}' is not UTF-8 text (line {number}).") from error
        yield text
    refuse((not number, f"'{training}' is empty; give one sentence per line."))


def _sequences(lines: Iterable[str], training: object) -> Iterator[str]:
    """Yield the sequences of FASTA, whose lines are joined, or of lines without a header."""
    text, headed = "", False
    for line in lines:
        header = line.startswith(">")
        if header or not headed:
            yield text.removesuffix("*")
            text, headed = "", headed or header
        text += "" if header else line.strip()
        refuse((len(text) > _MAX_LINE, f"a record of '{training}' is too long for a sequence."))
    yield text.removesuffix("*")


def _hash(text: str) -> bytes:
    """Hash a text, ignoring case and white space."""
    return hashlib.blake2b("".join(text.lower().split()).encode(), digest_size=16).digest()


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


def compare(
    hypotheses: Sequence[str], references: Sequence[str], resamples: int = RESAMPLES
) -> TranslationScores:
    """Score each translation against its reference; translations may be empty."""
    # All resamples of a single sentence are equal: an interval of 0 would be wrong.
    single = len(hypotheses) < 2 or resamples < 2
    # With a seed that is not a number, sacreBLEU would draw different resamples each time.
    seed = os.environ.get("SACREBLEU_SEED", "0")
    refuse(
        (
            not any(text.split() for text in references),
            "the references are empty; give one for each translation.",
        ),
        (
            len(hypotheses) != len(references),
            f"the number of translations is {len(hypotheses)}, that of references "
            f"{len(references)}; give one translation for each reference.",
        ),
        (
            not single and not seed.isdecimal(),
            f"SACREBLEU_SEED is '{seed}'; unset it or give a whole number, so that the intervals "
            "are reproducible.",
        ),
    )
    metrics = _metrics("scores against references need")
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
        notes=[
            "many translations end in ' .' and look tokenised: sacreBLEU does its own tokenisation "
            "and expects plain text"
        ]
        * tokenised,
    )


def _metrics(what_needs: str) -> tuple[Metric, Metric]:
    """Return BLEU and chrF with sacreBLEU's defaults."""
    with refusing(f"{what_needs} sacreBLEU: pip install '.[evaluate]'.", ImportError):
        from sacrebleu.metrics.bleu import BLEU
        from sacrebleu.metrics.chrf import CHRF

    class Chrf(CHRF):
        """chrF in plain floats.

        Resampled scores are numpy floats of single precision, but a chrF of 0 is a Python float;
        sacreBLEU (2.6) fails on a mean of both, which a few empty translations cause.
        """

        def _compute_f_score(self, statistics: Iterable[Any]) -> float:
            return super()._compute_f_score([int(count) for count in statistics])

    # `force` only silences the warning, which the note replaces.
    return BLEU(force=True), Chrf()


def most_alike(texts: Sequence[str]) -> int:
    """Return which text is the most similar to all others by chrF, the first of equals."""
    if len(texts) < 2:
        return 0
    _, metric = _metrics("--pick mbr needs")
    # Each distinct text is compared once.
    distinct = list(dict.fromkeys(texts))

    def gain(text: str) -> float:
        alike = (metric.sentence_score(text, [other]).score for other in distinct)
        return float(sum(texts.count(o) * a for o, a in zip(distinct, alike, strict=True)))

    return texts.index(max(distinct, key=gain))
