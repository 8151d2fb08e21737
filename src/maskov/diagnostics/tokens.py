"""What tokens tell of the chains: statistics that converge, autocorrelation, rates by position.

Energies of distinct regions may be equal, so that chains which never meet agree on them. A small,
bounded set of token statistics tells such chains apart (ranks would add nothing to them):

- the share of a token: its count over the length of the sequence, for the most common tokens;
- the indicator of a token at a position, for the pairs whose frequency is nearest to one half;
- the choice of tokens: how much a sequence has of the tokens in which chains differ most. These are
  chosen by the middle third of the draws, which has no part in R-hat.

Tokens that are seen a few times only are left out, and so are positions that never vary in a group
(frozen words of a template, padding).

For the autocorrelation, let s(lag) be the probability that a position holds the same token `lag`
epochs later, and m the probability that two independent draws from its marginal, pooled over a
group's chains, agree:

    ρ(lag) = (s(lag) − m) / (1 − m)

It is 1 at lag 0, and 0 once the tokens are independent. Over several positions or groups,
numerators and denominators are summed. Positions that never vary add nothing.

A sweep of single sites visits every free position once per epoch, so the traced rejections and
tokens give the rates of acceptance and novelty. For blocks and mask-predict the traces do not
contain the visited positions, and there are no rates.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from maskov.config import Manifest
from maskov.diagnostics.convergence import (
    MIN_DRAWS,
    Convergence,
    Correlation,
    Group,
    Values,
    chain_templates,
    correlation_of,
    effective_size,
    is_constant,
    kept_epochs,
    knows_visits,
    nested_r_hat,
    number_of_lags,
    r_hat_limit,
    worst_r_hat,
)
from maskov.types import Traces

Tokens = npt.NDArray[np.int32]
# Returns the text of tokens by their number, where it is known.
Names = Callable[[], dict[int, str]]

# Statistics of each of the two kinds.
_MOST = 8
# A token seen less often is not judged: its draws are too few to tell memory from chance.
# A chain that holds it throughout a shorter run is enough.
_SEEN = 20
# Tokens among which the choice is looked at.
_CHOICE = 256
# The token beyond the end of a sequence.
_PADDING = np.iinfo(np.int32).min


@dataclass(frozen=True, kw_only=True)
class TokenStatistic(Convergence):
    """A statistic of the tokens over the chains in which it varied.

    `chains` counts the chains of the groups in which it did; the chains of a group have the same
    target. `r_hat` is that of the worst group, infinite where chains differ and none ever moves,
    and None for single chains. `ess_bulk` is that of all these chains if each mixed as slowly as
    those of the slowest group.
    """

    name: str
    chains: int


@dataclass(frozen=True)
class PositionFigures:
    """The positions of one template, or of all chains of a run without templates, that varied.

    All lists follow `positions`, which count from 0. `visits` counts steps after burn-in;
    `acceptance` and `novel` are fractions of them.
    """

    template: int
    positions: list[int]
    visits: list[int]
    acceptance: list[float]
    novel: list[float]


@dataclass(frozen=True, kw_only=True)
class TokenFigures(Correlation):
    """Autocorrelation of the tokens over all positions, and rates by position where known.

    `statistics` are shares of common tokens and tokens at positions, the slowest first.
    """

    statistics: list[TokenStatistic]
    positions: list[PositionFigures]


def token_figures(
    manifest: Manifest, traces: Traces, groups: Sequence[Group], names: Names
) -> TokenFigures:
    """Diagnose the tokens of the epochs after burn-in."""
    kept = kept_epochs(manifest, traces)
    tokens = traces["tokens"][kept]
    return TokenFigures(
        **vars(token_correlation(tokens, groups)),
        statistics=token_statistics(tokens, traces["lengths"][kept], groups, names),
        positions=position_figures(manifest, traces) if knows_visits(manifest, traces) else [],
    )


def token_statistics(
    tokens: Tokens, lengths: npt.NDArray[np.integer], groups: Sequence[Group], names: Names = dict
) -> list[TokenStatistic]:
    """Return the statistics, the slowest first, given tokens as epochs × chains × positions.

    `lengths` are epochs × chains.
    """
    if len(tokens) < MIN_DRAWS:
        return []
    # A damaged trace may have sequences without tokens.
    size, texts = np.maximum(lengths, 1), names()
    padded = np.where(np.arange(tokens.shape[2]) < size[:, :, None], tokens, np.int32(_PADDING))
    each = [padded[:, group.chains] for group in groups]
    varying = [own[:, :, (own != own[:1, :1]).any((0, 1))] for own in each]
    found = []
    for token in _common(varying):
        name, shares = f"the share of {_text(token, texts)}", (padded == token).sum(2) / size
        found.append([_part(name, shares[:, group.chains], len(groups)) for group in groups])
    found.append(
        [
            _part("the choice of tokens", choice, len(groups), outer=True)
            for choice in map(_choice, varying)
            if choice is not None
        ]
    )
    for group, own in zip(groups, each, strict=True):
        for place, token in _even_pairs(own, max(1, _MOST // len(groups))):
            name = f"{_text(token, texts)} at position {place + 1}{_where(group, groups)}"
            found.append([_part(name, (own[:, :, place] == token).astype(float), len(groups))])
    known = [[part for part in parts if part is not None] for parts in found]
    return sorted(
        (_combined(parts) for parts in known if parts),
        key=lambda one: (one.ess / one.chains, -(one.r_hat or 0)),
    )


def _often(
    tokens: npt.NDArray[np.integer], draws: int
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Return the kinds of tokens that are seen often enough to be judged, and their counts."""
    kinds, counts = np.unique(tokens, return_counts=True)
    often = counts >= min(_SEEN, draws)
    return kinds[often], counts[often]


