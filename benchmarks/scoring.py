"""E_norm of the same sentences by `score` and by minicons, in sentences per second.

    python -m benchmarks scoring --seconds 20 --out score.json

The values must agree for the speeds to be comparable. minicons runs at several batch sizes, and the
fastest counts.
"""

import time
import warnings
from collections.abc import Callable, Sequence
from itertools import islice
from typing import Any

from benchmarks.models import SENTENCES, load_model
from benchmarks.tools import MODEL, parser, show, write
from maskov.energies import Norm
from maskov.models import HuggingFaceModel
from maskov.scoring import score_texts

Scorer = Callable[[Sequence[str]], list[float]]
# Allowed relative difference of two scorers, which batch differently.
_TOLERANCE = {"float32": 1e-5, "tf32": 2e-3, "bfloat16": 2e-2}


def timed(scorer: Scorer, texts: Sequence[str], seconds: float) -> dict[str, Any]:
    """Score the texts again and again until the time is up, after the first few have warmed up."""
    scorer(texts[:4])
    rounds, begin = 0, time.perf_counter()
    while (elapsed := time.perf_counter() - begin) < seconds or not rounds:
        energies = scorer(texts)
        rounds += 1
    speed = rounds * len(texts) / elapsed
    return {"seconds": elapsed, "sentences_per_second": speed, "energies": energies}


def minicons_scorer(model: HuggingFaceModel, batch: int) -> Scorer:
    """Return minicons' scorer, used as its documentation shows."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # raised by minicons at import
        from minicons.scorer import MaskedLMScorer
        from transformers import PreTrainedTokenizerFast

    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=model.tokenizer.backend_tokenizer, **model.tokenizer.special_tokens_map
    )
    other = MaskedLMScorer(
        model.network, str(model.device), tokenizer=tokenizer, PLL_metric="original"
    )

    def score(texts: Sequence[str]) -> list[float]:
        # Encoded here: its own call uses a method that transformers 5 removed.
        encoded = tokenizer(list(texts), padding="longest")
        totals = other.sequence_score(encoded, reduction=lambda terms: float(terms.double().sum()))
        return [-total for total in totals]

    return lambda texts: [
        one for begin in range(0, len(texts), batch) for one in score(texts[begin : begin + batch])
    ]


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure both, compare, print and write."""
    options = parser(__doc__, **MODEL, seconds=20.0, sentences=64).parse_args(arguments)
    model = load_model(options.model, options.device, options.precision)
    fitting = (text for text in SENTENCES if len(model.encode(text)) <= model.max_length)
    texts = list(islice(fitting, options.sentences))

    def ours(texts: Sequence[str]) -> list[float]:
        return [scored.energy for scored in score_texts(model, texts, Norm())]

    rows = [{"name": "maskov", **timed(ours, texts, options.seconds)}]
    plain = load_model(options.model, options.device, options.precision, plain=True)
    others = [
        {"name": "minicons", "batch": n, **timed(minicons_scorer(plain, n), texts, options.seconds)}
        for n in ((8, 32, 128) if model.device.type == "cuda" else (1, 8))
    ]
    rows.append(max(others, key=lambda row: float(row["sentences_per_second"])))
    pairs = list(zip(*(row.pop("energies") for row in rows), strict=False))
    score = {
        "rows": rows,
        "compared": len(pairs),
        "largest_difference": max(abs(a - b) for a, b in pairs),
        "agree": all(abs(a - b) <= _TOLERANCE[options.precision] * abs(a) for a, b in pairs),
        "ratio": rows[0]["sentences_per_second"] / rows[1]["sentences_per_second"],
    }
    show(rows, "name", "sentences_per_second", "batch", "seconds")
    show([score], "ratio", "agree", "largest_difference")
    write(options, model.device, {"kind": "scoring", "score": score})
