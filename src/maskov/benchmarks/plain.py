"""The plain rows: Algorithm 1 in Hugging Face code, one chain at a time, for a fixed time."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from maskov.benchmarks.algorithm1 import scores_at, step
from maskov.benchmarks.flops import flops_per_pass
from maskov.benchmarks.options import Options
from maskov.errors import InputError
from maskov.models import HuggingFaceModel
from maskov.random import CounterRng, Purpose


class CountingNetwork:
    """A network that counts the sequences sent through it."""

    def __init__(self, network: Any) -> None:
        self.network = network
        self.device = network.device
        self.passes = 0

    def __call__(self, input_ids: torch.Tensor) -> Any:
        """Run the network."""
        self.passes += len(input_ids)
        return self.network(input_ids=input_ids)


@dataclass
class PlainChain:
    """One chain; its random numbers have the same keys as those of maskov's chains."""

    number: int
    framed: list[int]
    step: int
    order: list[int] = field(default_factory=list)

    def next_place(self, draws: CounterRng) -> int:
        """Return the next position of a random sweep; draw a new order at its end."""
        if not self.order:
            places = torch.arange(len(self.framed) - 2)
            here = torch.full_like(places, self.number)
            keys = draws.uniform(here, torch.full_like(places, self.step), Purpose.ORDER, places)
            self.order = keys.argsort(stable=True).tolist()
        return self.order.pop(0)

    def uniform(self, draws: CounterRng, purpose: Purpose, index: int) -> float:
        """Return the random number of this step for one purpose."""
        chain, step, place = torch.tensor([[self.number], [self.step], [index]])
        return float(draws.uniform(chain, step, purpose, place))


def measure_plain(
    model: HuggingFaceModel, options: Options, starts: Sequence[Sequence[int]], together: bool
) -> dict[str, Any]:
    """Continue from `starts`, one step of each chain in turn, until the time is up.

    With `together`, all masked copies of a sequence form one batch.
    """
    before, after = special_tokens(model)
    network, draws = CountingNetwork(model.network), CounterRng(options.seed)
    # Steps that maskov's chains have made so far: the initial fill and every epoch.
    chains = [
        PlainChain(number, [*before, *ids, *after], (options.epochs + 1) * len(ids))
        for number, ids in enumerate(starts)
    ]
    longest = max(chains, key=lambda chain: len(chain.framed)).framed
    length = len(longest) - 2
    scores_at(network, longest, range(length if together else 1), model.mask_id)  # warms up
    network.passes = 0
    steps = novel = tokens = flops = 0
    begin = time.perf_counter()
    while (elapsed := time.perf_counter() - begin) < options.seconds or not steps:
        chain = chains[steps % len(chains)]
        passes = network.passes
        novel += _move(network, chain, model, options.energy, draws, together)
        passes = network.passes - passes
        length = len(chain.framed) - 2
        tokens += passes * len(chain.framed)
        flops += passes * (flops_per_pass(model.network.config, length) or 0)
        steps += 1
    return {
        "seconds": elapsed,
        "steps": steps,
        "passes": network.passes,
        "tokens": tokens,
        "novel_seen": novel,
        "flops": flops or None,
        "ids": [chain.framed[1:-1] for chain in chains],
    }


def _move(
    network: CountingNetwork,
    chain: PlainChain,
    model: HuggingFaceModel,
    energy: str,
    draws: CounterRng,
    together: bool,
) -> bool:
    """Make one step of one chain; return whether its token changed."""
    place = chain.next_place(draws)
    old = chain.framed
    chain.framed, token, accepted = step(
        network,
        old,
        place,
        model.mask_id,
        model.forbidden,
        energy,
        1.0,
        chain.uniform(draws, Purpose.TOKEN, place),
        chain.uniform(draws, Purpose.ACCEPT, 0),
        copies=len(old) if together else 1,
    )
    chain.step += 1
    return accepted and token != old[place + 1]


def special_tokens(model: HuggingFaceModel) -> tuple[list[int], list[int]]:
    """Return the special tokens before and after a text; the plain code supports one each."""
    ids = list(model.tokenizer(model.tokenizer.mask_token)["input_ids"])
    place = ids.index(model.mask_id)
    before, after = ids[:place], ids[place + 1 :]
    if (len(before), len(after)) != (1, 1):
        raise InputError(
            f"'{model.name}' does not put one special token on each side of a text, which the "
            "plain rows of the benchmark need."
        )
    return before, after
