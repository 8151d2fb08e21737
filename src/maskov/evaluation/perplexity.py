"""Perplexity of texts under a judge, a causal language model."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from maskov.energies import Autoregressive
from maskov.errors import InputError, ModelError
from maskov.evaluation.estimates import Estimate, mean, ratio


@dataclass(frozen=True)
class Perplexity:
    """Perplexity and negative log-likelihood (NLL, −log p in nats) of texts.

    `per_sentence` is the mean over sentences of exp(NLL / tokens), `per_token` is
    exp(Σ NLL / Σ tokens), and `nll` the mean NLL of a sentence. The first weighs sentences
    equally, the second tokens.
    """

    tokens: int
    per_sentence: Estimate
    per_token: Estimate
    nll: Estimate


def perplexity(
    judge: Autoregressive, texts: Sequence[str], labels: Sequence[str] | None = None
) -> Perplexity:
    """Score each text after the judge's start token, without an end token.

    `labels` name the texts in refusals; without them they are counted.
    """
    labels = labels or [f"sentence {number}" for number in range(1, len(texts) + 1)]
    ids = [judge.tokenise(text) for text in texts]
    for label, tokens in zip(labels, ids, strict=True):
        if not tokens:
            raise InputError(f"{label} has no token in the vocabulary of '{judge.name}'.")
        if len(tokens) > judge.max_length:
            raise InputError(
                f"{label} has {len(tokens)} tokens; '{judge.name}' takes at most "
                f"{judge.max_length}."
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
    return Perplexity(
        tokens=int(counts.sum()),
        per_sentence=mean(each),
        per_token=_exponential(ratio(nll, counts)),
        nll=mean(nll),
    )


def _exponential(estimate: Estimate) -> Estimate:
    """Return the exponential of an estimate, with its error to first order."""
    value, error = math.exp(estimate.value), estimate.standard_error
    return Estimate(value, None if error is None else value * error)
