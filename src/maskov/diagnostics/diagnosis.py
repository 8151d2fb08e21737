"""What `maskov diagnose` reports: rates, costs and mean energies, convergence, and a verdict."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from maskov.config import Manifest
from maskov.diagnostics.convergence import (
    Convergence,
    Correlation,
    EnergyFigures,
    Group,
    chain_groups,
    energy_figures,
    kept_epochs,
)
from maskov.diagnostics.populations import (
    PopulationFigures,
    population_figures,
    population_verdict,
)
from maskov.diagnostics.tokens import Names, TokenFigures, token_figures
from maskov.diagnostics.verdict import Verdict, judge, shown
from maskov.types import Traces


@dataclass(frozen=True)
class Summary:
    """Acceptance rates, passes and mean energies of a run.

    Rates and energies are over the epochs after burn-in; `steps` and `passes_per_step` are over
    all completed epochs. Standard errors are over the chains' means, or those of populations; None
    for a single one.
    Energies grow with the length: sequences of several lengths have no mean energy.
    """

    signature: str
    model: str
    kernel: str
    energy: str | None
    leaves_invariant: bool
    notes: list[str]
    chains: int
    epochs: int
    epochs_done: int
    burn_in: int
    steps: int
    acceptance_rate: float | None
    novel_rate: float | None
    proposed_novel_rate: float | None
    passes_per_step: float | None
    energy_raw_mean: float | None
    energy_raw_standard_error: float | None
    energy_norm_mean: float | None
    energy_norm_standard_error: float | None


def summarise(manifest: Manifest, traces: Traces) -> Summary:
    """Summarise the completed epochs."""
    kept = kept_epochs(manifest, traces)
    done, epochs, until = kept.stop, manifest.epochs, manifest.config.until
    steps = traces["steps"]
    most, needed = ("", 0) if until is None else ("at most ", until.effective)
    unit = "points of the path" if manifest.particles else "epochs"
    judged = "energy and token statistic" if "tokens" in traces else "energy"
    lengths = traces["lengths"][kept]
    several = bool((lengths != lengths[:1, :1]).any())
    ended, early = until is not None and done >= epochs, manifest.stopped_at is not None
    notes = {
        f"the run is not finished: {done} of {most}{epochs} {unit}": done < epochs,
        f"stopped at epoch {epochs}: nested R-hat below its limit and {needed} effective draws of "
        f"every {judged}": ended and early,
        f"the limit of {epochs} epochs was reached before the chains had converged": (
            ended and not early
        ),
        "sequences have several lengths, and energies grow with the length: means are per "
        "token in reports, and by length in `diagnose --json`": several,
    }
    raw, norm = (
        mean_of_chains(traces[f"energy_{name}"][kept], manifest.particles)
        for name in ("raw", "norm")
    )
    if several:
        raw = norm = (None, None)
    return Summary(
        signature=manifest.signature,
        model=manifest.config.model.name,
        kernel=manifest.kernel,
        energy=manifest.energy,
        leaves_invariant=manifest.leaves_invariant,
        notes=[*manifest.notes, *(note for note, holds in notes.items() if holds)],
        chains=manifest.chains,
        epochs=epochs,
        epochs_done=done,
        burn_in=manifest.burn_in(done),
        steps=int(steps[:done].sum()),
        acceptance_rate=_share(traces["accepted"][kept], steps[kept]),
        novel_rate=_share(traces["novel"][kept], steps[kept]),
        proposed_novel_rate=_share(traces["proposed_novel"][kept], steps[kept]),
        passes_per_step=_share(traces["passes"][:done], steps[:done]),
        energy_raw_mean=raw[0],
        energy_raw_standard_error=raw[1],
        energy_norm_mean=norm[0],
        energy_norm_standard_error=norm[1],
    )


def mean_of_chains(
    values: npt.NDArray[Any], particles: int = 0
) -> tuple[float | None, float | None]:
    """Return the mean over traced epochs and chains, and its standard error over chains.

    Particles of a population depend on each other, so with them it is over populations.
    """
    values = values[~np.isnan(values).any(1)]
    if not len(values):
        return None, None
    chains = values.mean(0).reshape(-1, particles or 1).mean(1)
    # A sequence of probability zero has infinite energy: no standard error.
    finite = len(chains) > 1 and np.isfinite(chains).all()
    error = float(chains.std(ddof=1) / np.sqrt(len(chains))) if finite else None
    return float(chains.mean()), error


def _share(part: npt.NDArray[Any], whole: npt.NDArray[Any]) -> float | None:
    total = int(whole.sum())
    return float(part.sum() / total) if total else None


@dataclass(frozen=True)
class ExpertFigures:
    """An expert: a part of the energy other than masked passes.

    `weight` is its factor in the energy, None if unknown. `calls_per_step` is how often it was
    asked per step, over all completed epochs: cheap experts see every new proposal, others those
    that pass the tests before them. `energy` are the figures of its energy, without its weight.
    """

    name: str
    weight: float | None
    calls_per_step: float | None
    energy: EnergyFigures


@dataclass(frozen=True)
class Table:
    """A table of a diagnosis in words, for the terminal, reports and pages; names come first."""

    caption: str
    head: list[str]
    rows: list[list[str]]

    def __str__(self) -> str:
        lines = [self.head, *self.rows]
        widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
        cells = [
            [f"{one:{'>' if place else '<'}{width}}" for place, (one, width) in enumerate(pairs)]
            for pairs in (zip(line, widths, strict=True) for line in lines)
        ]
        return "\n".join(["  ".join(line).rstrip() for line in cells])


@dataclass(frozen=True)
class Diagnosis:
    """The convergence of a run's chains.

    `epochs` counts those completed after burn-in, `groups` the sets of chains that share a target,
    `single_groups` those with only one chain. `energies` has E_raw, E_norm and, if the target is
    neither, E_target; `experts` are the target's parts other than masked passes. `tokens` is None
    if they were not traced, `populations` are those of each line.
    """

    verdict: Verdict
    epochs: int
    groups: int
    single_groups: int
    energies: dict[str, EnergyFigures]
    experts: list[ExpertFigures]
    tokens: TokenFigures | None
    populations: list[PopulationFigures]
    notes: list[str]

    def __str__(self) -> str:
        notes = (f"note: {note}" for note in self.notes)
        return "\n".join([*self.verdict.lines(), *map(str, self.tables()), *notes])

    def tables(self) -> list[Table]:
        """Return the tables that a reader sees: convergence or populations, experts."""
        found = [Table("Convergence after burn-in", list(_COLUMNS), self._rows())]
        if self.populations:
            found = [_population_table(self.populations)]
            sizes = [
                [str(one.length), f"{shown(one.log_z)} ± {shown(one.error)}",
                 shown(one.share, ".3f")]
                for figures in self.populations for one in figures.lengths
            ]  # fmt: skip
            if sizes:
                found.append(Table("Lengths", ["tokens", "log Z", "share"], sizes))
        elif self.verdict.state == "independent draws":
            found = []
        if self.experts:
            found.append(
                Table(
                    "Experts: weights are those in the energy, means are without them",
                    ["expert", "weight", "mean energy", "calls per step"],
                    [
                        [one.name, shown(one.weight, "g"), shown(one.energy.mean),
                         shown(one.calls_per_step)]
                        for one in self.experts
                    ],
                )
            )  # fmt: skip
        return found

    def _rows(self) -> list[list[str]]:
        """Return the rows of energies, experts, all tokens, the slowest and the fastest."""
        energies = [*self.energies.items(), *((one.name, one.energy) for one in self.experts)]
        rows = [_row(name, one, one) for name, one in energies]
        if self.tokens is not None:
            rows.append(_row("tokens", Convergence(), self.tokens))
            statistics = self.tokens.statistics
            # One that is alone is the slowest.
            ends = zip(("slowest", "fastest"), statistics[:1] + statistics[1:][-1:], strict=False)
            rows += [_row(f"{which}: {one.name}", one, Correlation()) for which, one in ends]
        return rows


def _population_table(figures: list[PopulationFigures]) -> Table:
    """Return what populations say, a row for each line of input."""
    head = ["line", "log Z", "spread", "longer", "mean energy", "ancestors", "effective", "agree"]
    rows = [
        [
            str(one.template + 1), f"{shown(one.log_z)} ± {shown(one.error)}", shown(one.spread),
            f"{shown(one.gain, '+.2f')} ± {shown(one.gain_error)}",
            f"{shown(one.energy)} ± {shown(one.energy_error)}",
            f"{min(one.ancestors)} of {one.particles}", f"{one.effective:.2f}",
            "no" if one.problems else "yes",
        ]
        for one in figures
    ]  # fmt: skip
    return Table("Independent populations", head, rows)


_COLUMNS = ("", "nested R-hat", "limit", "ESS bulk", "ESS tail", "mean", "MCSE", "autocorr. time")


def _row(name: str, one: Convergence, lags: Correlation) -> list[str]:
    numbers = [
        (one.r_hat, ".3f"), (one.r_hat_limit, ".3f"), (one.ess_bulk, ",.0f"),
        (one.ess_tail, ",.0f"), (one.mean, "z.2f"), (one.mcse, ".2g"),
    ]  # fmt: skip
    time = "≥ " * lags.at_least + shown(lags.time, ".1f") + " epochs" * (lags.time is not None)
    return [name, *(shown(value, form) for value, form in numbers), time]


def diagnose(manifest: Manifest, traces: Traces, names: Names = dict) -> Diagnosis:
    """Diagnose the epochs after burn-in; `names` returns the texts of tokens by number."""
    kept = kept_epochs(manifest, traces)
    groups = chain_groups(manifest, traces)
    quantities = {"E_raw": "energy_raw", "E_norm": "energy_norm"}
    if (manifest.energy or "raw") not in ("raw", "norm"):
        quantities["E_target"] = "energy_target"
    energies = {
        name: energy_figures(traces[trace][kept], groups) for name, trace in quantities.items()
    }
    tokens = token_figures(manifest, traces, groups, names) if "tokens" in traces else None
    # Energies that cost extra passes are traced less often than the target's.
    most = max(energy.draws for energy in energies.values())
    judged = {name: energy for name, energy in energies.items() if energy.draws == most}
    single = sum(len(group.chains) == 1 for group in groups)
    notes = {
        f"{single} of {len(groups)} groups of chains with the same length and template have a "
        "single chain, which is compared with no other: it has no R-hat, and the autocorrelation "
        "time of its tokens is too short": single and manifest.chains > 1,
        "energies were not traced in every epoch: only traced epochs count": any(
            energy.draws < kept.stop - kept.start for energy in energies.values()
        ),
        "tokens were not traced (large runs do not trace them): the verdict rests on energies "
        "alone, and there are no numbers by position": tokens is None,
        "acceptance by position is known only for sweeps of single positions": (
            manifest.kernel != "draws"
            and not manifest.particles
            and tokens
            and not tokens.positions
            and kept.stop > max(kept.start, 1)
        ),
    }
    populations = population_figures(manifest, traces, names) if manifest.particles else []
    return Diagnosis(
        population_verdict(manifest, populations)
        if manifest.particles
        else judge(manifest, judged, tokens.statistics if tokens else ()),
        kept.stop - kept.start,
        len(groups),
        single,
        energies,
        expert_figures(manifest, traces, kept, groups),
        tokens,
        populations,
        [note for note, holds in notes.items() if holds],
    )


def expert_figures(
    manifest: Manifest, traces: Traces, kept: slice, groups: Sequence[Group]
) -> list[ExpertFigures]:
    """Return the figures of each expert, in the order of the energy; none without experts."""
    weights = [*manifest.expert_weights, *[None] * len(manifest.experts)]
    return [
        ExpertFigures(
            name,
            weight,
            _share(traces["expert_calls"][: kept.stop, :, column], traces["steps"][: kept.stop]),
            energy_figures(traces["expert_energy"][kept, :, column], groups),
        )
        for column, (name, weight) in enumerate(zip(manifest.experts, weights, strict=False))
    ]
