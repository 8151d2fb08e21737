"""The data of a report, the same for HTML, Markdown and JSON."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from maskov.diagnostics import Diagnosis
from maskov.diagnostics.diagnosis import Table, mean_of_chains, several_lengths
from maskov.errors import InputError
from maskov.runs import Run
from maskov.runs.rebuild import LoadedModels
from maskov.types import Traces
from maskov.ui.report.curves import (
    Correlation,
    Histogram,
    PositionCurve,
    Spread,
    Values,
    chain_rate_error,
    correlations,
    energy_spread,
    histogram,
    listed,
    position_curve,
    rate_spread,
    spaced,
)
from maskov.ui.report.metadata import metadata, temperatures
from maskov.ui.report.proteins import Family, families
from maskov.ui.report.samples import (
    ShownSample,
    first_samples,
    score_samples,
    shown_samples,
    target_energy,
)
from maskov.version import __version__

# Limits that keep a page fast; averages are over everything.
MOST_CHAINS = 40
MOST_EPOCHS = 500
MOST_SAMPLES = 1000
# Samples whose tokens are shaded, which costs one pass per token.
MOST_SHADED = 200

ENERGIES = ("raw", "norm")


@dataclass(frozen=True)
class Number:
    """A number and its standard error over chains, if any."""

    name: str
    value: float | None
    standard_error: float | None = None


@dataclass(frozen=True)
class EnergyTrace:
    """An energy by epoch: over all chains, and for each chain that is drawn."""

    spread: Spread
    chains: list[list[float | None]]


@dataclass(frozen=True)
class RunReport:
    """The report of one run.

    `verdict` has its headline and tone, `notes` the limits of the run, of its diagnosis, and of
    what a report shows. `order` is the energy that ranks samples: the target's, `raw`, `norm` or
    `target`. With `per_token`, all energies but those of samples are divided by lengths, and so is
    the rank. Curves are over `epochs`, counted from 1; `shown_chains` have lines of their own. With
    `particles`, those of each population, chains are particles and epochs are points of the path.
    `first_samples` are a few for its top. `families` are the parents of a run that started from
    FASTA, with fixed lengths.
    """

    label: str
    verdict: dict[str, Any]
    signature: str
    notes: list[str]
    metadata: dict[str, str]
    finished: bool
    chains: int
    particles: int
    epochs_done: int
    burn_in: int
    order: str
    per_token: bool
    numbers: list[Number]
    tables: list[Table]
    correlations: list[Correlation]
    positions: PositionCurve | None
    epochs: list[int]
    shown_chains: list[int]
    energies: dict[str, EnergyTrace]
    experts: dict[str, EnergyTrace]
    temperature: list[float] | None
    accepted: Spread
    novel: Spread
    families: list[Family]
    first_samples: list[ShownSample]
    samples: list[ShownSample]
    samples_in_all: int
    shaded: bool
    diagnosis: Diagnosis


@dataclass(frozen=True)
class Report:
    """One or more runs; their histograms have common edges."""

    title: str
    version: str
    runs: list[RunReport]
    histograms: dict[str, Histogram | None]
    cautions: list[str]


def build(
    runs: Sequence[Run],
    *,
    title: str | None = None,
    samples: int | None = None,
    terms: bool = False,
    device: str | None = None,
    trust_remote_code: bool = False,
    allow_download: bool = False,
) -> Report:
    """Build the report of some runs, with up to `samples` samples of each.

    With `terms`, models are loaded again, on `device` or where they ran, to compute the energy of
    every token; their remote code runs only with `trust_remote_code`, and they are downloaded only
    with `allow_download`.
    """
    if not runs:
        raise InputError("a report needs at least one run.")
    if samples is not None and samples < 0:
        raise InputError(f"--samples must be 0 or more, not {samples}.")
    most = samples if samples is not None else MOST_SHADED if terms else MOST_SAMPLES
    labels = _labels(runs)
    models = LoadedModels(device, trust=trust_remote_code, allow_download=allow_download)
    every = [_done(run.traces) for run in runs]
    per_token = several_lengths({"lengths": _all_lengths(every)}, slice(None))
    if per_token:
        every = [_per_token(traces) for traces in every]
    reports = [
        _run_report(run, traces, label, most, models if terms else None, per_token)
        for run, traces, label in zip(runs, every, labels, strict=True)
    ]
    return Report(
        title=title or " · ".join(labels),
        version=__version__,
        runs=reports,
        histograms={
            name: histogram(
                [
                    traces[f"energy_{name}"][one.burn_in :]
                    for one, traces in zip(reports, every, strict=True)
                ]
            )
            for name in ENERGIES
        },
        cautions=_cautions(runs),
    )


def _run_report(
    run: Run, traces: Traces, label: str, most: int, models: LoadedModels | None, per_token: bool
) -> RunReport:
    manifest, summary, diagnosis, every = run.manifest, run.summary(), run.diagnose(), run.samples
    done, chains, burn_in = summary.epochs_done, summary.chains, summary.burn_in
    epochs, shown_chains = spaced(done, MOST_EPOCHS), spaced(chains, MOST_CHAINS)
    temperature = temperatures(manifest, done)
    chosen = [every[place] for place in spaced(len(every), most)]
    scored = score_samples(models.of(manifest), chosen) if models and chosen else None
    found, parents = families(manifest, every), len(manifest.inputs.names or ())
    accepted, novel, steps = (traces[name] for name in ("accepted", "novel", "steps"))
    means = {
        name: mean_of_chains(traces[f"energy_{name}"][burn_in:], manifest.particles)
        for name in ENERGIES
    }
    remarks = {
        "energies are shown per token, and samples are ranked by them": per_token,
        f"lines are drawn for {len(shown_chains)} of {chains:,} chains, evenly chosen; medians, "
        "bands and tables are over all": len(shown_chains) < chains,
        f"curves show {len(epochs)} of {done:,} epochs, evenly spaced": len(epochs) < done,
        f"{len(chosen):,} of {len(every):,} samples are listed, evenly chosen": (
            len(chosen) < len(every)
        ),
        f"logos and mutations are those of the first {len(found)} of {parents:,} parents": (
            0 < len(found) < parents
        ),
    }
    return RunReport(
        label=label,
        verdict=diagnosis.verdict.to_dict(),
        signature=run.signature,
        notes=[*summary.notes, *diagnosis.notes, *(one for one, holds in remarks.items() if holds)],
        metadata=metadata(manifest),
        finished=done >= summary.epochs,
        chains=chains,
        particles=manifest.particles,
        epochs_done=done,
        burn_in=burn_in,
        order=target_energy(manifest, every),
        per_token=per_token,
        numbers=[
            *(Number(f"E_{name}{' per token' * per_token}", *one) for name, one in means.items()),
            Number(
                "accepted",
                summary.acceptance_rate,
                chain_rate_error(accepted[burn_in:], steps[burn_in:], manifest.particles),
            ),
            Number(
                "novel",
                summary.novel_rate,
                chain_rate_error(novel[burn_in:], steps[burn_in:], manifest.particles),
            ),
            Number("passes per step", summary.passes_per_step),
        ],
        tables=diagnosis.tables(),
        correlations=correlations(diagnosis),
        positions=position_curve(diagnosis),
        epochs=[epoch + 1 for epoch in epochs],
        shown_chains=shown_chains,
        energies={
            name: _trace(traces[f"energy_{name}"][epochs], shown_chains) for name in ENERGIES
        },
        experts={
            name: _trace(traces["expert_energy"][epochs, :, column], shown_chains)
            for column, name in enumerate(manifest.experts)
        },
        temperature=None if temperature is None else [temperature[epoch] for epoch in epochs],
        accepted=rate_spread(accepted[epochs], steps[epochs]),
        novel=rate_spread(novel[epochs], steps[epochs]),
        families=found,
        first_samples=first_samples(manifest, every) if most else [],
        samples=shown_samples(manifest, chosen, scored or [None] * len(chosen)),
        samples_in_all=len(every),
        shaded=scored is not None,
        diagnosis=diagnosis,
    )


def _trace(values: Values, chains: Sequence[int]) -> EnergyTrace:
    return EnergyTrace(energy_spread(values), [listed(values[:, chain]) for chain in chains])


def _done(traces: Traces) -> Traces:
    """Return the completed epochs."""
    done = int((traces["steps"] > 0).all(1).sum())
    return {name: values[:done] for name, values in traces.items()}


def _all_lengths(every: Sequence[Traces]) -> Values:
    return np.concatenate([traces["lengths"].reshape(-1, 1) for traces in every])


def _per_token(traces: Traces) -> Traces:
    names = (f"energy_{name}" for name in ENERGIES)
    lengths = np.maximum(traces["lengths"], 1)
    return traces | {name: traces[name] / lengths for name in names}


def _labels(runs: Sequence[Run]) -> list[str]:
    """Call runs by their names or folders, with the folder above if that tells them apart."""
    paths = [_path(run) for run in runs]
    named = [run.manifest.name or path.name for run, path in zip(runs, paths, strict=True)]
    for labels in (named, ["/".join(path.parts[-2:]) for path in paths]):
        if len(set(labels)) == len(labels):
            return labels
    return [f"{name} ({number})" for number, name in enumerate(named, 1)]


def _path(run: Run) -> Path:
    if run.store.durable:
        return run.store.path.resolve()
    manifest = run.manifest
    return Path("-".join(filter(None, (manifest.kernel, manifest.energy))).replace("/", "-"))


def _cautions(runs: Sequence[Run]) -> list[str]:
    """Return why the runs should not be compared."""
    manifests = [run.manifest for run in runs]
    differ: dict[str, set[Any]] = {
        "the models differ: E_raw is defined up to a shift of the logits and cannot be compared "
        "between them": {one.config.model.fingerprint for one in manifests},
        "the runs differ in lengths or starting texts: energies grow with the length, compare them "
        "per token": {one.inputs for one in manifests},
        "some of the runs leave no target invariant": {one.leaves_invariant for one in manifests},
    }
    return [caution for caution, kinds in differ.items() if len(kinds) > 1]
