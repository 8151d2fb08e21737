"""The chains that are compared, and the R-hat, effective sizes and autocorrelation of energies.

Chains are compared only if they sample from the same distribution: sequences of the same length
and, if there are templates or sources, of the same line of the input. Texts are only starting
points: chains that start from different texts share a target, unless it compares with these texts
or some of their tokens are frozen. Chains that change their lengths share a target, too.

Nested R-hat (Margossian, Hoffman, Sountsov, Riou-Durand, Vehtari & Gelman) compares superchains,
whose chains share a start. Here each chain is a superchain. Given the state in its middle, the
first and the last third of a chain are independent; if the kernel is reversible they are two
chains from that state, and the middle third is their warm-up. Chains that forget have thirds
without covariance, however short they are.

Effective sizes are those of ArviZ. As there, disagreement between chains counts as correlation:
the variance is that over all chains of a group, not only that within each. Arrays are draws ×
chains, like the traces; ArviZ's own order is chains × draws.
ArviZ is imported where it is needed: the import takes a second.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from maskov.config import Manifest
from maskov.types import Traces

Values = npt.NDArray[np.float64]

# Nested R-hat at which chains still remember 9 % of a quantity's variance.
R_HAT = 1.05
# Chance that a run of independent draws is above a limit of R-hat, and the quantities that are
# judged in each group of chains: two or three energies, their spread, and token statistics.
_FALSE_ALARM, _QUANTITIES = 0.05, 23
# With fewer draws per chain nothing is estimated.
MIN_DRAWS = 8
# Energies that differ by less than this fraction of their size are equal up to rounding.
ROUNDING = 1e-6
# The largest number of lags; a longer autocorrelation time is reported as a lower bound.
MAX_LAGS = 200
# The quantiles of Vehtari et al.; ArviZ's default depends on the user's settings.
_TAILS = (0.05, 0.95)
# What `tokens` of ArviZ have beyond the end of a chain.
PADDING = -1
_POSTERIOR = ("energy_raw", "energy_norm", "tokens", "expert_energy")


@dataclass(frozen=True)
class Group:
    """Indices of chains with the same target, their line of the input, their length if fixed."""

    template: int
    length: int | None
    chains: npt.NDArray[np.int64]


def kept_epochs(manifest: Manifest, traces: Traces) -> slice:
    """Return the completed epochs after burn-in."""
    done = int((traces["steps"] > 0).all(1).sum())
    return slice(min(manifest.burn_in(done), done), done)


def chain_groups(manifest: Manifest, traces: Traces) -> list[Group]:
    """Return the groups of chains with the same target."""
    lines, lengths = chain_templates(manifest), chain_lengths(manifest, traces)
    keys = np.zeros_like(lines) if lengths is None else lengths
    return [
        Group(
            line,
            None if lengths is None else length,
            np.flatnonzero((lines == line) & (keys == length)),
        )
        for line, length in np.unique(np.stack([lines, keys], axis=1), axis=0).tolist()
    ]


def chain_templates(manifest: Manifest) -> npt.NDArray[np.int64]:
    """Return the line of the input that each chain's target depends on, 0 if there is none."""
    inputs = manifest.inputs
    # Where tokens of a line stay, its chains have their own target.
    own = any(lines is not None for lines in (inputs.templates, inputs.frozen, inputs.sources))
    alike = manifest.config.chains if own or manifest.compares else manifest.chains
    return np.arange(manifest.chains) // alike


def chain_lengths(manifest: Manifest, traces: Traces) -> npt.NDArray[np.int64] | None:
    """Return the length of each chain, or None if lengths change; 0 before the first epoch."""
    return None if manifest.inputs.sampled else np.array(traces["lengths"][0], dtype=np.int64)


def knows_visits(manifest: Manifest, traces: Traces) -> bool:
    """Whether each epoch after burn-in visits every free position once, one at a time.

    The tokens before the first epoch are not traced, so its changes are unknown.
    """
    kept = kept_epochs(manifest, traces)
    first = max(kept.start, 1)
    if manifest.order is None or manifest.particles or kept.stop <= first:
        return False
    # Blocks only shrink.
    block = manifest.schedule.block
    return (manifest.block if block is None else manifest.schedule.block_at(first)) == 1


