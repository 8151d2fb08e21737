"""The data of a report, the same for HTML, Markdown and JSON."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from maskov.config import Manifest
from maskov.diagnostics import summarise
from maskov.errors import InputError
from maskov.runs import Run
from maskov.types import Traces
from maskov.ui.report.curves import (
    Histogram,
    Spread,
    Values,
    chain_rate_error,
    energy_spread,
    histogram,
    listed,
    rate_spread,
    spaced,
)
from maskov.ui.report.findings import Findings, findings
from maskov.ui.report.metadata import metadata, temperatures
from maskov.ui.report.proteins import Family, families
from maskov.ui.report.samples import ShownSample, first_samples, shown_samples, target_energy
from maskov.ui.report.terms import TermScorer
from maskov.version import __version__

# Limits that keep a page fast; averages are over everything.
MOST_CHAINS = 40
MOST_EPOCHS = 500
MOST_SAMPLES = 1000
# Samples whose tokens are shaded, which costs one pass per token.
MOST_SHADED = 200

ENERGIES = ("raw", "norm")
_SEVERAL_LENGTHS = (
    "sequences have several lengths, and energies grow with the length: energies are shown per "
    "token, and samples are ranked by them"
)


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

    `order` is the energy that ranks samples: the target's, `raw`, `norm` or `target`. With
    `per_token`, all energies but those of samples are divided by lengths, and so is the rank.
    Curves are over `epochs`, counted from 1; `shown_chains` have lines of their own. `remarks` say
    what was left out to keep the report small. `first_samples` are a few for its top.
    `families` are the parents of a run that started from FASTA, with fixed lengths.
    """

    label: str
    findings: Findings
    signature: str
    notes: list[str]
    metadata: dict[str, str]
    finished: bool
    chains: int
    epochs_done: int
    burn_in: int
    order: str
    per_token: bool
    numbers: list[Number]
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
    remarks: list[str]


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
    scorer = TermScorer(device, trust_remote_code, allow_download) if terms else None
    reports, kept = [], []
    every = [run.traces for run in runs]
    per_token = len(set().union(*map(_lengths, every))) > 1
    for run, traces, label in zip(runs, every, labels, strict=True):
        scaled = _per_token(traces) if per_token else traces
        reports.append(_run_report(run, scaled, label, most, scorer, per_token))
        kept.append(_after_burn_in(run, scaled))
    return Report(
        title=title or " · ".join(labels),
        version=__version__,
        runs=reports,
        histograms={
            name: histogram([values[f"energy_{name}"] for values in kept]) for name in ENERGIES
        },
        cautions=_cautions(runs),
    )


def _run_report(
    run: Run, traces: Traces, label: str, most: int, scorer: TermScorer | None, per_token: bool
) -> RunReport:
    summary = run.summary()
    done, chains = summary.epochs_done, summary.chains
    epochs, shown_chains = spaced(done, MOST_EPOCHS), spaced(chains, MOST_CHAINS)
    at = np.array(epochs, dtype=np.int64)
    temperature = temperatures(run.manifest, done)
    every = run.samples
    chosen = [every[place] for place in spaced(len(every), most)] if most else []
    scored = [None] * len(chosen) if scorer is None else scorer.terms_of(run, chosen)
    found = families(run.manifest, every)
    counted = {name: traces[name][at] for name in ("accepted", "novel", "steps")}
    return RunReport(
        label=label,
        findings=findings(run),
        signature=run.signature,
        notes=summary.notes,
        metadata=metadata(run.manifest),
        finished=done >= summary.epochs,
        chains=chains,
        epochs_done=done,
        burn_in=summary.burn_in,
        order=target_energy(run.manifest, every),
        per_token=per_token,
        numbers=_numbers(run, traces, " per token" if per_token else ""),
        epochs=[epoch + 1 for epoch in epochs],
        shown_chains=shown_chains,
        energies={name: _trace(traces[f"energy_{name}"][at], shown_chains) for name in ENERGIES},
        experts={
            name: _trace(traces["expert_energy"][at, :, column], shown_chains)
            for column, name in enumerate(run.manifest.experts)
        },
        temperature=None if temperature is None else [temperature[epoch] for epoch in epochs],
        accepted=rate_spread(counted["accepted"], counted["steps"]),
        novel=rate_spread(counted["novel"], counted["steps"]),
        families=found,
        first_samples=first_samples(run.manifest, every) if most else [],
        samples=shown_samples(run.manifest, chosen, scored),
        samples_in_all=len(every),
        shaded=scorer is not None and bool(chosen),
        remarks=[
            *([_SEVERAL_LENGTHS] if per_token else []),
            *_remarks(done, len(epochs), chains, len(shown_chains), len(every), len(chosen)),
            *_parents_left_out(run.manifest, len(found)),
        ],
    )


