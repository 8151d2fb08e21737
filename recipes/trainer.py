"""A network being trained for a given time: what all recipes share."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor

from recipes.recording import Recorder

# From a batch and a generator for its masks to a number.
Loss = Callable[[Any, torch.Generator], Tensor]
# autocast: operations choose their precision, on a GPU. bfloat16: the network is in bfloat16, which
# saves the casts, and the optimiser moves a copy of the weights in float32.
Precision = Literal["autocast", "bfloat16"]


@dataclass(frozen=True)
class Training:
    """How weights are moved; the rate rises over the first `warm_up` of the time, then falls."""

    rate: float = 2e-3
    batch_tokens: int = 32_768
    weight_decay: float = 0.05
    warm_up: float = 0.02
    average: float = 0.999
    seed: int = 0


class Trainer:
    """A network being trained, with a running average of its weights."""

    def __init__(
        self,
        network: Any,
        loss: Loss,
        recipe: Training,
        device: torch.device,
        precision: Precision = "autocast",
        record: bool = False,
    ) -> None:
        self.network = network.to(device).train()
        self.recipe = recipe
        self.device = device
        self.precision = precision
        self._loss = loss
        self._weights = list(network.parameters())
        # What the optimiser moves: the weights themselves, or their copies in float32.
        self._masters = self._weights
        if precision == "bfloat16":
            self._masters = [p.detach().float().clone().requires_grad_() for p in self._weights]
            network.to(torch.bfloat16)
        # Decay pulls on matrices alone, as is usual.
        matrices = [p for p in self._masters if p.dim() > 1]
        others = [p for p in self._masters if p.dim() <= 1]
        groups = [
            {"params": matrices, "weight_decay": recipe.weight_decay},
            {"params": others, "weight_decay": 0.0},
        ]
        self.optimizer = torch.optim.AdamW(
            groups, lr=recipe.rate, betas=(0.9, 0.98), fused=device.type == "cuda"
        )
        self.average = [p.detach().clone() for p in self._masters]
        # Batches of the same few shapes can be recorded; then gradients stay where they are.
        self._recorder = Recorder(self._weights, self._loss_of) if record else None
        self.step = 0
        self.seconds = 0.0
        self.log: list[dict[str, float]] = []

    def run(
        self,
        batches: Iterator[Any],
        seconds: float,
        steps: int | None = None,
        save: Callable[[], None] | None = None,
    ) -> None:
        """Train until `seconds` have passed since the very first step, or for `steps`."""
        recipe, before = self.recipe, self.seconds
        masks = torch.Generator(self.device).manual_seed(recipe.seed + self.step)
        begun = saved = time.monotonic()
        total = torch.zeros((), device=self.device)
        counted = 0
        while True:
            elapsed = before + time.monotonic() - begun
            share = elapsed / seconds if steps is None else self.step / steps
            if share >= 1:
                break
            rate = recipe.rate * min(1.0, (share + 1e-4) / recipe.warm_up) * (1 - share)
            total += self._move(next(batches), masks, rate)
            counted += 1
            self.step += 1
            if self.step % 50 == 0:
                value = float(total) / counted  # waits for the device, so the clock stays honest
                total.zero_()
                counted = 0
                self.seconds = before + time.monotonic() - begun
                self.log.append({"step": self.step, "seconds": self.seconds, "loss": value})
                if not math.isfinite(value):
                    raise RuntimeError(f"the loss is {value} at step {self.step}")
                if self.step % 500 == 0 or self.step == 50:
                    line = f"step {self.step:6d}  {self.seconds:6.0f} s  loss {value:.4f}"
                    print(line, flush=True)
                if save is not None and time.monotonic() - saved > 60:
                    save()
                    saved = time.monotonic()
        self.seconds = before + time.monotonic() - begun

    def try_out(self, batch: Any) -> None:
        """Compute a loss and its gradients as a step does, and move nothing."""
        self._loss_of(batch, torch.Generator(self.device).manual_seed(0)).backward()
        self._forget()

    def _move(self, batch: Any, masks: torch.Generator, rate: float) -> Tensor:
        """Do one step; return the loss, for which nobody has waited yet."""
        for group in self.optimizer.param_groups:
            group["lr"] = rate
        if self._recorder is not None:
            loss = self._recorder(batch, masks)
        else:
            loss = self._loss_of(batch, masks)
            loss.backward()
        self._lift_gradients()
        torch.nn.utils.clip_grad_norm_(self._masters, 1.0)
        self.optimizer.step()
        with torch.no_grad():
            torch._foreach_lerp_(self.average, self._masters, 1 - self._decay())
        self._lower_weights()
        self._forget()
        return loss.detach()

    def _loss_of(self, batch: Any, masks: torch.Generator) -> Tensor:
        mixed = self.precision == "autocast" and self.device.type == "cuda"
        with torch.autocast(self.device.type, torch.bfloat16, enabled=mixed):
            return self._loss(batch, masks)

    def _lift_gradients(self) -> None:
        """Give the masters the gradients of the weights."""
        if self._masters is self._weights:
            return
        rows = [row for row in zip(self._masters, self._weights, strict=True)
                if row[1].grad is not None]  # fmt: skip
        for master, _ in rows:
            master.grad = torch.empty_like(master) if master.grad is None else master.grad
        torch._foreach_copy_([master.grad for master, _ in rows], [w.grad for _, w in rows])

    def _lower_weights(self) -> None:
        """Give the weights what the masters have become."""
        if self._masters is not self._weights:
            with torch.no_grad():
                torch._foreach_copy_(self._weights, self._masters)

    def _forget(self) -> None:
        if self._recorder is None:
            for weight in (*self._weights, *self._masters):
                weight.grad = None

    def _decay(self) -> float:
        """Average over fewer steps at first, when the weights still move far."""
        return min(self.recipe.average, (1 + self.step) / (10 + self.step))

    def use_average(self) -> None:
        """Put the averaged weights into the network, which is in float32 from then on."""
        self.network.float()
        with torch.no_grad():
            for weight, mean in zip(self.network.parameters(), self.average, strict=True):
                weight.copy_(mean)

    def state(self) -> dict[str, Any]:
        """Return all that training needs to go on."""
        return {
            "network": {**self.network.state_dict(), **self._named_masters()},
            "optimizer": self.optimizer.state_dict(),
            "average": self.average,
            "step": self.step,
            "seconds": self.seconds,
            "log": self.log,
        }

    def restore(self, state: dict[str, Any]) -> None:
        """Go on from a saved state, whatever the precision it was saved with."""
        self.network.load_state_dict(state["network"])
        with torch.no_grad():
            for name, master in self._named_masters().items():
                master.copy_(state["network"][name])
        self.optimizer.load_state_dict(state["optimizer"])
        self.average = [mean.to(self.device) for mean in state["average"]]
        self.step, self.seconds, self.log = state["step"], state["seconds"], state["log"]

    def _named_masters(self) -> dict[str, Tensor]:
        names = [name for name, _ in self.network.named_parameters()]
        return {name: master.detach() for name, master in zip(names, self._masters, strict=True)}
