"""Evidence: whole distributions and transition matrices of models small enough to enumerate.

The matrices are built by running the real kernel code on every state with every possible draw, so
what they prove holds for the code that samples, not for a second copy of it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch

from maskov.energies.base import Energy
from maskov.errors import InputError
from maskov.execution.async_state import low_terms
from maskov.execution.async_tests import Settled
from maskov.execution.asynchronous import Flow
from maskov.execution.buffers import Buffers
from maskov.execution.scorer import Engine
from maskov.kernels import Delayed, Kernel, Metropolis, Sweep
from maskov.models.base import MaskedModel, Queries
from maskov.random import CounterDraws, Draws, Purpose
from maskov.types import Bool, ChainState, Float, Int, Sequences, StepInfo, Tensor

_MOST_STATES = 200_000


def all_states(model: MaskedModel, length: int) -> Int[Tensor, "states length"]:
    """Return every sequence of `length` allowed tokens."""
    allowed = (~model.forbidden).nonzero().flatten()
    if allowed.numel() ** length > _MOST_STATES:
        raise InputError(
            f"{allowed.numel()}^{length} sequences are too many to enumerate; this is for tiny "
            "models."
        )
    return torch.cartesian_prod(*[allowed] * length).reshape(-1, length)


def distribution(
    model: MaskedModel,
    energy: Energy,
    states: Int[Tensor, "states length"],
    temperature: float = 1.0,
) -> Float[Tensor, " states"]:
    """Return p(x) ∝ exp(−E(x)/T) over the given states."""
    lengths = torch.full((len(states),), states.shape[1], device=states.device)
    given = Sequences(states, lengths, source=torch.zeros_like(lengths))
    sites = Engine(model).sites(given) if energy.needs_sites else None
    return (-energy(model, replace(given, sites=sites)) / temperature).softmax(0)


def fresh_state(
    tokens: Int[Tensor, "n length"], free: Bool[Tensor, "n length"] | None = None
) -> ChainState:
    """Return a state whose chains stand at the given sequences, all of one length."""
    count, length = tokens.shape
    return ChainState(
        chain=torch.zeros(count, dtype=torch.long, device=tokens.device),
        source=torch.zeros(count, dtype=torch.long, device=tokens.device),
        tokens=tokens,
        lengths=torch.full((count,), length, device=tokens.device),
        free=torch.ones_like(tokens, dtype=torch.bool) if free is None else free,
        step=torch.zeros(count, dtype=torch.long, device=tokens.device),
        rank=torch.zeros_like(tokens),
        confidence=torch.zeros(tokens.shape, dtype=torch.float64, device=tokens.device),
    )


@dataclass(frozen=True)
class ForcedDraws:
    """Draws that make a step propose chosen tokens and accept or reject at a chosen number.

    `token_draw[i, t]` is the number used for the token of chain `i` at position `t`; chains are
    told apart by their index.
    """

    token_draw: Float[Tensor, "n length"]
    accept_draw: Float[Tensor, " n"]

    def uniform(
        self,
        chain: Int[Tensor, " n"],
        step: Int[Tensor, " n"],
        purpose: Purpose,
        index: Int[Tensor, " n"] | None = None,
    ) -> Float[Tensor, " n"]:
        """Return the forced numbers."""
        if purpose == Purpose.TOKEN and index is not None:
            return self.token_draw[chain, index]
        if purpose == Purpose.ACCEPT:
            return self.accept_draw[chain]
        raise InputError(f"nothing is forced for {purpose.name}.")


def every_move(
    kernel: Kernel,
    engine: Engine,
    states: Int[Tensor, "states length"],
    masked: Bool[Tensor, " length"],
    accept_draw: float = 0.0,
) -> tuple[Int[Tensor, " moves"], ChainState, StepInfo]:
    """Run one step from every state with every proposal that is possible.

    Returns which state each move starts from, the state it ends in and what happened.
    """
    model = engine.model
    allowed = (~model.forbidden).nonzero().flatten()
    place = masked.nonzero().flatten()
    choice = torch.cartesian_prod(*[allowed] * len(place)).reshape(-1, len(place))
    lengths = torch.full((len(states),), states.shape[1])
    source = torch.zeros_like(lengths)
    queries = Queries(states, lengths, masked.expand(len(states), -1), source)
    log_q = kernel.proposal.log_probabilities(
        model.logits(engine.hidden(queries)), model.forbidden
    ).reshape(len(states), len(place), -1)
    probability = log_q.exp()
    # The middle of a token's stretch of the unit interval makes the real code draw that token.
    middle = probability.cumsum(2) - probability / 2
    slot = torch.arange(len(place)).expand(choice.shape)
    possible = (probability[:, slot, choice] > 0).all(2)
    source, wanted = possible.nonzero(as_tuple=True)
    draw = torch.zeros((len(source), states.shape[1]), dtype=torch.float64)
    draw[:, place] = middle[source[:, None], slot[wanted], choice[wanted]]

    start = replace(fresh_state(states[source]), chain=torch.arange(len(source)))
    start = kernel.init(start, engine)
    draws: Draws = ForcedDraws(draw, torch.full((len(source),), accept_draw, dtype=torch.float64))
    rows = torch.arange(len(source))
    after, info = kernel.step(start, rows, masked.expand(len(source), -1), engine, draws)
    intended = states[source].clone()
    intended[:, place] = choice[wanted]
    if not torch.equal(info.proposal.tokens, intended):
        raise AssertionError("a forced draw proposed another token than intended")
    return source, after, info


def every_flowing_move(
    kernel: Metropolis,
    engine: Engine,
    states: Int[Tensor, "states length"],
    place: int,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Fly one step from every state with every proposal that is possible at one place.

    Returns which state each move starts from, the proposed sequences, log q of proposing them and
    the log of the probability of acceptance, all tests together.
    """
    plain = replace(kernel, delayed=Delayed(0))
    masked = torch.arange(states.shape[1]) == place
    source, _, step = every_move(plain, engine, states, masked)
    starts = fresh_state(states[source], masked.expand(len(source), -1))
    starts = plain.init(replace(starts, chain=torch.arange(len(source))), engine)
    stages = kernel.delayed.stages
    low = engine.low(kernel.delayed.precision)
    buffers = Buffers.of(starts, 0, 1, len(stages), ring=1, choices=0)
    if low is not None:
        buffers.low_term.copy_(low_terms(low, kernel.energy, starts))
    # The real numbers of a step, with zero in every test so that each of them is taken and passed.
    drawn = _middles(plain, engine, starts, step.proposal.tokens, place)
    draws = ForcedDraws(drawn, torch.zeros(len(source), dtype=torch.float64))
    acceptance = torch.zeros(len(source), dtype=torch.float64)

    def note(settled: Settled) -> None:
        acceptance[settled.chain] = settled.log_acceptance

    swept = replace(kernel, positions=Sweep("left-to-right"))
    temperature = torch.tensor([kernel.target_temperature], dtype=torch.float64)
    flow = Flow(swept, stages, engine, low, draws, buffers, temperature, observer=note)
    flow.limit.fill_(1)
    while flow.slowest() < 1:
        flow.advance()
    return source, step.proposal.tokens, step.proposal.log_q_forward, acceptance


