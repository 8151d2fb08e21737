"""Which target plain sentences have by default: draws of an ordered fill, tilted by an energy.

    python -m experiments.studies.default_target --out results/default

The targets are q(x) exp(−λ E(x) − μ R(x)). q is the model's ordered fill at a temperature, the
surest place first, E is `norm(groups=4)`, and R counts repeated words (`repeats(within=20)`).
Independent draws of q, weighted by exp(−λ E − μ R), say what the text of each target is like and
how often Metropolis-Hastings would accept such a draw; no chain is run. The rule: among the targets
with an energy of masked passes (λ > 0) whose text is near held-out text in perplexity, repeated
words and different pairs of words, the one that gives 100 effective draws in the fewest passes.
"""

from __future__ import annotations

import argparse
import itertools
import json
import re
from pathlib import Path
from typing import Any

import numpy as np

import maskov
from experiments.studies.evidence import HELD_OUT
from maskov.energies.counting import Repeats

TEMPERATURES = (0.8, 0.85, 0.9, 0.95)
TILTS = (0.0, 0.03, 0.05, 0.1)
# Weights of repeated words.
PENALTIES = (0.0, 0.35, 0.7)
WITHIN = 20
LENGTH, GROUPS = 20, 4
EFFECTIVE = 100  # draws that a verdict needs
# How near to held-out text: perplexity within 20 %, at most 1.3 times the repeated words, at least
# 0.95 of the different pairs.
NEAR, REPEATED, DISTINCT = 0.2, 1.3, 0.95
_RESAMPLED = 200
# Sentences whose pairs of words are compared; more of them have fewer different pairs.
COMPARED = 64


def repeated(text: str) -> tuple[int, int]:
    """Return how many words of a sentence stood in it before, and how many it has."""
    words = re.findall(r"[a-z]+", text.lower())
    return sum(word in words[:place] for place, word in enumerate(words)), len(words)


def judged(texts: list[str], judge: str) -> np.ndarray:
    """Return for each text: −log p of the judge, its tokens, repeated words, words."""
    scores = maskov.score(judge, texts, "autoregressive")
    rows = [
        (one.energy, len(one.tokens), *repeated(text))
        for one, text in zip(scores, texts, strict=True)
    ]
    return np.array(rows, dtype=float)


def figures(rows: np.ndarray, weight: np.ndarray) -> tuple[float, float]:
    """Return the judge's perplexity and the share of repeated words."""
    loss, tokens, repeats, words = weight @ rows
    return float(np.exp(loss / tokens)), float(repeats / words)


def distinct(texts: list[str]) -> float:
    """Return the share of different pairs of neighbouring words."""
    words = [text.lower().split() for text in texts]
    pairs = [pair for one in words for pair in itertools.pairwise(one)]
    return len(set(pairs)) / len(pairs)


def measured(
    texts: list[str], rows: np.ndarray, energy: np.ndarray, tilt: float, penalty: float
) -> dict[str, Any]:
    """Return what the target of a tilt is like, with the errors of resampled draws."""
    rng = np.random.default_rng(0)
    count = Repeats(WITHIN).count
    log_weight = -tilt * energy - penalty * np.array([count(text) for text in texts])
    log_weight -= log_weight.max()
    weight = np.exp(log_weight) / np.exp(log_weight).sum()
    compared = min(COMPARED, len(texts))
    some = [
        distinct([texts[one] for one in rng.choice(len(texts), compared, replace=False, p=weight)])
        for _ in range(_RESAMPLED)
    ]
    # A draw j is proposed where the chain is at i, which it is as often as its weight says.
    chance = np.exp(np.minimum(0.0, log_weight[None, :] - log_weight[:, None]))
    accepted = float(weight @ chance.mean(1))
    again = rng.integers(len(rows), size=(_RESAMPLED, len(rows)))
    spread = np.array([figures(rows[one], weight[one]) for one in again]).std(0)
    perplexity, share = figures(rows, weight)
    return {
        "tilt": tilt,
        "penalty": penalty,
        "effective_share": float(1 / (len(rows) * (weight**2).sum())),
        "accepted": accepted,
        # An independence sampler that accepts with probability a: autocorrelation time (2 − a)/a.
        "passes": (LENGTH + (GROUPS if tilt else 0)) * EFFECTIVE * (2 - accepted) / accepted,
        "perplexity": perplexity,
        "perplexity_error": float(spread[0]),
        "repeated": share,
        "repeated_error": float(spread[1]),
        "distinct_2": float(np.mean(some)),
        "distinct_2_error": float(np.std(some)),
    }


