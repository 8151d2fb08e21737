"""The numbers of the paper, as printed (Goyal, Dyer & Berg-Kirkpatrick, ICLR 2022).

E_norm of translations is a sum, in thousands, over a set that the paper calls "De-En (20)" without
giving its size; ours is a mean per sentence, so only ratios compare. E_raw is defined up to a shift
of each context's logits, so its values do not compare between models.
"""

from __future__ import annotations

Numbers = dict[str, dict[str, dict[float, float]]]

COUNTEREXAMPLE = {"first over second": 99.0, "second over first": 1.0}

# Section 5. The paper prints "raw" twice; we read the second as norm.
ACCEPTANCE = {
    "translation": {
        "deg": {"acceptance": 1.0, "novel": 0.36},
        "raw": {"acceptance": 0.90, "novel": 0.11},
        "norm": {"acceptance": 0.91, "novel": 0.13},
    },
    "text": {"deg": {"novel": 0.58}, "raw": {"novel": 0.10}, "norm": {"novel": 0.08}},
}


def _over(values: tuple[float, ...], *rows: tuple[float, ...]) -> list[dict[float, float]]:
    return [dict(zip(values, row, strict=True)) for row in rows]


def _numbers(
    values: tuple[float, ...], names: tuple[str, ...], **samplers: tuple[tuple[float, ...], ...]
) -> Numbers:
    return {
        sampler: dict(zip(names, _over(values, *rows), strict=True))
        for sampler, rows in samplers.items()
    }


TABLE1 = _numbers(
    (2.0, 1.5, 1.0, 0.8, 0.5),
    ("energy_norm", "novel", "bleu"),
    norm=(
        (12.87, 10.21, 11.13, 9.95, 7.85),
        (0.03, 0.05, 0.11, 0.06, 0.03),
        (25.91, 24.78, 24.74, 25.84, 27.23),
    ),
    deg=(
        (32.46, 29.57, 31.12, 21.12, 17.65),
        (1.0, 0.97, 0.36, 0.08, 0.04),
        (14.53, 10.12, 9.03, 24.77, 26.12),
    ),
)

TABLE2 = _numbers(
    (1.2, 1.0, 0.8, 0.5),
    ("energy_raw", "novel", "perplexity"),
    raw=((25.95, 19.82, 13.54, 9.91), (0.09, 0.09, 0.08, 0.06), (223.87, 108.12, 82.23, 77.44)),
    deg=((201.24, 83.23, 23.24, 10.05), (0.82, 0.81, 0.25, 0.09), (2238.6, 314.74, 88.15, 77.98)),
)

TABLE3 = _numbers(
    (1.0, 0.99, 0.95, 0.90, 0.80),
    ("energy_norm", "novel", "bleu"),
    norm=(
        (11.13, 10.65, 10.21, 9.95, 9.85),
        (0.11, 0.12, 0.10, 0.07, 0.05),
        (24.74, 24.95, 26.15, 27.35, 27.23),
    ),
    deg=(
        (31.12, 30.12, 28.75, 18.57, 18.23),
        (0.36, 0.33, 0.22, 0.10, 0.06),
        (9.03, 14.03, 18.04, 23.25, 23.55),
    ),
)

TABLE4 = {
    "translation": {
        "deg": {"energy_norm": 31.18, "novel": 0.77, "bleu": 9.03},
        "raw": {"energy_norm": 8.08, "novel": 0.40, "bleu": 27.12},
        "norm": {"energy_norm": 8.17, "novel": 0.41, "bleu": 26.78},
    },
    "text": {
        "deg": {"energy_raw": 81.87, "novel": 0.80, "perplexity": 166.29},
        "raw": {"energy_raw": 18.43, "novel": 0.21, "perplexity": 43.21},
        "norm": {"energy_raw": 17.67, "novel": 0.20, "perplexity": 92.23},
    },
}

TABLE5 = {
    "warm start": {"de-en": 20.27, "ro-en": 24.38},
    "degenerate Gibbs, T = 0.8": {"de-en": 27.88, "ro-en": 29.79},
    "mask-predict, 10 iterations": {"de-en": 29.27, "ro-en": 29.95},
    "MH norm": {"de-en": 29.74, "ro-en": 31.13},
    "MH raw": {"de-en": 30.12, "ro-en": 30.86},
    "autoregressive model": {"de-en": 30.18, "ro-en": 31.53},
}
# From the appendix: standard deviation over chains, in BLEU.
TABLE5_DEVIATION = 0.13

TABLE6 = {
    "base": {
        "deg": {"coherence": 1.23, "fluency": 1.2, "perplexity": 296.45},
        "norm": {"coherence": 1.6, "fluency": 1.82, "perplexity": 184.21},
        "raw": {"coherence": 2.05, "fluency": 2.45, "perplexity": 125.42},
    },
    "large": {
        "deg": {"coherence": 1.15, "fluency": 1.15, "perplexity": 310.22},
        "norm": {"coherence": 1.7, "fluency": 1.9, "perplexity": 175.43},
        "raw": {"coherence": 2.0, "fluency": 2.25, "perplexity": 132.76},
    },
}

# Here E_norm is not in thousands.
TABLE7 = _numbers(
    (0.02, 0.04, 0.06),
    ("energy_norm", "acceptance", "bleu"),
    norm=((3277.6, 3245.65, 3187.80), (0.52, 0.45, 0.41), (29.16, 27.58, 26.95)),
    raw=((3146.4, 3088.65, 2146.34), (0.71, 0.62, 0.58), (29.91, 28.32, 27.21)),
)
