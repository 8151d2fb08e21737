"""Muon: momentum whose matrices are made orthogonal (Jordan et al. 2024), many at a time.

The rate is that of AdamW: an update has the size that AdamW's usually have (Liu et al. 2025,
https://arxiv.org/abs/2502.16982).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor


class Muon(torch.optim.Optimizer):
    """For matrices of hidden layers.

    A group with `parts` has so many matrices in each of its own, such as queries, keys and values.
    """

    def __init__(
        self,
        groups: Iterable[dict[str, Any]],
        lr: float,
        weight_decay: float,
        momentum: float = 0.95,
    ) -> None:
        defaults = {"lr": lr, "weight_decay": weight_decay, "momentum": momentum, "parts": 1}
        super().__init__(groups, defaults)

    @torch.no_grad()
    def step(self, closure: None = None) -> None:
        """Update every matrix; those of one shape are made orthogonal together."""
        shapes: dict[tuple[int, ...], list[tuple[Tensor, Tensor, float]]] = {}
        for group in self.param_groups:
            matrices, rate = group["params"], group["lr"]
            gradients = [p.grad for p in matrices]
            moments = [self.state[p].setdefault("momentum", torch.zeros_like(p)) for p in matrices]
            torch._foreach_lerp_(moments, gradients, 1 - group["momentum"])
            directions = torch._foreach_lerp(gradients, moments, group["momentum"])
            torch._foreach_mul_(matrices, 1 - rate * group["weight_decay"])
            for matrix, direction in zip(matrices, directions, strict=True):
                rows = zip(
                    matrix.chunk(group["parts"]), direction.chunk(group["parts"]), strict=True
                )
                for part, way in rows:
                    shapes.setdefault(tuple(part.shape), []).append((part, way, rate))
        for shape, found in shapes.items():
            parts, ways, rates = zip(*found, strict=True)
            updates = orthogonal(torch.stack(ways)).unbind()
            torch._foreach_add_(parts, updates, alpha=-0.2 * max(shape) ** 0.5 * rates[0])


def orthogonal(matrices: Tensor) -> Tensor:
    """Return matrices with the same singular vectors and singular values near 1.

    Five Newton-Schulz steps with Jordan's coefficients, in bfloat16.
    """
    x = matrices.bfloat16()
    tall = x.shape[1] > x.shape[2]
    x = x.mT if tall else x
    x = x / (x.norm(dim=(1, 2), keepdim=True) + 1e-7)
    for _ in range(5):
        square = x @ x.mT
        x = 3.4445 * x + (-4.7750 * square + 2.0315 * square @ square) @ x
    return (x.mT if tall else x).to(matrices.dtype)
