"""Evidence: whole distributions and transition matrices of models small enough to enumerate.

The matrices are built by running the real kernel code on every state with every possible draw, so
what they prove holds for the code that samples, not for a second copy of it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch

from maskov.energies.base import Energy
from maskov.energies.stages import DelayedAcceptance, TestPlan
from maskov.errors import InputError
from maskov.execution.async_tests import StepRecord
from maskov.execution.asynchronous import AsyncSampler
from maskov.execution.buffers import Buffers
from maskov.grouping import masked_with
from maskov.kernels import Gibbs, Kernel, Metropolis
from maskov.kernels.base import counted
from maskov.models.base import MaskedModel, Queries
from maskov.models.scorer import Scorer
from maskov.moves import Site, Sweep
from maskov.random import CounterRng, Purpose, Rng
from maskov.types import Bool, Chains, Float, Int, Sequences, StepInfo, Tensor, inside

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


def all_sequences(model: MaskedModel, shortest: int, longest: int) -> Chains:
    """Return chains at every sequence of some lengths, each of which may become every other."""
    states = [all_states(model, length) for length in range(shortest, longest + 1)]
    tokens = torch.cat(
        [
            torch.nn.functional.pad(one, (0, longest - one.shape[1]), value=model.mask_id)
            for one in states
        ]
    )
    lengths = torch.cat([torch.full((len(one),), one.shape[1]) for one in states])
    zero = torch.zeros_like(lengths)
    free = inside(lengths, longest)
    chains = Chains.at(tokens, lengths, free, chain=zero, source=zero)
    bounds = torch.tensor([[shortest, longest]]).expand(len(tokens), 1, 2).clone()
    return replace(chains, region=torch.where(free, 0, -1), bounds=bounds)


def distribution(
    model: MaskedModel,
    energy: Energy,
    states: Int[Tensor, "states length"],
    temperature: float = 1.0,
    lengths: Int[Tensor, " states"] | None = None,
    reference: Int[Tensor, "states reference"] | None = None,
) -> Float[Tensor, " states"]:
    """Return p(x) ∝ exp(−E(x)/T) over the given states, all of one length or of those given.

    `reference` are the texts with which the energy compares them, if it does.
    """
    if lengths is None:
        lengths = torch.full((len(states),), states.shape[1], device=states.device)
    given = Sequences(states, lengths, source=torch.zeros_like(lengths), reference=reference)
    sites = Scorer(model).sites(given, groups=energy.groups) if energy.needs_sites else None
    return (-energy(model, replace(given, sites=sites)) / temperature).softmax(0)


def fresh_state(
    tokens: Int[Tensor, "n length"], free: Bool[Tensor, "n length"] | None = None
) -> Chains:
    """Return a state whose chains stand at the given sequences, all of one length."""
    count, length = tokens.shape
    zero = torch.zeros(count, dtype=torch.long, device=tokens.device)
    free = torch.ones_like(tokens, dtype=torch.bool) if free is None else free
    return Chains.at(tokens, torch.full_like(zero, length), free, chain=zero, source=zero)


@dataclass(frozen=True)
class ForcedRng(Rng):
    """Rng that make a step propose chosen tokens and accept or reject at a chosen number.

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
    scorer: Scorer,
    states: Int[Tensor, "states length"],
    masked: Bool[Tensor, " length"],
    accept_draw: float = 0.0,
) -> tuple[Int[Tensor, " moves"], Chains, StepInfo]:
    """Run one step from every state with every proposal that is possible.

    Returns which state each move starts from, the state it ends in and what happened.
    """
    model = scorer.model
    allowed = (~model.forbidden).nonzero().flatten()
    place = masked.nonzero().flatten()
    choice = torch.cartesian_prod(*[allowed] * len(place)).reshape(-1, len(place))
    lengths = torch.full((len(states),), states.shape[1])
    source = torch.zeros_like(lengths)
    hidden_with = _hidden_with(kernel, masked, place)
    queries = Queries(states, lengths, hidden_with.expand(len(states), -1), source)
    log_q = kernel.conditional.log_probabilities(
        model.logits(scorer.hidden(queries)), model.forbidden
    ).reshape(len(states), int(hidden_with.sum()), -1)[:, masked[hidden_with]]
    probability = log_q.exp()
    # The middle of a token's stretch of the unit interval makes the real code draw that token.
    middle = probability.cumsum(2) - probability / 2
    slot = torch.arange(len(place)).expand(choice.shape)
    possible = (probability[:, slot, choice] > 0).all(2)
    source, wanted = possible.nonzero(as_tuple=True)
    draw = torch.zeros((len(source), states.shape[1]), dtype=torch.float64)
    draw[:, place] = middle[source[:, None], slot[wanted], choice[wanted]]

    start = replace(fresh_state(states[source]), chain=torch.arange(len(source)))
    # The positions that come first are those to be masked, whatever the order and the block.
    rank = torch.where(masked, 0, 2**30).expand(len(source), -1)
    start = replace(_ordered(kernel).init(start, scorer), rank=rank)
    rng = ForcedRng(draw, torch.full((len(source),), accept_draw, dtype=torch.float64))
    rows = torch.arange(len(source))
    after, info = _ordered(kernel).step(start, rows, scorer, rng)
    intended = states[source].clone()
    intended[:, place] = choice[wanted]
    if not torch.equal(info.proposal.tokens, intended):
        raise AssertionError("a forced draw proposed another token than intended")
    return source, after, info