def _common(groups: Sequence[Tokens]) -> list[int]:
    """Return the most common tokens."""
    seen = np.concatenate([tokens.ravel() for tokens in groups])
    kinds, counts = _often(seen[seen != _PADDING], len(groups[0]))
    return [int(token) for token in kinds[np.argsort(-counts, kind="stable")[:_MOST]]]


def _choice(tokens: Tokens) -> Values | None:
    """Return how much each draw of a group has of the tokens in which its chains differ most.

    They are the first axis of a correspondence analysis of chains × tokens.
    """
    third, chains = len(tokens) // 3, tokens.shape[1]
    kinds, index, counts = np.unique(tokens, return_inverse=True, return_counts=True)
    if chains < 3 or len(kinds) < 2:
        return None
    # Padding and the rarest kinds, in the last column, have no weight.
    rank = np.argsort(np.argsort(-counts, kind="stable"))
    rank = np.where(kinds == _PADDING, _CHOICE, np.minimum(rank, _CHOICE))
    place = rank[index.reshape(tokens.shape)]
    table = np.zeros((chains, _CHOICE + 1))
    rows = np.broadcast_to(np.arange(chains)[:, None], place.shape)
    np.add.at(table, (rows[third:-third], place[third:-third]), 1)
    table[:, -1] = 0
    expected = table.sum(1, keepdims=True) * table.sum(0) / max(table.sum(), 1)
    scale = np.sqrt(np.maximum(expected.sum(0), 1))
    axis = np.linalg.svd((table - expected) / scale, full_matrices=False)[2][0] / scale
    return np.asarray(axis[place].mean(2))


def _even_pairs(tokens: Tokens, most: int) -> list[tuple[int, int]]:
    """Return the positions and tokens whose indicator varies most."""
    keys = np.arange(tokens.shape[2]) * 2**32 + tokens.astype(np.int64)
    kinds, counts = _often(keys[tokens != _PADDING], len(tokens))
    share = counts / (tokens.shape[0] * tokens.shape[1])
    varies = share < 1
    kinds, share = kinds[varies], share[varies]
    chosen = kinds[np.argsort(-share * (1 - share), kind="stable")[:most]]
    # A damaged trace may hold negative tokens, which must not be carried into the position.
    positions = (chosen + 2**31) // 2**32
    return list(zip(positions.tolist(), (chosen - positions * 2**32).tolist(), strict=True))