def _trace(values: Values, chains: Sequence[int]) -> EnergyTrace:
    return EnergyTrace(energy_spread(values), [listed(values[:, chain]) for chain in chains])


def _after_burn_in(run: Run, traces: Traces) -> Traces:
    summary = run.summary()
    return {name: values[summary.burn_in : summary.epochs_done] for name, values in traces.items()}


def _lengths(traces: Traces) -> set[int]:
    """Return the lengths that sequences had."""
    lengths = traces.get("lengths")
    return set() if lengths is None else set(np.unique(lengths[traces["steps"] > 0]).tolist())


def _per_token(traces: Traces) -> Traces:
    names = (f"energy_{name}" for name in ENERGIES)
    lengths = np.maximum(traces["lengths"], 1)
    return traces | {name: traces[name] / lengths for name in names}


def _numbers(run: Run, traces: Traces, per: str) -> list[Number]:
    """Return the main numbers, over the epochs after burn-in."""
    summary, kept = summarise(run.manifest, traces), _after_burn_in(run, traces)
    return [
        Number(f"E_raw{per}", summary.energy_raw_mean, summary.energy_raw_standard_error),
        Number(f"E_norm{per}", summary.energy_norm_mean, summary.energy_norm_standard_error),
        Number(
            "accepted", summary.acceptance_rate, chain_rate_error(kept["accepted"], kept["steps"])
        ),
        Number("novel", summary.novel_rate, chain_rate_error(kept["novel"], kept["steps"])),
        Number("passes per step", summary.passes_per_step),
    ]


def _labels(runs: Sequence[Run]) -> list[str]:
    """Call runs by their names or the shortest distinct ends of their paths, or number them."""
    paths = [_path(run) for run in runs]
    named = [run.manifest.name or path.name for run, path in zip(runs, paths, strict=True)]
    if len(set(named)) == len(named):
        return named
    for parts in (2, 3):
        names = ["/".join(path.parts[-parts:]) for path in paths]
        if len(set(names)) == len(names):
            return names
    repeated, seen = Counter(named), Counter[str]()
    labels = []
    for name in named:
        seen[name] += 1
        labels.append(f"{name} ({seen[name]})" if repeated[name] > 1 else name)
    return labels


def _path(run: Run) -> Path:
    if run.store.durable:
        return run.store.path.resolve()
    manifest = run.manifest
    return Path("-".join(filter(None, (manifest.kernel, manifest.energy))).replace("/", "-"))


def _cautions(runs: Sequence[Run]) -> list[str]:
    """Return why the runs should not be compared."""
    cautions = []
    if len({run.manifest.config.model.fingerprint for run in runs}) > 1:
        cautions.append(
            "the models differ: E_raw is defined up to a shift of the logits and cannot be "
            "compared between them"
        )
    if len({run.manifest.inputs for run in runs}) > 1:
        cautions.append(
            "the runs differ in lengths or starting texts: energies grow with the length, compare "
            "them per token"
        )
    if len({run.manifest.leaves_invariant for run in runs}) > 1:
        cautions.append("some of the runs leave no target invariant")
    return cautions


def _parents_left_out(manifest: Manifest, shown: int) -> list[str]:
    parents = len(manifest.inputs.names or ())
    if not 0 < shown < parents:
        return []
    return [f"logos and mutations are those of the first {shown} of {parents:,} parents"]


def _remarks(
    done: int, epochs: int, chains: int, lines: int, samples: int, listed_: int
) -> list[str]:
    """Return what is not shown."""
    remarks = []
    if lines < chains:
        remarks.append(
            f"lines are drawn for {lines} of {chains:,} chains, evenly chosen; medians, bands and "
            "tables are over all"
        )
    if epochs < done:
        remarks.append(f"curves show {epochs} of {done:,} epochs, evenly spaced")
    if listed_ < samples:
        remarks.append(f"{listed_:,} of {samples:,} samples are listed, evenly chosen")
    return remarks
