"""Which energy gives missing tokens the most probability: the choice of the default of `infill`.

    python -m experiments.studies.fill_energies TEXTS --out results/restoration --gaps 1:120,3:50

Every gap has a few candidates: the truth and draws of `ordered(orders=8)`, for gaps of one token
its likeliest tokens and draws of the others. exp(−E) of each part is known once for all energies,
which are sums of these parts. Z is a weighted mean over the draws, and never less than the sum over
the candidates. A few draws make it rather too small: energies that are not normalised look better
than they are.
"""

from __future__ import annotations

import argparse
import json
import math
import random
from pathlib import Path

import numpy as np
import torch
from scipy.special import logsumexp

import maskov
from experiments.studies.restoration import Gap, sentences
from maskov.energies.ordered import Ordered
from maskov.models.base import MaskedModel, Queries
from maskov.models.scorer import Scorer
from maskov.random import CounterRng
from maskov.types import Sequences

# Weights of the parts of each energy; the first is compared with the others.
ENERGIES = {
    "ordered(orders=8)": {"ordered": 1.0},
    "norm": {"norm": 1.0},
    "norm, T = 1.45": {"norm": 1 / 1.45},
    "raw": {"raw": 1.0},
    "raw, T = 2.8": {"raw": 1 / 2.8},
    "0.8*ordered(orders=8)+0.1*norm": {"ordered": 0.8, "norm": 0.1},
    "0.8*ordered(orders=8)+0.2*norm": {"ordered": 0.8, "norm": 0.2},
    "0.7*ordered(orders=8)+0.25*norm": {"ordered": 0.7, "norm": 0.25},
    "0.5*ordered(orders=8)+0.5*norm": {"ordered": 0.5, "norm": 0.5},
    "ordered(left-to-right), whole line": {"left-to-right": 1.0},
    "ordered(right-to-left), whole line": {"right-to-left": 1.0},
}
_DRAWS, _LIKELIEST, _REST = 24, 14, 4


def candidates(
    gap: Gap, scorer: Scorer, seed: int
) -> tuple[list[tuple[int, ...]], list[tuple[tuple[int, ...], float]]]:
    """Return fills whose exp(−E) is added up, and draws of the others with their log q."""
    length = len(gap.ids)
    free = torch.zeros((1, length), dtype=torch.bool)
    free[0, gap.start : gap.start + gap.size] = True
    count = _LIKELIEST + _REST if gap.size == 1 else _DRAWS
    rows = Sequences(
        torch.tensor([gap.ids]).repeat(count, 1), torch.full((count,), length),
        free=free.repeat(count, 1),
    )  # fmt: skip
    energy = Ordered(orders=1 if gap.size == 1 else 8)
    if gap.size > 1:
        tokens, *_ = energy.draw(
            scorer, rows, torch.arange(count), torch.zeros(count, dtype=torch.long),
            CounterRng(seed),
        )  # fmt: skip
        fills = [tuple(row) for row in tokens[:, gap.start : gap.start + gap.size].tolist()]
        log_q = -energy(scorer.model, rows.with_tokens(tokens))
        return [], list(zip(fills, log_q.tolist(), strict=True))
    tokens = gap.shape(scorer.model.mask_id, 1).tokens[None]
    logits = scorer.model.logits(scorer.hidden(Queries(tokens, rows.lengths[:1], free))).double()[0]
    logs = logits.masked_fill(scorer.model.forbidden, -torch.inf).log_softmax(0)
    best = logs.topk(_LIKELIEST).indices
    rest = logs.index_fill(0, best, -torch.inf).log_softmax(0)
    picked = rest.exp().multinomial(
        _REST, replacement=True, generator=torch.Generator().manual_seed(seed)
    )
    return [(one,) for one in best.tolist()], [
        ((one,), float(rest[one])) for one in picked.tolist()
    ]


