"""Models small enough to enumerate, shared by the tests."""

from dataclasses import replace

import torch
from transformers import BertConfig, BertForMaskedLM, BertTokenizer

from maskov.exact import (
    asynchronous_matrix,
    balance_error,
    fresh_state,
    invariance_error,
    step_matrix,
)
from maskov.kernels import Kernel, Metropolis
from maskov.kernels.base import ended, epoch as run_epoch
from maskov.models import HuggingFaceModel
from maskov.models.scorer import Scorer
from maskov.moves import Sweep
from maskov.random import CounterRng
from maskov.testing import random_table
from maskov.types import Chains, StepInfo

__all__ = [
    "epoch",
    "happened",
    "on_untrained",
    "random_state",
    "random_table",
    "site_matrices",
    "tiny_bert",
]


def tiny_bert(
    words: str = "red green blue", dtype=torch.float64, mask: str = "[MASK]", **changes
) -> HuggingFaceModel:
    """Return a random two-layer BERT with a few words, in float64 so that equality is sharp."""
    vocabulary = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", mask, "[unused0]", *words.split()]
    settings = {
        "vocab_size": len(vocabulary),
        "hidden_size": 16,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "intermediate_size": 32,
        "max_position_embeddings": 32,
        "initializer_range": 0.7,
    }
    with torch.random.fork_rng():
        torch.manual_seed(0)
        network = BertForMaskedLM(BertConfig(**settings | changes))
        torch.nn.init.normal_(network.cls.predictions.bias)
    numbers = {word: i for i, word in enumerate(vocabulary)}
    tokenizer = BertTokenizer(vocab=numbers, mask_token=mask)
    return HuggingFaceModel(network.to(dtype), tokenizer, "tiny-bert")


def epoch(kernel: Kernel, state: Chains, engine: Scorer, draws: CounterRng):
    """Yield the chains before and after each step of one epoch, and what happened."""
    before = kernel.begin(ended(state), draws)
    for after, info in run_epoch(kernel, before, engine, draws):
        yield before, after, info
        before = after


def transition_matrix(kernel, scorer: Scorer, states, masked, asynchronous: bool = False):
    """Return P(x → x') of one step of the site move that masks the given positions.

    The step is the kernel's own or that of asynchronous chains.
    """
    start = fresh_state(states, masked.expand(states.shape))
    if asynchronous and isinstance(kernel, Metropolis):
        return asynchronous_matrix(kernel, scorer, start, start.free)
    whole = Sweep("left-to-right", int(masked.sum()))
    kernel = replace(kernel, move=replace(kernel.move, positions=whole))
    return step_matrix(kernel, scorer, start)


def site_matrices(kernel: Kernel, model, states, target, asynchronous: bool):
    """Yield P of a step at each place; it is stochastic and in balance with the target."""
    for masked in torch.eye(states.shape[1]) > 0:
        matrix = transition_matrix(kernel, Scorer(model), states, masked, asynchronous)
        assert (matrix.sum(1) - 1).abs().max() < 1e-10
        assert matrix.min() > -1e-10
        assert balance_error(matrix, target) < 1e-10
        assert invariance_error(matrix, target) < 1e-10
        yield matrix


def random_state(model, count: int, length: int, seed: int = 0) -> Chains:
    """Return chains at random allowed sequences of one length."""
    generator = torch.Generator().manual_seed(seed)
    allowed = (~model.forbidden).nonzero().flatten()
    tokens = allowed[torch.randint(len(allowed), (count, length), generator=generator)]
    state = fresh_state(tokens)
    return Chains(**{**state.__dict__, "chain": torch.arange(count)})


def happened(info: StepInfo) -> list[tuple]:
    """Return what a step did in plain numbers."""
    return list(
        zip(
            info.proposal.tokens.tolist(), info.accepted.tolist(), info.passes.tolist(), strict=True
        )
    )


def on_untrained(words: list[str]) -> list[str]:
    """Add the small stand-in to a command line that names no model, whatever the default is."""
    if words[0] not in ("sample", "infill", "score", "evidence") or {"--model", "-m"} & set(words):
        return words
    return [*words, "--model", "untrained"]
