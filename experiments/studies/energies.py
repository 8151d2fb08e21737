"""Which energy should be the default: samples compared with held-out text, by distribution.

    python -m experiments.studies.energies sample --out results/energies [--device cuda]
    python -m experiments.studies.energies compare --out results/energies --heldout TEXT.txt

The first draws samples of each candidate; the second compares them with held-out sentences of the
same length: perplexity under a causal judge and its spread, repeated words, n-gram statistics, and
a classifier that is asked which of two texts is a sample (0.5: it cannot tell). The same numbers of
another half of the held-out text say how close one can come.
"""

from __future__ import annotations

import argparse
import json
import re
import zlib
from collections import Counter
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import torch

import maskov
from maskov.evaluation import distinct, self_bleu
from maskov.kernels.registry import named_kernel
from maskov.shipped import default_judge

MOVES = (maskov.Span(sizes=(1, 2, 3)),)
PENALTY = 3.0


def repeated(texts: list[str]) -> list[float]:
    """Return how many words of each text repeat an earlier one of at least four letters."""
    return [float(_repeats(text)) for text in texts]


# The energy and the temperature of its target.
CANDIDATES: dict[str, tuple[Any, float]] = {
    "raw": ("raw", 1.0),
    "raw, T = 2": ("raw", 2.0),
    "norm": ("norm", 1.0),
    "norm, T = 0.8": ("norm", 0.8),
    "raw(groups=4)": ("raw(groups=4)", 1.0),
    "norm(groups=4)": ("norm(groups=4)", 1.0),
    "raw + repeats": ("repeats", 1.0),
    # The expert of the package counts every word, within four words.
    "raw + 3 * repeats": ("raw+3*repeats", 1.0),
}


def draw(options: argparse.Namespace) -> None:
    """Sample every candidate for the same number of passes; others of the file are kept."""
    options.out.mkdir(parents=True, exist_ok=True)
    path = options.out / "samples.json"
    found: dict[str, Any] = json.loads(path.read_text()) if path.exists() else {}
    model = maskov.load(options.model, options.device)
    for name, (energy, temperature) in CANDIDATES.items():
        if options.only and name not in options.only:
            continue
        if energy == "repeats":
            energy = maskov.Raw() + PENALTY * maskov.energies.TextEnergy(repeated)
        early = maskov.DelayedAcceptance(0 if "groups" in name else 2)
        kernel = named_kernel("mh", energy, MOVES, target_temperature=temperature, delayed=early)
        # The grouped energy of the same kind finds the region soon.
        first = "norm(groups=4)" if name.startswith("norm") else "raw(groups=4)"
        schedule = maskov.Schedule(epochs=9, burn_in=8, burn_in_energy=first)
        run = maskov.sample(
            model, kernel, schedule, chains=options.chains, length=options.length,
            passes=options.passes, seed=options.seed,
        )  # fmt: skip
        found[name] = {
            "signature": run.signature,
            "passes": float(run.traces["passes"].sum(0).mean()),
            "texts": [sample.text for sample in run.samples],
        }
        print(name, found[name]["passes"], found[name]["texts"][:2], flush=True)
        path.write_text(json.dumps(found) + "\n")


def compare(options: argparse.Namespace) -> None:
    """Compare all samples with held-out text and write the table."""
    found = json.loads((options.out / "samples.json").read_text())
    count = len(next(iter(found.values()))["texts"])
    model = maskov.load(options.model, "cpu")
    heldout = sentences(options.heldout, model, options.length, 2 * count)
    name = default_judge()
    assert name is not None, "the judge of the package is missing"
    judge = maskov.Autoregressive(name, torch.device("cpu"))
    real, other = heldout[::2], heldout[1::2]
    rows = {"held-out text": other} | {key: value["texts"] for key, value in found.items()}
    table = {key: describe(texts, real, judge) for key, texts in rows.items()}
    (options.out / "energies.json").write_text(json.dumps(table, indent=1) + "\n")
    for key, row in table.items():
        print(key, {name: round(value, 3) for name, value in row.items()})


def describe(
    texts: Sequence[str], real: Sequence[str], judge: maskov.Autoregressive
) -> dict[str, float]:
    """Return what some texts are like, alone and compared with real ones."""
    losses = _losses(judge, texts)
    grams = _bigrams(texts), _bigrams(real)
    return {
        "perplexity": float(np.exp(np.mean(losses))),
        "spread": float(np.std(losses)),
        "repeated_words": float(np.mean([_repeats(text) for text in texts])),
        "distinct_2": distinct(texts, 2) or 0.0,
        "self_bleu": self_bleu(list(texts)).value,
        "words_js": _divergence(_words(texts), _words(real)),
        "bigrams_seen": sum(c for g, c in grams[0].items() if g in grams[1]) / grams[0].total(),
        "classifier": told_apart(texts, real, np.array(losses), np.array(_losses(judge, real))),
    }