def _hidden_with(
    kernel: Kernel, masked: Bool[Tensor, " length"], place: Int[Tensor, " places"]
) -> Bool[Tensor, " length"]:
    """Return what the proposal does not see: single sites are drawn from the cached pass."""
    groups = None if kernel.energy is None else kernel.energy.groups
    if len(place) > 1 or groups is None:
        return masked
    return masked_with(place, torch.ones_like(masked)[None], groups)[0]


def _ordered(kernel: Kernel) -> Kernel:
    """Return a kernel of the site move that takes its positions from the chains' ranks."""
    move = getattr(kernel, "move", None)
    if isinstance(move, Site) and isinstance(move.positions, Sweep):
        move = replace(move, positions=replace(move.positions, order="left-to-right"))
        return replace(kernel, move=move)  # type: ignore[type-var]
    return kernel


def every_asynchronous_move(
    kernel: Metropolis,
    scorer: Scorer,
    states: Int[Tensor, "states length"],
    place: int,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Run one asynchronous step from every state with every proposal that is possible at one place.

    Returns which state each move starts from, the proposed sequences, log q of proposing them and
    the log of the probability of acceptance, all tests together.
    """
    plain = replace(kernel, delayed=DelayedAcceptance(0))
    masked = torch.arange(states.shape[1]) == place
    source, _, step = every_move(plain, scorer, states, masked)
    starts = fresh_state(states[source], masked.expand(len(source), -1))
    starts = plain.init(replace(starts, chain=torch.arange(len(source))), scorer)
    plan = TestPlan(kernel.energy, kernel.delayed)
    buffers = Buffers.of(starts, plan, 0, 1, ring=1)
    # The real numbers of a step, with zero in every test so that each of them is taken and passed.
    drawn = _middles(plain, scorer, starts, step.proposal.tokens, place)
    rng = ForcedRng(drawn, torch.zeros(len(source), dtype=torch.float64))
    acceptance = torch.zeros(len(source), dtype=torch.float64)

    def note(record: StepRecord) -> None:
        acceptance[record.chain] = record.log_acceptance

    swept = _ordered(kernel)
    assert isinstance(swept, Metropolis)
    temperature = torch.tensor([kernel.target_temperature], dtype=torch.float64)
    sampler = AsyncSampler(swept, plan, scorer, rng, buffers, temperature, observer=note)
    sampler.limit.fill_(1)
    while sampler.slowest() < 1:
        sampler.advance()
    return source, step.proposal.tokens, step.proposal.log_q_forward, acceptance


def _middles(
    kernel: Kernel, scorer: Scorer, chains: Chains, wanted: Tensor, place: int
) -> Float[Tensor, "n length"]:
    """Return the uniform numbers that make the code draw the wanted tokens at one place."""
    assert chains.sites is not None
    logits = scorer.model.logits(chains.sites.hidden[:, place])
    probability = kernel.conditional.log_probabilities(logits, scorer.model.forbidden).exp()
    middle = probability.cumsum(1) - probability / 2
    draw = torch.zeros(chains.tokens.shape, dtype=torch.float64)
    draw[:, place] = middle.gather(1, wanted[:, place, None]).squeeze(1)
    return draw


def transition_matrix(
    kernel: Kernel,
    scorer: Scorer,
    states: Int[Tensor, "states length"],
    masked: Bool[Tensor, " length"],
    asynchronous: bool = False,
) -> Float[Tensor, "states states"]:
    """Return P(x → x') of one step of the site move that masks the given positions.

    The step is the kernel's own or that of asynchronous chains.
    """
    if asynchronous:
        assert isinstance(kernel, Metropolis)
        place = int(masked.nonzero().item())
        source, proposed, log_q, acceptance = every_asynchronous_move(kernel, scorer, states, place)
    else:
        source, _, info = every_move(kernel, scorer, states, masked)
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
    kernel: Metropolis | Gibbs, scorer: Scorer, states: Int[Tensor, "states length"], seed: int = 0
) -> Float[Tensor, "states states"]:
    """Return P of a whole epoch of the site move, in the order that it has for `seed`."""
    assert isinstance(kernel.move, Site)
    positions, rng = kernel.move.positions, CounterRng(seed)
    one = positions.begin(fresh_state(states[:1]), rng)
    row = torch.zeros(1, dtype=torch.long)
    matrix = torch.eye(len(states), dtype=torch.float64)
    for _ in range(int(positions.steps(one)[0])):
        masked = positions.masked(one, row, rng)[0]
        matrix = matrix @ transition_matrix(kernel, scorer, states, masked)
        one = counted(one, row)
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
