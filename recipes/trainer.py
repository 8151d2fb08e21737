"""The training loop that all recipes share."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor

from recipes.muon import Muon
from recipes.recording import Recorder

# Takes a batch and a generator for its masks.
Loss = Callable[[Any, torch.Generator], Tensor]
# autocast: torch chooses the precision per operation, on a GPU. bfloat16: the network is in
# bfloat16, which saves casts, and the optimiser updates a float32 copy of the weights.
Precision = Literal["autocast", "bfloat16"]


@dataclass(frozen=True)
class Training:
    """Settings; the rate rises over the first `warm_up` share of the time, then falls to 0."""

    rate: float = 2e-3
    batch_tokens: int = 32_768
    weight_decay: float = 0.05
    warm_up: float = 0.02
    average: float = 0.999
    # The rate of Muon for the matrices of hidden layers; 0 for AdamW everywhere.
    muon: float = 0.0
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
        # What the optimiser updates: the weights themselves, or float32 copies.
        self._masters = self._weights
        if precision == "bfloat16":
            self._masters = [p.detach().float().clone().requires_grad_() for p in self._weights]
            network.to(torch.bfloat16)
        self.optimizers = list(self._optimizers(dict(network.named_parameters())))
        self.average = [p.detach().clone() for p in self._masters]
        # With recording, gradient tensors must not be replaced.
        self._recorder = Recorder(self._weights, self._loss_of) if record else None
        self.step = 0
        self.seconds = 0.0
        self.log: list[dict[str, float]] = []

    def run(
        self,
        batches: Iterator[Any],
        seconds: float | None,
        steps: int | None = None,
        save: Callable[[], None] | None = None,
        check: Callable[[], None] | None = None,
        checks: int = 10,
        pause: float | None = None,
    ) -> None:
        """Train for `seconds` or `steps` in total, earlier calls included, whichever ends first.

        A call ends after `pause` seconds of its own at the latest; a later one continues.
        `save` is called every minute, `check` so many times at equal distances and at the end.
        """
        recipe, before = self.recipe, self.seconds
        if seconds is None and steps is None:
            raise ValueError("give seconds or steps")
        masks = torch.Generator(self.device).manual_seed(recipe.seed + self.step)
        begun = saved = time.monotonic()
        total = torch.zeros((), device=self.device)
        counted = checked = 0
        while True:
            elapsed = before + time.monotonic() - begun
            share = max(
                0.0 if seconds is None else elapsed / seconds,
                0.0 if steps is None else self.step / steps,
            )
            if check is not None and int(share * checks) > checked:
                checked = int(share * checks)
                check()
            if share >= 1 or (pause is not None and elapsed - before >= pause):
                break
            scale = min(1.0, (share + 1e-4) / recipe.warm_up) * (1 - share)
            total += self._step(next(batches), masks, scale)
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
        """Compute a loss and its gradients without an update."""
        self._loss_of(batch, torch.Generator(self.device).manual_seed(0)).backward()
        self._clear_gradients()

    def _optimizers(self, named: dict[str, Tensor]) -> Iterator[torch.optim.Optimizer]:
        """Yield AdamW, and Muon if its rate is given; groups know their full rates."""
        recipe = self.recipe
        hidden: dict[int, list[Tensor]] = {}
        matrices, others = list[Tensor](), list[Tensor]()
        for name, weight in zip(named, self._masters, strict=True):
            if recipe.muon and weight.dim() > 1 and ".layers." in name:
                parts = 3 if ".Wqkv." in name else 2 if ".Wi." in name else 1
                hidden.setdefault(parts, []).append(weight)
            else:
                (matrices if weight.dim() > 1 else others).append(weight)
        # Weight decay applies to matrices only, as is usual.
        groups = [
            {"params": matrices, "weight_decay": recipe.weight_decay, "full": recipe.rate},
            {"params": others, "weight_decay": 0.0, "full": recipe.rate},
        ]
        fused = self.device.type == "cuda"
        yield torch.optim.AdamW(groups, lr=recipe.rate, betas=(0.9, 0.98), fused=fused)
        if hidden:
            rows = [{"params": w, "parts": n, "full": recipe.muon} for n, w in hidden.items()]
            yield Muon(rows, lr=recipe.muon, weight_decay=recipe.weight_decay)

    def _step(self, batch: Any, masks: torch.Generator, scale: float) -> Tensor:
        """Do one step at a share of the full rates; return the loss without synchronising."""
        for optimizer in self.optimizers:
            for group in optimizer.param_groups:
                group["lr"] = scale * group["full"]
        if self._recorder is not None:
            loss = self._recorder(batch, masks)
        else:
            loss = self._loss_of(batch, masks)
            loss.backward()
        self._copy_gradients()
        torch.nn.utils.clip_grad_norm_(self._masters, 1.0)
        for optimizer in self.optimizers:
            optimizer.step()
        with torch.no_grad():
            torch._foreach_lerp_(self.average, self._masters, 1 - self._decay())
        self._copy_weights()
        self._clear_gradients()
        return loss.detach()

    def _loss_of(self, batch: Any, masks: torch.Generator) -> Tensor:
        mixed = self.precision == "autocast" and self.device.type == "cuda"
        with torch.autocast(self.device.type, torch.bfloat16, enabled=mixed):
            return self._loss(batch, masks)

    def _copy_gradients(self) -> None:
        """Copy the gradients of the weights to the float32 copies."""
        if self._masters is self._weights:
            return
        rows = [row for row in zip(self._masters, self._weights, strict=True)
                if row[1].grad is not None]  # fmt: skip
        for master, _ in rows:
            master.grad = torch.empty_like(master) if master.grad is None else master.grad
        torch._foreach_copy_([master.grad for master, _ in rows], [w.grad for _, w in rows])

    def _copy_weights(self) -> None:
        """Copy the updated float32 copies to the weights."""
        if self._masters is not self._weights:
            with torch.no_grad():
                torch._foreach_copy_(self._weights, self._masters)

    def _clear_gradients(self) -> None:
        if self._recorder is None:
            for weight in (*self._weights, *self._masters):
                weight.grad = None

    def _decay(self) -> float:
        """Return the decay of the average, smaller at first, when weights change fast."""
        return min(self.recipe.average, (1 + self.step) / (10 + self.step))

    @contextmanager
    def averaged(self) -> Iterator[None]:
        """Have the averaged weights for a while, to measure; training continues without them."""
        current = [weight.detach().clone() for weight in self._weights]
        with torch.no_grad():
            torch._foreach_copy_(self._weights, self.average)
        self.network.eval()
        yield
        self.network.train()
        with torch.no_grad():
            torch._foreach_copy_(self._weights, current)

    def use_average(self) -> None:
        """Replace the weights by their average; the network is in float32 afterwards."""
        self.network.float()
        with torch.no_grad():
            for weight, mean in zip(self.network.parameters(), self.average, strict=True):
                weight.copy_(mean)

    def state(self) -> dict[str, Any]:
        """Return the state that `restore` needs."""
        return {
            "network": {**self.network.state_dict(), **self._named_masters()},
            "optimizers": [optimizer.state_dict() for optimizer in self.optimizers],
            "average": self.average,
            "step": self.step,
            "seconds": self.seconds,
            "log": self.log,
        }

    def restore(self, state: dict[str, Any]) -> None:
        """Continue from a saved state of any precision."""
        self.network.load_state_dict(state["network"])
        with torch.no_grad():
            for name, master in self._named_masters().items():
                master.copy_(state["network"][name])
        for optimizer, saved in zip(self.optimizers, state["optimizers"], strict=True):
            optimizer.load_state_dict(saved)
        self.average = [mean.to(self.device) for mean in state["average"]]
        self.step, self.seconds, self.log = state["step"], state["seconds"], state["log"]

    def _named_masters(self) -> dict[str, Tensor]:
        names = [name for name, _ in self.network.named_parameters()]
        return {name: master.detach() for name, master in zip(names, self._masters, strict=True)}


class BestAverage:
    """Keeps the averaged weights that measure best; a `check` for `Trainer.run`.

    `measure` returns a number that is better if lower, such as the held-out loss.
    """

    def __init__(self, trainer: Trainer, measure: Callable[[], float]) -> None:
        self.trainer = trainer
        self.measure = measure
        self.value = math.inf
        self.step = 0
        self.history: list[dict[str, float]] = []
        self._weights: list[Tensor] = []

    def __call__(self) -> None:
        """Measure the averaged weights; training continues from the current ones."""
        trainer, step = self.trainer, self.trainer.step
        with trainer.averaged(), torch.no_grad():
            value = self.measure()
        self.history.append({"step": step, "held_out": value})
        print(f"step {step:6d}  held out {value:.4f}", flush=True)
        if value < self.value:
            self.value, self.step = value, step
            self._weights = [mean.clone() for mean in trainer.average]

    def use(self) -> None:
        """Replace the network's weights by the best average; it is not for training afterwards."""
        self._set(self._weights)
        self.trainer.network.eval()

    def _set(self, weights: list[Tensor]) -> None:
        with torch.no_grad():
            torch._foreach_copy_(list(self.trainer.network.parameters()), weights)