def _middles(
    kernel: Kernel, engine: Engine, state: ChainState, wanted: Tensor, place: int
) -> Float[Tensor, "n length"]:
    """Return the uniform numbers that make the code draw the wanted tokens at one place."""
    assert state.sites is not None
    logits = engine.model.logits(state.sites.hidden[:, place])
    probability = kernel.proposal.log_probabilities(logits, engine.model.forbidden).exp()
    middle = probability.cumsum(1) - probability / 2
    draw = torch.zeros(state.tokens.shape, dtype=torch.float64)
    draw[:, place] = middle.gather(1, wanted[:, place, None]).squeeze(1)
    return draw


def transition_matrix(
    kernel: Kernel,
    engine: Engine,
    states: Int[Tensor, "states length"],
    masked: Bool[Tensor, " length"],
    flowing: bool = False,
) -> Float[Tensor, "states states"]:
    """Return P(x → x') of one step that masks the given positions.

    The step is the kernel's own or, if `flowing`, that of chains which go at their own pace.
    """
    if flowing:
        assert isinstance(kernel, Metropolis)
        place = int(masked.nonzero().item())
        source, proposed, log_q, acceptance = every_flowing_move(kernel, engine, states, place)
    else:
        source, _, info = every_move(kernel, engine, states, masked)
        proposed, log_q = info.proposal.tokens, info.proposal.log_q_forward
        acceptance = info.log_acceptance
    index = {tuple(state): i for i, state in enumerate(states.tolist())}
    target = torch.tensor([index[tuple(tokens)] for tokens in proposed.tolist()])
    chance = log_q.exp()
    moved = chance * acceptance.exp()
    matrix = torch.zeros((len(states), len(states)), dtype=torch.float64)
    matrix.index_put_((source, target), moved, accumulate=True)
    # What is proposed and not accepted stays.
    matrix.index_put_((source, source), chance - moved, accumulate=True)
    return matrix


def sweep_matrix(
    kernel: Kernel, engine: Engine, states: Int[Tensor, "states length"], seed: int = 0
) -> Float[Tensor, "states states"]:
    """Return P of a whole epoch in the order that the kernel's positions give for `seed`."""
    draws = CounterDraws(seed)
    one = kernel.positions.begin(fresh_state(states[:1]), draws)
    row = torch.zeros(1, dtype=torch.long)
    matrix = torch.eye(len(states), dtype=torch.float64)
    for number in range(int(kernel.positions.steps(one)[0])):
        masked = kernel.positions.masked(one, row, number, draws)[0]
        matrix = matrix @ transition_matrix(kernel, engine, states, masked)
        one = replace(one, step=one.step + 1)
    return matrix


def stationary(matrix: Float[Tensor, "states states"]) -> Float[Tensor, " states"]:
    """Return the distribution that a transition matrix leaves unchanged."""
    size = len(matrix)
    # (Pᵀ − 1)π = 0 with the last equation replaced by Σπ = 1.
    system = matrix.T - torch.eye(size, dtype=matrix.dtype)
    system[-1] = 1.0
    right = torch.zeros(size, dtype=matrix.dtype)
    right[-1] = 1.0
    solved: Tensor = torch.linalg.solve(system, right)
    return solved


def invariance_error(matrix: Tensor, target: Float[Tensor, " states"]) -> float:
    """Return the largest |(πP − π)(x)|."""
    return float((target @ matrix - target).abs().max())


def balance_error(matrix: Tensor, target: Float[Tensor, " states"]) -> float:
    """Return the largest |π(x)P(x→x') − π(x')P(x'→x)|: zero is detailed balance."""
    flow = target[:, None] * matrix
    return float((flow - flow.T).abs().max())