@dataclass(frozen=True, kw_only=True)
class Convergence:
    """The mean of a quantity, its error, and how well chains agree; None where unknown."""

    mean: float | None = None
    mcse: float | None = None
    r_hat: float | None = None
    r_hat_limit: float | None = None
    ess_bulk: float | None = None
    ess_tail: float | None = None

    @property
    def ess(self) -> float:
        """The smaller of the effective sizes that are known; not-a-number if none is."""
        known = (size for size in (self.ess_bulk, self.ess_tail) if size is not None)
        return min(known, default=math.nan)

    @property
    def above(self) -> float:
        """By how much R-hat is above its limit; −infinity if no two chains can be compared."""
        return (
            -math.inf
            if self.r_hat is None or self.r_hat_limit is None
            else self.r_hat - self.r_hat_limit
        )


@dataclass(frozen=True, kw_only=True)
class GroupFigures(Convergence):
    """An energy in one group of chains with the same target; a single chain has no R-hat."""

    template: int
    length: int | None
    chains: int
    constant: bool


@dataclass(frozen=True, kw_only=True)
class Correlation:
    """The autocorrelation at lags 0, 1, ... draws and the integrated time in epochs.

    The time is a lower bound if `at_least`. Both are None where unknown.
    """

    autocorrelation: list[float] | None = None
    time: float | None = None
    at_least: bool = False


@dataclass(frozen=True, kw_only=True)
class EnergyFigures(Convergence, Correlation):
    """An energy over a whole run.

    `draws` is the number of traced epochs after burn-in, `spacing` epochs apart. `r_hat` and its
    limit are those of the worst group of two chains or more; effective sizes are summed over
    groups; the mean weighs all chains equally and `mcse` is its Monte Carlo error. Energies grow
    with the length: of sequences of several lengths there is a mean in each group, but none here.
    """

    draws: int
    spacing: int | None
    constant_groups: int
    groups: list[GroupFigures]


def energy_figures(trace: Values, groups: Sequence[Group]) -> EnergyFigures:
    """Diagnose one energy, given as epochs × chains after burn-in."""
    rows, spacing = _evenly_traced(trace)
    values = trace[rows]
    parts = [values[:, group.chains] for group in groups]
    figures = [
        GroupFigures(
            template=group.template,
            length=group.length,
            chains=len(group.chains),
            constant=len(part) >= MIN_DRAWS and is_constant(part),
            **vars(convergence(part, len(groups))),
        )
        for part, group in zip(parts, groups, strict=True)
    ]
    moves = len(values) >= MIN_DRAWS and not all(one.constant for one in figures)
    found = correlation_of(autocorrelation(parts) if moves else None, values.size, spacing or 1)
    lengths = {group.length for group in groups}
    has_mean = len(lengths) == 1 and None not in lengths and values.size
    # Groups are independent of one another.
    errors = [one.mcse and one.mcse * one.chains / trace.shape[1] for one in figures]
    return EnergyFigures(
        **vars(found),
        draws=len(values),
        spacing=spacing,
        mean=float(values.mean()) if has_mean else None,
        mcse=_combine(np.linalg.norm, errors) if has_mean else None,
        **worst_r_hat([one for one in figures if one.chains > 1]),
        ess_bulk=_combine(sum, [one.ess_bulk for one in figures]),
        ess_tail=_combine(sum, [one.ess_tail for one in figures]),
        constant_groups=sum(group.constant for group in figures),
        groups=figures,
    )


def convergence(draws: Values, groups: int = 1) -> Convergence:
    """Return the numbers of draws × chains in one of `groups`; a single chain has no R-hat.

    R-hat is the larger of that of the values and that of their distances from the median, of
    normal scores of ranks.
    """
    mean = float(draws.mean()) if draws.size else None
    if len(draws) < MIN_DRAWS or is_constant(draws):
        return Convergence(mean=mean)
    from arviz_stats.base import array_stats

    r_hat = limit = None
    if draws.shape[1] > 1:
        folded = np.abs(draws - np.median(draws))
        r_hat = max(nested_r_hat(_scores(draws)), nested_r_hat(_scores(folded)))
        limit = r_hat_limit(len(draws), draws.shape[1], groups)
    chains = draws.T
    # Quantities with few distinct values can have zero variance where ArviZ divides by it.
    with np.errstate(divide="ignore", invalid="ignore"):
        # If no value lies beyond either quantile, ArviZ counts every draw as independent.
        has_tails = np.quantile(draws, _TAILS[0]) < draws.max()
        tail = array_stats.ess(chains, method="tail", prob=_TAILS) if has_tails else np.nan
        return Convergence(
            mean=mean,
            mcse=_finite(array_stats.mcse(chains)),
            r_hat=r_hat,
            r_hat_limit=limit,
            ess_bulk=_finite(array_stats.ess(chains)),
            ess_tail=_finite(tail),
        )