def parts(gap: Gap, fills: list[tuple[int, ...]], scorer: Scorer) -> dict[str, np.ndarray]:
    """Return the value of every part for each fill."""
    count, places = len(fills), slice(gap.start, gap.start + gap.size)
    tokens = torch.tensor([gap.ids]).repeat(count, 1)
    tokens[:, places] = torch.tensor(fills)
    lengths = torch.full((count,), tokens.shape[1])
    free = torch.zeros_like(tokens, dtype=torch.bool)
    free[:, places] = True
    whole, blanks = Sequences(tokens, lengths), Sequences(tokens, lengths, free=free)
    cache = scorer.cache(whole, True)
    found = {
        "raw": -cache.logit.sum(1),
        "norm": (cache.log_normaliser - cache.logit).sum(1),
        "ordered": Ordered(orders=1 if gap.size == 1 else 8).evaluate(scorer, blanks).value,
    }
    for order in ("left-to-right", "right-to-left"):
        energy = Ordered(order)
        # The passes of places that are revealed before the gap are the same for all fills.
        first = energy.evaluate(scorer, whole.rows(torch.tensor([0]))).cells
        found[order] = energy.evaluate(scorer, whole, first.expand(count, -1), free).value
    return {name: value.double().numpy() for name, value in found.items()}


def log_scores(gap: Gap, scorer: Scorer, seed: int) -> dict[str, float]:
    """Return log p of the missing tokens under each energy."""
    known, drawn = candidates(gap, scorer, seed)
    fills = list(dict.fromkeys([gap.truth, *known, *(fill for fill, _ in drawn)]))
    index = {fill: number for number, fill in enumerate(fills)}
    values, found = parts(gap, fills, scorer), {}
    summed = [index[fill] for fill in known]
    for name, weights in ENERGIES.items():
        log_weight = -sum(weight * values[part] for part, weight in weights.items())
        estimate = [log_weight[index[fill]] - q - math.log(len(drawn)) for fill, q in drawn]
        log_z = max(logsumexp([*log_weight[summed], *estimate]), logsumexp(log_weight))
        # The first is normalised: its Z is known.
        found[name] = float(log_weight[0] - (log_z if found else 0.0))
    return found


def measure(model: MaskedModel, texts: Path, sizes: dict[int, int], seed: int) -> dict[str, object]:
    """Return the mean log score of each energy and size, and its difference to the first."""
    pool, found = list(sentences(model, texts)), {name: {} for name in ENERGIES}
    for size, count in sizes.items():
        chosen = random.Random(seed)
        chosen.shuffle(pool)
        rows = list[dict[str, float]]()
        for ids in pool[:count]:
            gap = Gap(ids, chosen.randrange(len(ids) - size), size)
            rows.append(log_scores(gap, Scorer(model), seed))
        usual = np.array([row["ordered(orders=8)"] for row in rows])
        for name in ENERGIES:
            mine = np.array([row[name] for row in rows])
            gain = mine - usual
            error = gain.std(ddof=1) / math.sqrt(len(rows))
            figures = (mine.mean(), gain.mean(), error)
            found[name][str(size)] = [round(float(one), 3) for one in figures]
    return {"texts": texts.name, "gaps": {str(k): v for k, v in sizes.items()}, "energies": found}


def main(arguments: list[str] | None = None) -> None:
    """Measure, and write energies.json."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("texts", type=Path)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--model", default="wiki-small")
    parser.add_argument("--gaps", default="1:120,3:50", help="SIZE:COUNT,...")
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args(arguments)
    sizes = {
        int(size): int(n) for size, _, n in (one.partition(":") for one in given.gaps.split(","))
    }
    with torch.inference_mode():
        document = measure(maskov.load(given.model), given.texts, sizes, given.seed)
    given.out.mkdir(parents=True, exist_ok=True)
    (given.out / "energies.json").write_text(json.dumps(document, indent=1) + "\n")


if __name__ == "__main__":
    main()
