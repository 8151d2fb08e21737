"""Models small enough to enumerate, shared by the tests."""

from dataclasses import replace

import pytest
import torch
from transformers import BertConfig, BertForMaskedLM, BertTokenizer

import maskov
from maskov import DelayedAcceptance, Mixture
from maskov.exact import step_matrix
from maskov.kernels import Kernel, Metropolis
from maskov.kernels.base import ended, epoch as run_epoch
from maskov.models import HuggingFaceModel
from maskov.models.scorer import Scorer
from maskov.moves import Sweep
from maskov.random import CounterRng
from maskov.testing import random_table as random_table
from maskov.types import Chains


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


def transition_matrix(kernel: Metropolis, scorer: Scorer, states, masked):
    """Return P(x → x') of one step of the site move that masks the given positions."""
    start = Chains.at(states, free=masked.expand(states.shape))
    whole = Sweep("left-to-right", int(masked.sum()))
    return step_matrix(replace(kernel, move=replace(kernel.move, positions=whole)), scorer, start)


def sample(*arguments, lock_step: bool = False, slots: int | None = None, **settings):
    """Sample by an engine that no option chooses: in lock-step, or with so many slots a chain."""
    with pytest.MonkeyPatch.context() as patch:
        if lock_step:
            patch.setattr("maskov.execution.recorded.rounds_of", lambda _: None)
        if slots is not None:
            patch.setattr(Scorer, "slots_for", lambda *_: slots)
        return maskov.sample(*arguments, **settings)


def mixed(energy, moves, *nearest, weights: tuple[float, ...] = ()):
    """Return a kernel of a move, or of several; `nearest` are those of its early tests."""
    moves, early = moves if isinstance(moves, tuple) else (moves,), DelayedAcceptance(*nearest)
    kernels = tuple(Metropolis(energy, move, delayed=early) for move in moves)
    return kernels[0] if len(kernels) == 1 else Mixture(kernels, weights)


def few_discarded_chains(patch: pytest.MonkeyPatch) -> None:
    """Let weights of lengths be found in a few steps, where they need not be good."""
    for name, value in (("_LENGTH_CHAINS", 3), ("_LENGTH_STEPS", 8), ("_MEASURED", 4)):
        patch.setattr(f"maskov.tuning.{name}", value)


def random_state(model, count: int, length: int, seed: int = 0) -> Chains:
    """Return chains at random allowed sequences of one length."""
    generator = torch.Generator().manual_seed(seed)
    allowed = (~model.forbidden).nonzero().flatten()
    tokens = allowed[torch.randint(len(allowed), (count, length), generator=generator)]
    state = Chains.at(tokens)
    return Chains(**{**state.__dict__, "chain": torch.arange(count)})


def on_untrained(words: list[str]) -> list[str]:
    """Add the small stand-in to a command line that names no model, whatever the default is."""
    if words[0] not in ("sample", "infill", "score", "evidence") or {"--model", "-m"} & set(words):
        return words
    return [*words, "--model", "untrained"]
