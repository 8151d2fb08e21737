"""A linear classifier of words and pairs of words: the stand-in for the evaluator when tuning.

It learns from lines that no classifier of an energy has seen, and has nothing in common with them.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from recipes.labelled import Lines, hold_out
from safetensors.torch import load_file, save_file
from torch import Tensor

BUCKETS = 1 << 18


def features(text: str) -> list[int]:
    """Return a bucket for each word and each pair of neighbours, both ends of the text included."""
    words = ["<s>", *text.lower().split(), "</s>"]
    pairs = [f"{a} {b}" for a, b in pairwise(words)]
    return [zlib.crc32(part.encode()) % BUCKETS for part in (*words[1:-1], *pairs)]


class Bag:
    """Weights of words and pairs; their mean is the log-odds of the second label, up to a scale."""

    def __init__(self, weights: Tensor, bias: float, labels: Sequence[str]) -> None:
        self.weights, self.bias, self.labels = weights, bias, list(labels)

    def log_odds(self, texts: Sequence[str]) -> np.ndarray:
        """Return the log-odds of the second label for each text."""
        return np.array([self.bias + float(self.weights[features(text)].sum()) for text in texts])

    def predict(self, texts: Sequence[str]) -> list[str]:
        """Return the more probable label of each text."""
        return [self.labels[int(odds > 0)] for odds in self.log_odds(texts)]

    def accuracy(self, lines: Lines) -> float:
        """Return the share of right predictions, every label counted equally."""
        shares = [
            float(np.mean([guess == label for guess in self.predict(texts)]))
            for label, texts in lines.items()
        ]
        return sum(shares) / len(shares)

    def save(self, folder: Path) -> None:
        """Write weights in float16."""
        folder.mkdir(parents=True, exist_ok=True)
        save_file({"weights": self.weights.half().contiguous()}, folder / "bag.safetensors")
        (folder / "bag.json").write_text(json.dumps({"bias": self.bias, "labels": self.labels}))

    @classmethod
    def load(cls, folder: Path) -> Bag:
        """Read what `save` wrote."""
        about = json.loads((folder / "bag.json").read_text())
        weights = load_file(folder / "bag.safetensors")["weights"].float()
        return cls(weights, about["bias"], about["labels"])


def train_bag(
    lines: Lines, device: torch.device, epochs: int = 12, rate: float = 0.01, seed: int = 0
) -> tuple[Bag, dict[str, float]]:
    """Fit by Adam; keep the epoch with the lowest held-out log-loss."""
    kept, held = hold_out(lines, 2000, seed)
    labels = list(lines)
    rows = [(features(text), label) for label, texts in enumerate(kept.values()) for text in texts]
    sizes = np.array([len(row) for row, _ in rows])
    flat = torch.from_numpy(np.concatenate([row for row, _ in rows])).to(device)
    starts = torch.from_numpy(np.concatenate([[0], np.cumsum(sizes)])).to(device)
    truth = torch.tensor([label for _, label in rows], dtype=torch.float32, device=device)
    balance = torch.where(truth > 0, (1 - truth.mean()) * 2, truth.mean() * 2)
    weights = torch.zeros((BUCKETS, 1), device=device, requires_grad=True)
    bias = torch.zeros((), device=device, requires_grad=True)
    optimizer = torch.optim.Adam([weights, bias], lr=rate)
    generator = torch.Generator().manual_seed(seed)
    held_texts = [text for texts in held.values() for text in texts]
    held_truth = np.concatenate([np.full(len(t), i) for i, t in enumerate(held.values())])
    best, best_loss, best_epoch = None, float("inf"), 0
    for epoch in range(1, epochs + 1):
        for part in torch.randperm(len(rows), generator=generator).split(512):
            part = part.to(device)
            counts = starts[part + 1] - starts[part]
            ends = counts.cumsum(0)
            inside = torch.arange(int(ends[-1]), device=device)
            owner = torch.repeat_interleave(torch.arange(len(part), device=device), counts)
            places = flat[starts[part][owner] + inside - (ends - counts)[owner]]
            score = torch.zeros(len(part), device=device)
            score = score.index_add(0, owner, weights[:, 0][places]) + bias
            loss = F.binary_cross_entropy_with_logits(score, truth[part], weight=balance[part])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        bag = Bag(weights.detach()[:, 0].cpu().clone(), float(bias.detach()), labels)
        signs = np.where(held_truth > 0, 1.0, -1.0)
        value = float(np.logaddexp(0, -signs * bag.log_odds(held_texts)).mean())
        print(f"epoch {epoch}: held-out log-loss {value:.4f}", flush=True)
        if value < best_loss:
            best, best_loss, best_epoch = bag, value, epoch
    assert best is not None
    record = {"log_loss": best_loss, "accuracy": best.accuracy(held), "epoch": best_epoch}
    return best, record
