"""Convergence of token statistics: how common a token is, and which token stands at a position.

Energies of distinct regions may be equal, so that chains which never meet agree on them. A small,
bounded set of token statistics tells such chains apart:

- the share of a token: its count over the length of the sequence, for the most common tokens;
- the indicator of a token at a position, for the pairs whose frequency is nearest to one half.

Positions that never vary in a group (frozen words of a template, padding) take no part in the
choice. All statistics lie between 0 and 1, so plain split R-hat and the effective size of the mean
serve them; ranks would add nothing.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from maskov.diagnostics.chains import Group
from maskov.diagnostics.convergence import is_constant, mean_convergence
from maskov.diagnostics.thresholds import MIN_DRAWS

Values = npt.NDArray[np.float64]
Tokens = npt.NDArray[np.int32]
Lengths = npt.NDArray[np.int64]
# Returns the text of tokens by their number, as far as it is known.
Names = Callable[[], dict[int, str]]

# Statistics of each of the two kinds.
_MOST = 8


@dataclass(frozen=True)
class TokenStatistic:
    """A statistic of the tokens over the chains in which it varied.

    `chains` counts the chains of the groups in which it did; the chains of a group have the same
    target. `r_hat` is that of the worst group, infinite where chains differ and none ever moves.
    `ess` is what all these chains are worth if each is worth as much as those of the slowest group.
    """

    name: str
    chains: int
    mean: float
    r_hat: float
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
    r_hat: float
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
        parts = [_part(shares[:, group.chains]) for group in groups]
        found.append(_statistic(f"the share of {_text(token, texts)}", parts))
    for group, places in zip(groups, varied, strict=True):
        own = tokens[:, group.chains]
        within = None if inside is None else inside[:, group.chains]
        for place, token in _even_pairs(own, within, places, max(1, _MOST // len(groups))):
            holds = own[:, :, place] == token
            if within is not None:
                holds &= within[:, :, place]
            name = f"{_text(token, texts)} at position {place + 1}{_where(group, groups)}"
            found.append(_statistic(name, [_part(holds.astype(np.float64))]))
    known = [statistic for statistic in found if statistic is not None]
    return sorted(known, key=lambda statistic: (statistic.ess_per_chain, -statistic.r_hat))


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
    return [int(token) for token in kinds[np.argsort(-counts, kind="stable")[:_MOST]]]


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
    share = counts / (tokens.shape[0] * tokens.shape[1])
    chosen = kinds[np.argsort(-share * (1 - share), kind="stable")[:most]]
    # A damaged trace may hold negative tokens, which must not be carried into the position.
    positions = [(int(key) + 2**31) // 2**32 for key in chosen]
    return [(place, int(key) - place * 2**32) for place, key in zip(positions, chosen, strict=True)]


def _part(draws: Values) -> _Part | None:
    """Return the figures of draws × chains; None where nothing can be said."""
    chains, mean = draws.shape[1], float(draws.mean())
    if is_constant(draws):
        # Each chain is one draw at best.
        stuck = np.ptp(draws) > 0
        return _Part(chains, mean, math.inf, float(chains)) if stuck else None
    r_hat, ess = mean_convergence(draws)
    return None if r_hat is None or ess is None else _Part(chains, mean, r_hat, ess)


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
        max(part.r_hat for part in known),
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