def _part(name: str, draws: Values, groups: int, outer: bool = False) -> TokenStatistic | None:
    """Return a statistic, draws × chains, in one of `groups`; None where nothing can be said.

    With `outer`, the effective size is that of the first and the last third, in proportion.
    """
    chains, r_hat, limit = draws.shape[1], None, None
    stands = is_constant(draws)
    if stands and not np.ptp(draws):
        return None
    if chains > 1:
        r_hat = math.inf if stands else nested_r_hat(draws)
        limit = r_hat_limit(len(draws), chains, groups)
    # Of chains that stand still, each is one draw at best.
    third = len(draws) // 3
    used = np.concatenate([draws[:third], draws[-third:]]) if outer else draws
    ess = float(chains) if stands else effective_size(used) * len(draws) / len(used)
    if not math.isfinite(ess):
        return None
    return TokenStatistic(
        name=name, chains=chains, mean=float(draws.mean()), r_hat=r_hat, r_hat_limit=limit,
        ess_bulk=ess,
    )  # fmt: skip


def _combined(parts: Sequence[TokenStatistic]) -> TokenStatistic:
    """Combine the groups in which a statistic varied."""
    chains = sum(part.chains for part in parts)
    return TokenStatistic(
        name=parts[0].name,
        chains=chains,
        mean=sum((part.mean or 0.0) * part.chains for part in parts) / chains,
        ess_bulk=chains * min(part.ess / part.chains for part in parts),
        **worst_r_hat([part for part in parts if part.chains > 1]),
    )


def _where(group: Group, groups: Sequence[Group]) -> str:
    """Return what tells a group from the others."""
    lengths = {one.length for one in groups if one.template == group.template}
    several = len({one.template for one in groups}) > 1
    return f" of length {group.length}" * (len(lengths) > 1) + (
        f" of input {group.template + 1}" * several
    )


def _text(token: int, texts: dict[int, str]) -> str:
    return f"'{texts[token]}'" if token in texts else f"token {token}"


def token_correlation(tokens: Tokens, groups: Sequence[Group]) -> Correlation:
    """Return the autocorrelation over all positions, given epochs × chains × positions."""
    draws, _, width = tokens.shape
    excess, variation, count = np.zeros(number_of_lags(draws)), 0.0, 0
    for group in groups if draws >= MIN_DRAWS else ():
        own, chains = tokens[:, group.chains], len(group.chains)
        keys, counts = np.unique(np.arange(width) * 2**32 + own, return_counts=True)
        # The probability that two draws from a position's marginal agree: Σ p². The sums are of
        # integers, so that a position of one token gives exactly 1.
        squares = np.bincount(keys // 2**32, weights=counts.astype(float) ** 2, minlength=width)
        agree = squares / float(draws * chains) ** 2
        same = [(own[: draws - lag] == own[lag:]).mean((0, 1)) for lag in range(len(excess))]
        excess += chains * (np.stack(same) - agree).sum(1)
        variation += chains * float((1 - agree).sum())
        count += draws * chains * int((agree < 1).sum())
    return correlation_of(excess / variation if variation else None, count)


def position_figures(manifest: Manifest, traces: Traces) -> list[PositionFigures]:
    """Return the rates of each template; chains of all lengths count together."""
    kept, lines = kept_epochs(manifest, traces), chain_templates(manifest)
    first, figures = max(kept.start, 1), []
    for template in np.unique(lines).tolist():
        chains = lines == template
        tokens, rejected = (traces[name][: kept.stop, chains] for name in ("tokens", "rejected"))
        # Frozen words never do either.
        varied = rejected.any((0, 1)) | (tokens != tokens[:1, :1]).any((0, 1))
        free = varied & (np.arange(len(varied)) < traces["lengths"][first, chains][:, None])
        visits = np.maximum((kept.stop - first) * free.sum(0)[varied], 1)
        rejections = (rejected[first:] & free).sum((0, 1))[varied]
        changes = ((tokens[first:] != tokens[first - 1 : -1]) & free).sum((0, 1))[varied]
        figures.append(
            PositionFigures(
                template, np.flatnonzero(varied).tolist(), visits.tolist(),
                (1 - rejections / visits).tolist(), (changes / visits).tolist(),
            )
        )  # fmt: skip
    return figures
