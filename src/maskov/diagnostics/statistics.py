"""Convergence of token statistics: how common a token is, and which token stands at a position.

Energies of distinct regions may be equal, so that chains which never meet agree on them. A small,
bounded set of token statistics tells such chains apart (ranks would add nothing to them):

- the share of a token: its count over the length of the sequence, for the most common tokens;
- the indicator of a token at a position, for the pairs whose frequency is nearest to one half;
- the choice of tokens: how much a sequence has of the tokens in which chains differ most. These are
  chosen by the middle third of the draws, which has no part in R-hat.

Tokens that are seen a few times only are left out, and so are positions that never vary in a group
(frozen words of a template, padding).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from maskov.diagnostics.chains import Group
from maskov.diagnostics.convergence import effective_size, is_constant, nested_r_hat
from maskov.diagnostics.energies import worst_r_hat
from maskov.diagnostics.thresholds import MIN_DRAWS, r_hat_limit

Values = npt.NDArray[np.float64]
Tokens = npt.NDArray[np.int32]
Lengths = npt.NDArray[np.int64]
# Returns the text of tokens by their number, where it is known.
Names = Callable[[], dict[int, str]]

# Statistics of each of the two kinds.
_MOST = 8
# A token seen less often is not judged: its draws are too few to tell memory from chance.
# A chain that holds it throughout a shorter run is enough.
_SEEN = 20
# Tokens among which the choice is looked at.
_CHOICE = 256
_PADDING = np.iinfo(np.int32).min


@dataclass(frozen=True)
class TokenStatistic:
    """A statistic of the tokens over the chains in which it varied.

    `chains` counts the chains of the groups in which it did; the chains of a group have the same
    target. `r_hat` is that of the worst group, infinite where chains differ and none ever moves,
    and None for single chains. `ess` is that of all these chains if each mixed as slowly as those
    of the slowest group.
    """

    name: str
    chains: int
    mean: float
    r_hat: float | None
    r_hat_limit: float | None
    ess: float

    @property
    def ess_per_chain(self) -> float:
        """Effective draws of each chain."""
        return self.ess / self.chains


@dataclass(frozen=True)
class _Part:
    """A statistic in one group."""

    chains: int
    mean: float
    r_hat: float | None
    r_hat_limit: float | None
    ess: float


def token_statistics(
    tokens: Tokens, lengths: Lengths | None, groups: Sequence[Group], names: Names = dict
) -> list[TokenStatistic]:
    """Return the statistics, the slowest first, given tokens as epochs × chains × positions.

    `lengths` are epochs × chains. If they are not known, shares are of all positions, padding
    included; this scales all values of a group and changes neither R-hat nor effective sizes.
    """
    if len(tokens) < MIN_DRAWS:
        return []
    inside = None
    if lengths is not None and (lengths < tokens.shape[2]).any():
        inside = np.arange(tokens.shape[2]) < lengths[:, :, None]
    varied = [_varied(tokens[:, group.chains]) for group in groups]
    texts = names()
    found = []
    for token in _common(tokens, inside, groups, varied):
        counts = tokens == token if inside is None else (tokens == token) & inside
        # A damaged trace may have sequences without tokens.
        shares = counts.sum(2) / (tokens.shape[2] if lengths is None else np.maximum(lengths, 1))
        parts = [_part(shares[:, group.chains], len(groups)) for group in groups]
        found.append(_statistic(f"the share of {_text(token, texts)}", parts))
    sequences = tokens if inside is None else np.where(inside, tokens, _PADDING)
    choices = [
        _choice(sequences[:, group.chains][:, :, places])
        for group, places in zip(groups, varied, strict=True)
    ]
    parts = [None if one is None else _part(one, len(groups), outer=True) for one in choices]
    found.append(_statistic("the choice of tokens", parts))
    for group, places in zip(groups, varied, strict=True):
        own = tokens[:, group.chains]
        within = None if inside is None else inside[:, group.chains]
        for place, token in _even_pairs(own, within, places, max(1, _MOST // len(groups))):
            holds = own[:, :, place] == token
            if within is not None:
                holds &= within[:, :, place]
            name = f"{_text(token, texts)} at position {place + 1}{_where(group, groups)}"
            found.append(_statistic(name, [_part(holds.astype(np.float64), len(groups))]))
    known = [statistic for statistic in found if statistic is not None]
    return sorted(known, key=lambda statistic: (statistic.ess_per_chain, -(statistic.r_hat or 0)))


def _varied(tokens: Tokens) -> npt.NDArray[np.bool_]:
    """Return the positions that held more than one token in a group."""
    varied: npt.NDArray[np.bool_] = (tokens != tokens[:1, :1]).any((0, 1))
    return varied


def _common(
    tokens: Tokens,
    inside: npt.NDArray[np.bool_] | None,
    groups: Sequence[Group],
    varied: Sequence[npt.NDArray[np.bool_]],
) -> list[int]:
    """Return the most common tokens at positions that vary."""
    seen = []
    for group, places in zip(groups, varied, strict=True):
        own = tokens[:, group.chains][:, :, places]
        seen.append(own.ravel() if inside is None else own[inside[:, group.chains][:, :, places]])
    kinds, counts = np.unique(np.concatenate(seen), return_counts=True)
    kinds, counts = kinds[_often(counts, tokens)], counts[_often(counts, tokens)]
    return [int(token) for token in kinds[np.argsort(-counts, kind="stable")[:_MOST]]]


def _often(counts: npt.NDArray[np.int64], tokens: Tokens) -> npt.NDArray[np.bool_]:
    """Return which tokens are seen often enough to be judged."""
    often: npt.NDArray[np.bool_] = counts >= min(_SEEN, len(tokens))
    return often


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


def _even_pairs(
    tokens: Tokens,
    inside: npt.NDArray[np.bool_] | None,
    places: npt.NDArray[np.bool_],
    most: int,
) -> list[tuple[int, int]]:
    """Return the positions and tokens whose indicator varies most."""
    at = np.flatnonzero(places)
    keys = at * 2**32 + tokens[:, :, at].astype(np.int64)
    kinds, counts = np.unique(
        keys if inside is None else keys[inside[:, :, at]], return_counts=True
    )
    kinds, counts = kinds[_often(counts, tokens)], counts[_often(counts, tokens)]
    share = counts / (tokens.shape[0] * tokens.shape[1])
    chosen = kinds[np.argsort(-share * (1 - share), kind="stable")[:most]]
    # A damaged trace may hold negative tokens, which must not be carried into the position.
    positions = [(int(key) + 2**31) // 2**32 for key in chosen]
    return [(place, int(key) - place * 2**32) for place, key in zip(positions, chosen, strict=True)]


def _part(draws: Values, groups: int, outer: bool = False) -> _Part | None:
    """Return the figures of draws × chains in one of `groups`; None where nothing can be said.

    With `outer`, the effective size is that of the first and the last third, in proportion.
    """
    chains, mean, r_hat, limit = draws.shape[1], float(draws.mean()), None, None
    stands = is_constant(draws)
    if stands and not np.ptp(draws):
        return None
    if chains > 1:
        r_hat = math.inf if stands else nested_r_hat(draws)
        limit = r_hat_limit(len(draws), chains, groups)
    # Of chains that stand still, each is one draw at best.
    third = len(draws) // 3
    used = np.concatenate([draws[:third], draws[-third:]]) if outer else draws
    ess = float(chains) if stands else effective_size(used)
    if ess is None:
        return None
    return _Part(chains, mean, r_hat, limit, ess if stands else ess * len(draws) / len(used))


def _statistic(name: str, parts: Sequence[_Part | None]) -> TokenStatistic | None:
    """Combine the groups in which a statistic varied."""
    known = [part for part in parts if part is not None]
    if not known:
        return None
    chains = sum(part.chains for part in known)
    return TokenStatistic(
        name,
        chains,
        sum(part.mean * part.chains for part in known) / chains,
        *worst_r_hat([(part.r_hat, part.r_hat_limit) for part in known if part.chains > 1]),
        chains * min(part.ess / part.chains for part in known),
    )


def _where(group: Group, groups: Sequence[Group]) -> str:
    """Return what tells a group from the others."""
    parts = []
    if len({one.length for one in groups if one.template == group.template}) > 1:
        parts.append(f"length {group.length}")
    if len({one.template for one in groups}) > 1:
        parts.append(f"input {group.template + 1}")
    return "".join(f" of {part}" for part in parts)


def _text(token: int, texts: dict[int, str]) -> str:
    return f"'{texts[token]}'" if token in texts else f"token {token}"
