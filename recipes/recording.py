"""Record a loss and its gradients as CUDA graphs.

A step of a small network consists of thousands of short kernels that take longer to launch than to
run. Each batch shape is recorded once and then replayed. Gradient tensors are never replaced,
because the recordings write into them.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor


@dataclass(frozen=True)
class Recording:
    """A graph with its input tensors and its loss."""

    graph: Any
    inputs: list[Tensor]
    loss: Tensor


class Recorder:
    """Computes losses and gradients; from the third batch of a shape on, by replay."""

    def __init__(self, weights: Sequence[Tensor], loss: Callable[[Any, Any], Tensor]) -> None:
        self._loss = loss
        self._gradients = []
        for weight in weights:
            weight.grad = torch.zeros_like(weight)
            self._gradients.append(weight.grad)
        self._recorded: dict[Hashable, Recording] = {}
        self._met: set[Hashable] = set()
        self._pool: Any = None
        self.allowed = bool(weights) and weights[0].is_cuda

    def __call__(self, batch: Any, masks: torch.Generator) -> Tensor:
        """Compute the gradients of a batch; return its loss, which the next batch overwrites."""
        key = batch.key
        known = self._recorded.get(key)
        if known is None and key in self._met and self.allowed:
            known = self._record(batch, masks)
            if known is not None:
                self._recorded[key] = known
        if known is None:
            # The first time runs without recording, which also warms up every kernel.
            self._met.add(key)
            return self._compute(batch, masks)
        for kept, new in zip(known.inputs, batch.tensors, strict=True):
            kept.copy_(new)
        known.graph.replay()
        return known.loss

    def _compute(self, batch: Any, masks: torch.Generator) -> Tensor:
        torch._foreach_zero_(self._gradients)
        loss = self._loss(batch, masks)
        loss.backward()
        return loss.detach()

    def _record(self, batch: Any, masks: torch.Generator) -> Recording | None:
        """Record the step for batches of this shape; recording itself computes nothing."""
        graph = torch.cuda.CUDAGraph()
        inputs = [value.clone() for value in batch.tensors]
        try:
            graph.register_generator_state(masks)
            torch.cuda.synchronize()
            with torch.cuda.graph(graph, pool=self._pool):
                loss = self._compute(batch.with_tensors(inputs), masks)
        except Exception as error:  # training continues without recordings
            reason = (str(error).strip() or "?").splitlines()[0]
            print(f"not recorded: {type(error).__name__}: {reason[:200]}", flush=True)
            self.allowed = False
            return None
        self._pool = graph.pool()
        return Recording(graph, inputs, loss)
