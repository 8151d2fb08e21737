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


def perplexity(judge: Autoregressive, texts: Sequence[str]) -> Perplexity:
    """Score each text after the judge's start token, without an end token."""
    ids = [judge.tokenise(text) for text in texts]
    for number, tokens in enumerate(ids, 1):
        if not tokens:
            raise InputError(f"sentence {number} has no token in the vocabulary of '{judge.name}'.")
    nll = np.array([float(terms.sum()) for terms in judge.token_terms(ids)])
    counts = np.array([len(tokens) for tokens in ids])
    with np.errstate(over="ignore"):
        each = np.exp(nll / counts)
    if not np.isfinite(each).all():
        number = int(np.flatnonzero(~np.isfinite(each))[0]) + 1
        raise ModelError(
            f"the judge '{judge.name}' gives sentence {number} a perplexity that is not finite; "
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
