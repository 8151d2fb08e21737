"""Models small enough to enumerate, shared by the tests."""

from dataclasses import replace

import torch
from transformers import BertConfig, BertForMaskedLM, BertTokenizer

from maskov.exact import balance_error, invariance_error, places, step_matrix
from maskov.execution.buffers import SiteBuffers
from maskov.execution.site_rounds import SiteRounds
from maskov.kernels import Kernel, Metropolis
from maskov.kernels.base import ended, epoch as run_epoch
from maskov.models import HuggingFaceModel
from maskov.models.scorer import Scorer
from maskov.moves import Sweep
from maskov.random import CounterRng, Purpose, Rng
from maskov.testing import random_table as random_table
from maskov.types import Chains, StepInfo


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


class _Forced(Rng):
    """Draws the tokens by given numbers, one for each chain, and passes every test."""

    def __init__(self, token):
        self._token = token

    def uniform(self, chain, step, purpose, index=None):
        """Return the number of each chain for its tokens, and 0 for everything else."""
        found = self._token[chain]
        return found if purpose == Purpose.TOKEN else torch.zeros_like(found)


def _matrix_in_rounds(kernel: Metropolis, scorer: Scorer, start: Chains, masked):
    """Return P of a step of asynchronous chains, each of which masks one position or none."""
    known = kernel.init(start, scorer)
    assert known.pass_cache is not None
    every, place = torch.arange(len(start.chain)), masked.int().argmax(1)
    logits = scorer.model.logits(known.pass_cache.hidden[every, place])
    chances = kernel.conditional.log_probabilities(logits, scorer.model.forbidden).exp()
    source, token = ((chances > 0) & masked.any(1, keepdim=True)).nonzero(as_tuple=True)
    chance = chances[source, token]
    starts = known.rows(source, known=True)
    starts = replace(starts, chain=torch.arange(len(source)), free=masked[source])
    buffers = SiteBuffers.of(starts, len(kernel.plan.stages), 0, 1, ring=1)
    # The middle of a token's stretch of the unit interval makes the real code draw that token.
    rng = _Forced((chances.cumsum(1) - chances / 2)[source, token])
    rounds = SiteRounds(kernel, scorer, rng, buffers, [kernel])
    rounds.limit.fill_(1)
    while rounds.slowest() < 1:
        rounds.advance()
    tokens = starts.tokens.index_put((starts.chain, place[source]), token)
    target = places(start, replace(starts, tokens=tokens, free=start.free[source]))
    # All tests were passed; each chain has one slot, and the last one is spare.
    moved = chance * buffers.slot_acceptance[:-1].exp()
    # What is proposed and not accepted stays, as do chains that mask nothing.
    matrix = torch.diag((~masked.any(1)).double())
    matrix.index_put_((source, target), moved, accumulate=True)
    return matrix.index_put_((source, source), chance - moved, accumulate=True)


def transition_matrix(kernel, scorer: Scorer, states, masked, asynchronous: bool = False):
    """Return P(x → x') of one step of the site move that masks the given positions.

    The step is the kernel's own or that of asynchronous chains.
    """
    start = Chains.at(states, free=masked.expand(states.shape))
    if asynchronous and isinstance(kernel, Metropolis):
        return _matrix_in_rounds(kernel, scorer, start, start.free)
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
    state = Chains.at(tokens)
    return Chains(**{**state.__dict__, "chain": torch.arange(count)})


def happened(info: StepInfo) -> list[tuple]:
    """Return what a step did in plain numbers."""
    told = info.proposal.tokens, info.accepted, info.passes
    return list(zip(*(one.tolist() for one in told), strict=True))


def on_untrained(words: list[str]) -> list[str]:
    """Add the small stand-in to a command line that names no model, whatever the default is."""
    if words[0] not in ("sample", "infill", "score", "evidence") or {"--model", "-m"} & set(words):
        return words
    return [*words, "--model", "untrained"]