def chosen(targets: list[dict[str, Any]], held_out: dict[str, float]) -> dict[str, Any] | None:
    """Return the target that the rule chooses."""
    good = [
        one for one in targets
        if one["tilt"]
        and abs(one["perplexity"] / held_out["perplexity"] - 1) <= NEAR
        and one["repeated"] <= REPEATED * held_out["repeated"]
        and one["distinct_2"] >= DISTINCT * held_out["distinct_2"]
    ]  # fmt: skip
    return min(good, key=lambda one: float(one["passes"]), default=None)


def measure(model: str, judge: str, draws: int) -> dict[str, Any]:
    """Draw, weigh and compare."""
    sentences = HELD_OUT.read_text().splitlines()
    held_out = judged(sentences, judge)
    rng = np.random.default_rng(0)
    some = [
        distinct(list(rng.choice(sentences, COMPARED, replace=False))) for _ in range(_RESAMPLED)
    ]
    perplexity, share = figures(held_out, np.ones(len(held_out)))
    targets = []
    for temperature in TEMPERATURES:
        law = f"ordered(temperature={temperature}, rule=confident)"
        run = maskov.sample(model, energy=law, chains=draws, length=LENGTH, progress=False)
        texts = [one.text for one in run]
        energy = np.array([s.energy for s in maskov.score(model, texts, f"norm(groups={GROUPS})")])
        rows = judged(texts, judge)
        pairs = itertools.product(TILTS, PENALTIES)
        targets += [
            {"temperature": temperature, **measured(texts, rows, energy, *pair)} for pair in pairs
        ]
    text = {
        "texts": len(held_out), "perplexity": perplexity, "repeated": share,
        "distinct_2": float(np.mean(some)),
    }  # fmt: skip
    return {
        "model": model, "judge": judge, "draws": draws, "length": LENGTH, "held_out": text,
        "targets": targets, "chosen": chosen(targets, text),
    }  # fmt: skip


def page(found: dict[str, Any]) -> str:
    """Write the table."""
    held, best = found["held_out"], found["chosen"]
    lines = [
        "# The default target of plain sentences",
        "",
        f"q(x) exp(−λ E(x) − μ R(x)): q is the ordered fill of {found['model']} at temperature T, "
        f"the surest place first, E is `norm(groups={GROUPS})`, R is `repeats(within={WITHIN})`; "
        f"{found['length']} tokens, {found['draws']} independent draws of each q, weighted by "
        f"exp(−λ E − μ R). {found['judge']} is the judge. Passes are those that a chain of redraws "
        "needs for 100 effective draws, as the share of accepted draws predicts; chains that stay "
        "at a sequence of high weight need more. Distinct-2 is the share of different pairs of "
        f"words in {COMPARED} sentences.",
        "",
        f"The rule: among the targets with λ > 0 whose perplexity is within {NEAR:.0%} of held-out "
        f"text's, which repeat at most {REPEATED} times as many words and have at least {DISTINCT} "
        "of the different pairs of words, the one that needs the fewest passes.",
        "",
        "| T | λ | μ | accepted | passes | judge perplexity | repeated words | distinct-2 |",
        "|---|---|---|---|---|---|---|---|",
        f"| held-out text ({held['texts']}) | | | | | {held['perplexity']:.1f} | "
        f"{held['repeated']:.3f} | {held['distinct_2']:.3f} |",
    ]
    for one in found["targets"]:
        mark = "**" if best == one else ""
        lines.append(
            f"| {mark}{one['temperature']}{mark} | {mark}{one['tilt']}{mark} | "
            f"{one['penalty']} | {one['accepted']:.2f} | {one['passes']:,.0f} | "
            f"{one['perplexity']:.0f} ± {one['perplexity_error']:.0f} | "
            f"{one['repeated']:.3f} ± {one['repeated_error']:.3f} | "
            f"{one['distinct_2']:.3f} ± {one['distinct_2_error']:.3f} |"
        )
    lines += [
        "",
        "The judge was trained on text of the same kind as the model: it tells fluent from broken "
        "sentences, not true from false ones. [The text of runs](text.md) was measured afterwards.",
        "",
        "```console",
        f"$ python -m experiments.studies.default_target --draws {found['draws']} --out "
        "results/default",
        "```",
        "",
    ]
    return "\n".join(lines)


def main(arguments: list[str] | None = None) -> None:
    """Measure, and write the document and its page."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--model", default="wiki-any")
    parser.add_argument("--judge", default="wiki-judge")
    parser.add_argument("--draws", type=int, default=256)
    given = parser.parse_args(arguments)
    found = measure(given.model, given.judge, given.draws)
    given.out.mkdir(parents=True, exist_ok=True)
    (given.out / "targets.json").write_text(json.dumps(found, indent=1) + "\n")
    (given.out / "README.md").write_text(page(found))


if __name__ == "__main__":
    main()
