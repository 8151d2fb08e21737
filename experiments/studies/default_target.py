"""Which target plain sentences have by default: draws of an ordered fill, tilted by an energy.

    python -m experiments.studies.default_target --out results/default

The targets are q(x) exp(−λ E(x)), where q is the model's ordered fill at a temperature, the surest
place first, and E is `norm(groups=4)`. Independent draws of q, weighted by exp(−λ E), say what the
text of each target is like and how often Metropolis-Hastings would accept such a draw; no chain is
run. The rule: among the targets whose text has a perplexity within 20 % of that of held-out text,
and that give 100 effective draws in the passes of about a minute on two cores, the one with the
fewest repeated words.
"""

from __future__ import annotations

import argparse
import json
import re
from pathlib import Path
from typing import Any

import numpy as np

import maskov
from experiments.studies.evidence import HELD_OUT

TEMPERATURES = (0.8, 0.85, 0.9, 1.0)
TILTS = (0.0, 0.05, 0.1, 0.15, 0.2)
LENGTH, GROUPS = 20, 4
# Effective draws that a verdict needs, and masked passes of about a minute on two cores.
EFFECTIVE, PASSES = 100, 12_000
NEAR = 0.2
_RESAMPLED = 200


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


def measured(rows: np.ndarray, energy: np.ndarray, tilt: float) -> dict[str, Any]:
    """Return what the target of a tilt is like, with the errors of resampled draws."""
    rng = np.random.default_rng(0)
    log_weight = -tilt * (energy - energy.min())
    weight = np.exp(log_weight) / np.exp(log_weight).sum()
    # A draw j is proposed where the chain is at i, which it is as often as its weight says.
    chance = np.exp(np.minimum(0.0, log_weight[None, :] - log_weight[:, None]))
    accepted = float(weight @ chance.mean(1))
    again = rng.integers(len(rows), size=(_RESAMPLED, len(rows)))
    spread = np.array([figures(rows[one], weight[one]) for one in again]).std(0)
    perplexity, share = figures(rows, weight)
    return {
        "tilt": tilt,
        "effective_share": float(1 / (len(rows) * (weight**2).sum())),
        "accepted": accepted,
        # An independence sampler that accepts with probability a: autocorrelation time (2 − a)/a.
        "passes": (LENGTH + (GROUPS if tilt else 0)) * EFFECTIVE * (2 - accepted) / accepted,
        "perplexity": perplexity,
        "perplexity_error": float(spread[0]),
        "repeated": share,
        "repeated_error": float(spread[1]),
    }


def chosen(targets: list[dict[str, Any]], perplexity: float) -> dict[str, Any] | None:
    """Return the target that the rule chooses."""
    good = [
        one for one in targets
        if one["passes"] <= PASSES and abs(one["perplexity"] / perplexity - 1) <= NEAR
    ]  # fmt: skip
    return min(good, key=lambda one: float(one["repeated"]), default=None)


def measure(model: str, judge: str, draws: int) -> dict[str, Any]:
    """Draw, weigh and compare."""
    held_out = judged(HELD_OUT.read_text().splitlines(), judge)
    perplexity, share = figures(held_out, np.ones(len(held_out)))
    targets = []
    for temperature in TEMPERATURES:
        law = f"ordered(temperature={temperature}, rule=confident)"
        run = maskov.sample(model, energy=law, chains=draws, length=LENGTH, progress=False)
        texts = [one.text for one in run]
        energy = np.array([s.energy for s in maskov.score(model, texts, f"norm(groups={GROUPS})")])
        rows = judged(texts, judge)
        targets += [{"temperature": temperature, **measured(rows, energy, tilt)} for tilt in TILTS]
    return {
        "model": model, "judge": judge, "draws": draws, "length": LENGTH,
        "held_out": {"texts": len(held_out), "perplexity": perplexity, "repeated": share},
        "targets": targets, "chosen": chosen(targets, perplexity),
    }  # fmt: skip


def page(found: dict[str, Any]) -> str:
    """Write the table."""
    held, best = found["held_out"], found["chosen"]
    lines = [
        "# The default target of plain sentences",
        "",
        f"q(x) exp(−λ E(x)): q is the ordered fill of {found['model']} at temperature T, the "
        f"surest place first, E is `norm(groups={GROUPS})`; {found['length']} tokens, "
        f"{found['draws']} independent draws of each q, weighted by exp(−λ E). {found['judge']} is "
        "the judge. Passes are those that a chain of redraws needs for 100 effective draws.",
        "",
        f"The rule: among the targets with a perplexity within {NEAR:.0%} of held-out text's that "
        f"need at most {PASSES:,} passes, about a minute on two cores, the fewest repeated words.",
        "",
        "| T | λ | accepted | passes | judge perplexity | repeated words |",
        "|---|---|---|---|---|---|",
        f"| held-out text ({held['texts']}) | | | | {held['perplexity']:.1f} | "
        f"{held['repeated']:.3f} |",
    ]
    for one in found["targets"]:
        mark = "**" if best == one else ""
        lines.append(
            f"| {mark}{one['temperature']}{mark} | {mark}{one['tilt']}{mark} | "
            f"{one['accepted']:.2f} | {one['passes']:,.0f} | "
            f"{one['perplexity']:.0f} ± {one['perplexity_error']:.0f} | "
            f"{one['repeated']:.3f} ± {one['repeated_error']:.3f} |"
        )
    lines += [
        "",
        "The judge was trained on text of the same kind as the model: it tells fluent from broken "
        "sentences, not true from false ones.",
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
    parser.add_argument("--model", default="wiki-small")
    parser.add_argument("--judge", default="wiki-judge")
    parser.add_argument("--draws", type=int, default=256)
    given = parser.parse_args(arguments)
    found = measure(given.model, given.judge, given.draws)
    given.out.mkdir(parents=True, exist_ok=True)
    (given.out / "targets.json").write_text(json.dumps(found, indent=1) + "\n")
    (given.out / "README.md").write_text(page(found))


if __name__ == "__main__":
    main()