def effective_size(draws: Values) -> float:
    """Return the effective size of the mean of draws × chains; it may be not-a-number."""
    from arviz_stats.base import array_stats

    with np.errstate(divide="ignore", invalid="ignore"):
        return float(array_stats.ess(draws.T, method="mean"))


def nested_r_hat(draws: Values) -> float:
    """Return nested R-hat of two or more chains, from 1 to infinity.

    Its square is 1 plus the variance that is remembered, relative to that within chains: the
    covariance of the thirds over chains, and the drift from the one to the other. Both estimates
    have no bias.
    """
    third, chains = len(draws) // 3, draws.shape[1]
    first, last = draws[:third].mean(0), draws[-third:].mean(0)
    drift, spread = np.mean(last - first) ** 2, np.var(last - first, ddof=1) / chains
    remembered = np.cov(first, last)[0, 1] + (drift - spread) / 4
    within = draws.var(axis=0, ddof=1).mean()
    if remembered <= 0:
        return 1.0
    return float(np.sqrt(1 + remembered / within)) if within else np.inf


def r_hat_limit(draws: int, chains: int, groups: int = 1) -> float:
    """Return the limit of nested R-hat: `R_HAT`, and what chance adds to few, independent draws.

    The covariance over chains of the means of two independent stretches of n draws is a mean of
    chains − 1 products of independent normal numbers, divided by n. Such a mean is above
    √(2x/(chains − 1)) + x/(chains − 1) with a probability below exp(−x).
    """
    x = math.log(_QUANTITIES * groups / _FALSE_ALARM)
    chance = (math.sqrt(2 * x / (chains - 1)) + x / (chains - 1)) / (draws // 3)
    return math.sqrt(R_HAT**2 + chance)


def worst_r_hat(figures: Sequence[Convergence]) -> dict[str, Any]:
    """Return the R-hat that is farthest above its limit, with it; None if any is missing."""
    missing = not figures or any(one.r_hat is None for one in figures)
    worst = Convergence() if missing else max(figures, key=lambda one: one.above)
    return {"r_hat": worst.r_hat, "r_hat_limit": worst.r_hat_limit}


def is_constant(draws: Values) -> bool:
    """Whether no chain moves within either of its halves, up to rounding."""
    half = max(len(draws) // 2, 1)
    moved = max(np.ptp(draws[:half], axis=0).max(), np.ptp(draws[-half:], axis=0).max())
    return bool(moved <= ROUNDING * np.abs(draws).max())


def number_of_lags(draws: int) -> int:
    """Return the number of lags, including 0, estimated from so many draws; it is even."""
    return min(draws // 2, MAX_LAGS) // 2 * 2


def autocorrelation(groups: Sequence[Values]) -> Values | None:
    """Return the autocorrelation at lags 0, 1, ... of groups of draws × chains of equal length.

    Each group has its own mean and each chain counts once. None if no chain ever moves.
    """
    from arviz_stats.base import array_stats

    draws = len(groups[0])
    lags = number_of_lags(draws)
    covariance, total = np.zeros(lags), 0.0
    for values in groups:
        chains = values.shape[1]
        by_lag = array_stats.autocov(values.T).mean(0)[: max(lags, 1)]
        between = float(values.mean(0).var(ddof=1)) if chains > 1 else 0.0
        # Relative to the unbiased variance within chains, as in ArviZ's effective sample size.
        covariance += chains * (by_lag + between - by_lag[0] / (draws - 1))
        total += chains * (by_lag[0] + between)
    if not lags or total == 0:
        return None
    correlation: Values = covariance / total
    correlation[0] = 1.0
    return correlation


def correlation_of(correlation: Values | None, count: int, spacing: int = 1) -> Correlation:
    """Return an autocorrelation and its integrated time 1 + 2·Σ ρ_t, of draws `spacing` apart.

    Geyer's rule: the pairs ρ_2k + ρ_2k+1 are summed while they are positive, and made to decrease.
    If they are still positive at the last lag, the time is a lower bound.
    The effective size of `count` draws is limited to count·log10(count).
    """
    if correlation is None:
        return Correlation()
    pairs = correlation[0::2] + correlation[1::2]
    positive = np.logical_and.accumulate(pairs > 0)
    time = -1 + 2 * np.minimum.accumulate(pairs)[positive].sum()
    return Correlation(
        autocorrelation=correlation.tolist(),
        time=spacing * float(max(time, 1 / np.log10(count))),
        at_least=bool(positive[-1]),
    )


def _evenly_traced(trace: Values) -> tuple[npt.NDArray[np.int64], int | None]:
    """Return the last evenly spaced traced epochs, and their spacing."""
    rows = np.flatnonzero(np.isfinite(trace).all(1))
    if len(rows) < 2:
        return rows, None
    gaps = np.diff(rows)
    uneven = np.flatnonzero(gaps != gaps[-1])
    return rows[uneven[-1] + 1 :] if len(uneven) else rows, int(gaps[-1])


def _combine(function: Any, values: Sequence[float | None]) -> float | None:
    """Combine the groups' values; None if any is missing."""
    return None if None in values else float(function(values))


def _scores(values: Values) -> Values:
    """Return the normal scores of ranks."""
    from scipy import stats

    ranks = stats.rankdata(values).reshape(values.shape)
    return np.asarray(stats.norm.ppf((ranks - 3 / 8) / (values.size + 1 / 4)))


def _finite(value: Any) -> float | None:
    return float(value) if np.isfinite(value) else None


def to_arviz(manifest: Manifest, traces: Traces, *, warmup: bool = False) -> Any:
    """Return the epochs after burn-in, and with `warmup` also those before, as a DataTree.

    Group `posterior` has the energies, those of experts, and the tokens if they were traced;
    `sample_stats` the rates and passes of each epoch; `constant_data` the length and the template
    of each chain.
    """
    from arviz_base import from_dict  # slow to import

    kept = kept_epochs(manifest, traces)
    lengths = chain_lengths(manifest, traces)
    parts = {"": kept} | ({"warmup_": slice(0, kept.start)} if warmup else {})
    data: dict[str, dict[str, Any]] = {}
    for prefix, epochs in parts.items():
        chains = {name: values[epochs].swapaxes(0, 1) for name, values in traces.items()}
        if lengths is not None and "tokens" in chains:
            inside = np.arange(manifest.width) < lengths[:, None, None]
            chains["tokens"] = np.where(inside, chains["tokens"], PADDING)
        stats = {
            "acceptance_rate": chains["accepted"] / chains["steps"],
            "novel_rate": chains["novel"] / chains["steps"],
            "passes": chains["passes"],
        }
        # Kernels that accept everything have no target energy.
        if not np.isnan(chains["energy_target"]).all():
            stats["energy"] = chains["energy_target"]
        data[f"{prefix}posterior"] = {name: chains[name] for name in _POSTERIOR if name in chains}
        data[f"{prefix}sample_stats"] = stats
    data["constant_data"] = {"template": chain_templates(manifest)}
    if lengths is not None:
        data["constant_data"]["length"] = lengths
    about = {
        "signature": manifest.signature,
        "inference_library": "maskov",
        "inference_library_version": manifest.versions.get("maskov", ""),
        # Some file formats have no booleans.
        "leaves_invariant": int(manifest.leaves_invariant),
        "burn_in": kept.start,
    }
    return from_dict(
        data,
        save_warmup=warmup,
        dims={
            "tokens": ["position"],
            "expert_energy": ["expert"],
            "template": ["chain"],
            "length": ["chain"],
        },
        coords={"expert": list(manifest.experts)} if manifest.experts else None,
        attrs={"/": about} | {group: dict(about) for group in data},
        # Otherwise ArviZ warns of fewer draws than chains.
        check_conventions=False,
    )
