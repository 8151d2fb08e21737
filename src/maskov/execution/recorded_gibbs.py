"""Epochs that accept everything, for a GPU: every step is recorded as a CUDA graph and replayed.

A step of degenerate Gibbs runs one pass for each chain: in lock-step, little work between many
waits. Here nothing waits: which chains still have steps to do is known from their lengths alone.
Chains are sorted by the steps of their epoch, so that those that still move are the first ones, and
a step is recorded for each of a few numbers of chains. The draws are those of lock-step.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

import torch

from maskov.execution.recorded import fitting, play
from maskov.execution.window_rounds import single_site
from maskov.kernels import Gibbs, Kernel
from maskov.models.base import MaskedModel
from maskov.models.packed import PackedModel, pack_passes
from maskov.models.scorer import Scorer
from maskov.moves.filling import draw
from maskov.random import Rng
from maskov.types import Chains, Int, Tensor

# Recorded steps hold so many times more chains than the next smaller ones. The smallest
# are not worth recording separately.
_FEWEST, _GROWTH = 16, 1.5
_UNIT = 64
# What a step reads of chains, and what it changes.
_READ = ("chain", "source", "lengths", "rank", "tokens", "step", "confidence")
_MOVED = ("tokens", "step", "epoch_step", "confidence")


def records_gibbs(kernel: Kernel, model: MaskedModel) -> bool:
    """Whether epochs of a kernel are recorded: those that accept single sites."""
    return (
        model.device.type == "cuda"
        and model.packs
        and isinstance(model, PackedModel)
        and isinstance(kernel, Gibbs)
        and single_site(kernel.move)
        and not kernel.conditional.constraints
    )


class RecordedGibbs:
    """Epochs of a group of chains; what was recorded serves later epochs and groups."""

    def __init__(self, kernel: Gibbs, chains: Chains, scorer: Scorer, rng: Rng) -> None:
        assert isinstance(scorer.model, PackedModel)
        self.kernel, self.scorer, self.rng = kernel, scorer, rng
        self._model = scorer.model
        self._shape = chains.tokens.shape
        # What a step reads and writes; rows are sorted by their steps, longest first.
        self._buffers: dict[str, Tensor] = {}
        self._recorded: dict[tuple[int, int], Any] = {}
        self._sizes = [min(_FEWEST, self._shape[0])]
        while self._sizes[-1] < self._shape[0]:
            self._sizes.append(min(int(self._sizes[-1] * _GROWTH) + 1, self._shape[0]))

    def serves(self, kernel: Kernel, chains: Chains) -> bool:
        """Whether what was recorded holds for these chains."""
        return kernel == self.kernel and chains.tokens.shape == self._shape

    def epoch(self, chains: Chains) -> tuple[Chains, Int[Tensor, "chains 2"]]:
        """Run one epoch; return the chains and their numbers of novel and irreversible steps."""
        chains = self.kernel.begin(self.kernel.init(chains, self.scorer), self.rng)
        order = self._load(chains)
        b = self._buffers
        # The only wait for the device: how long the epoch of every chain is.
        steps, lengths = torch.stack([b["steps"], b["lengths"]]).tolist()
        moving = len(steps)
        for number in range(steps[0]):
            while steps[moving - 1] <= number:
                moving -= 1
            self.scorer.batcher.raise_if_stopped()
            size = fitting(self._sizes, moving)
            tokens = sum(lengths[:size]) + size * self._model.frame.size
            capacity = -(-tokens // _UNIT) * _UNIT
            step = partial(self._step, size, capacity)
            play(self._recorded, (size, capacity), step, self._model.device)
        self.scorer.passes += sum(steps)
        back = order.argsort()
        moved: dict[str, Any] = {name: b[name][back] for name in _MOVED}
        return replace(chains, **moved), torch.stack([b["novel"], b["irreversible"]], dim=1)[back]

    def _load(self, chains: Chains) -> Int[Tensor, " chains"]:
        """Put chains into the buffers and return their order."""
        steps = self.kernel.steps(chains)
        order = steps.argsort(descending=True, stable=True)
        zero = torch.zeros_like(steps)
        new = {
            **{name: getattr(chains, name)[order] for name in _READ},
            "epoch_step": zero,
            "steps": steps[order],
            "novel": zero.clone(),
            "irreversible": zero.clone(),
        }
        for name, value in new.items():
            # What was recorded reads and writes the first buffers.
            self._buffers.setdefault(name, value).copy_(value)
        return order

    def _step(self, size: int, capacity: int) -> None:
        """Mask the next position of the first chains and draw it."""
        b, model = {name: value[:size] for name, value in self._buffers.items()}, self._model
        tokens, rows = b["tokens"], torch.arange(size, device=model.device)
        moves = b["epoch_step"] < b["steps"]
        place = (b["rank"] == b["epoch_step"][:, None]).int().argmax(1)
        lengths = torch.where(moves, b["lengths"], 0)
        packed = pack_passes(tokens, lengths, place, model.frame, capacity)
        hidden = model.hidden_of(packed, tokens.shape[1] + model.frame.size, b["source"])
        current = tokens[rows, place]
        keys = b["chain"], b["step"], place
        drawn = draw(hidden, current, self.rng, keys, self.kernel.conditional, self.scorer)
        probability = (drawn.logit - drawn.log_normaliser).exp()
        confidence = b["confidence"][rows, place]
        b["novel"] += moves & (drawn.token != current)
        b["irreversible"] += moves & (drawn.log_reverse == -torch.inf)
        tokens[rows, place] = torch.where(moves, drawn.token, current)
        b["confidence"][rows, place] = torch.where(moves, probability, confidence)
        b["epoch_step"] += moves
        b["step"] += moves