def sentences(path: Path, model: maskov.MaskedModel, length: int, count: int) -> list[str]:
    """Return sentences of about a length, as the model's tokens spell them."""
    found: list[str] = []
    for line in path.read_text(encoding="utf-8").splitlines():
        if line.startswith(" ="):
            continue
        for sentence in re.split(r"(?<=[.!?]) +", line.replace(" @", "").replace("@ ", "").strip()):
            ids = model.encode(sentence)
            if abs(len(ids) - length) <= 2 and not any(bool(model.forbidden[i]) for i in ids):
                found.append(model.decode(ids))
    step = max(len(found) // count, 1)
    return found[::step][:count]


def _losses(judge: maskov.Autoregressive, texts: Sequence[str]) -> list[float]:
    terms = judge.token_terms([judge.tokenise(text) for text in texts])
    return [float(part.mean()) for part in terms]


def _repeats(text: str) -> int:
    words = [word for word in text.split() if len(word) > 3]
    return len(words) - len(set(words))


def _words(texts: Sequence[str]) -> Counter[str]:
    return Counter(word for text in texts for word in text.split())


def _bigrams(texts: Sequence[str]) -> Counter[tuple[str, str]]:
    return Counter(pair for text in texts for pair in pairwise(text.split()))


def _divergence(one: Counter[str], other: Counter[str]) -> float:
    """Return the Jensen-Shannon divergence of the commonest words, in nats."""
    common = [word for word, _ in (one + other).most_common(300)]
    first, second = (np.array([c[w] + 0.5 for w in common], dtype=float) for c in (one, other))
    first, second = first / first.sum(), second / second.sum()
    middle = (first + second) / 2
    apart = (part * np.log(part / middle) for part in (first, second))
    return float(sum(part.sum() for part in apart) / 2)


def _features(texts: Sequence[str], losses: Any, size: int = 2048) -> torch.Tensor:
    rows = torch.zeros((len(texts), size + 3))
    for row, text in enumerate(texts):
        words = text.split()
        for gram in [*words, *(" ".join(pair) for pair in pairwise(words))]:
            rows[row, zlib.crc32(gram.encode()) % size] += 1
        loss = float(losses[row])
        rows[row, size:] = torch.tensor([loss - 4, loss**2 / 16 - 1, _repeats(text)])
    return rows


def told_apart(texts: Sequence[str], real: Sequence[str], mine: Any, theirs: Any) -> float:
    """Return the accuracy of a logistic regression on texts it was not trained on."""
    size = min(len(texts), len(real))
    inputs = torch.cat([_features(texts[:size], mine), _features(real[:size], theirs)])
    labels = torch.cat([torch.ones(size), torch.zeros(size)])
    order = torch.randperm(2 * size, generator=torch.Generator().manual_seed(0))
    correct = 0.0
    for fold in range(5):
        test = torch.zeros(2 * size, dtype=torch.bool)
        test[order[fold::5]] = True
        weights = _regression(inputs[~test], labels[~test])
        told = (inputs[test] @ weights[1:] + weights[0] > 0).float()
        correct += float((told == labels[test]).sum())
    return correct / (2 * size)


def _regression(inputs: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    """Return the weights of a logistic regression, the first of them the constant."""
    weights = torch.zeros(inputs.shape[1] + 1, requires_grad=True)
    optimiser = torch.optim.LBFGS([weights], max_iter=100)

    def closure() -> torch.Tensor:
        optimiser.zero_grad()
        scores = inputs @ weights[1:] + weights[0]
        fit = torch.nn.functional.binary_cross_entropy_with_logits(scores, labels)
        loss = fit + 0.003 * (weights**2).sum()
        loss.backward()  # type: ignore[no-untyped-call]
        return loss

    optimiser.step(closure)  # type: ignore[arg-type]
    return weights.detach()


def main() -> None:
    """Draw, or compare."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("command", choices=["sample", "compare"])
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--model", default="wiki-small")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--chains", type=int, default=400)
    parser.add_argument("--length", type=int, default=20)
    parser.add_argument("--passes", type=int, default=4000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--heldout", type=Path)
    parser.add_argument("--only", nargs="+", choices=CANDIDATES, help="sample only these")
    options = parser.parse_args()
    (draw if options.command == "sample" else compare)(options)


if __name__ == "__main__":
    main()
