"""What a run came to: what filled the blanks of its templates, and libraries of its samples.

A run that started from FASTA leaves a library next to its samples, to order or to screen:

    samples.fa       every sample, called PARENT|CHAIN, or PARENT|CHAIN|EPOCH if several are kept;
                     what follows the first word of a parent's name follows that
    mutations.csv    one line a sample: energies, and the mutations of its parent (fixed lengths)

Both are made from `samples.jsonl` when the run ends, and are made again by `resume` if they are
gone.
"""

from __future__ import annotations

import csv
import io
import math
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from maskov.config import Manifest
from maskov.diagnostics import Diagnosis, Summary, diagnose, summarise, to_arviz
from maskov.diagnostics.convergence import kept_epochs
from maskov.diagnostics.populations import population_figures
from maskov.diagnostics.verdict import measured
from maskov.errors import InputError, RunError, refuse
from maskov.fasta import Record, letter, numbered, to_fasta
from maskov.runs.files import explained, write_atomically, write_file
from maskov.runs.store import Store
from maskov.types import Sample, Traces

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from pandas import DataFrame
    from xarray import DataTree

    from maskov.models import MaskedModel

FASTA, TABLE = "samples.fa", "mutations.csv"
# Samples that are shown of a run.
SHOWN_SAMPLES = 5
# The most chains drawn as separate lines; more would be unreadable.
_MOST_LINES = 16
_MOST_STATISTICS = 16
# R-hat beyond this is drawn at it: chains that never meet have an infinite one.
_MOST_R_HAT = 3.0
_COLUMNS = ("sample", "parent", "chain", "epoch", "count", "mutations", "energy_raw", "energy_norm")
Tokens = tuple[int, ...]


@dataclass(frozen=True)
class Fill:
    """A filled template: its text and the words of each blank, its probability and the error of it.

    `energy` is that of the target. `count` says how many draws were it; the search found it if none
    was.
    """

    text: str
    words: list[str]
    probability: float
    error: float
    energy: float
    count: int = 0


@dataclass(frozen=True, repr=False)
class Run:
    """A run: its samples, its traces and how they came about.

    It is a sequence of its samples: `len(run)`, `for sample in run`, `run[0]`. `samples`, `traces`,
    `manifest` and `signature` are what a run folder holds; `summary()` and `diagnose()` judge it;
    `to_pandas()`, `to_arviz()`, `plot()` and `report()` hand it on.
    """

    store: Store

    @property
    def manifest(self) -> Manifest:
        """The run's description, and what was found out about it."""
        return self.store.manifest

    @property
    def samples(self) -> list[Sample]:
        """The samples, in the order they were kept."""
        return self.store.samples()

    @property
    def traces(self) -> Traces:
        """Energies and counts, one array of epochs × chains each.

        `irreversible` counts steps whose reverse a truncated proposal rules out. Small runs have
        `tokens` and `rejected` too, epochs × chains × positions.
        """
        return self.store.traces()

    @property
    def signature(self) -> str:
        """One line that says how the numbers came about."""
        return self.manifest.signature

    @property
    def finished(self) -> bool:
        """Whether every epoch was run and every sample kept."""
        return self.store.finished

    @property
    def recovered(self) -> list[str]:
        """The files that `resume` found damaged, and what it did instead, in sentences."""
        return self.store.recovered

    def summary(self) -> Summary:
        """Rates, costs and mean energies."""
        return summarise(self.manifest, self.traces)

    def diagnose(self) -> Diagnosis:
        """R-hat, effective sizes, autocorrelations, rates by position, and a verdict."""
        diagnosis = diagnose(self.manifest, self.traces, self._token_texts)
        note = self.store.damage_note()
        return diagnosis if note is None else replace(diagnosis, notes=[note, *diagnosis.notes])

    def to_arviz(self, warmup: bool = False) -> DataTree:
        """Return the traces as the DataTree that ArviZ works on, burn-in only if asked for."""
        tree: DataTree = to_arviz(self.manifest, self.traces, warmup=warmup)
        return tree

    def to_pandas(self) -> DataFrame:
        """Return the samples as a DataFrame, a row each; energies of experts have columns."""
        try:
            import pandas
        except ImportError:
            raise InputError("to_pandas() needs pandas: pip install '.[notebook]'.") from None
        rows = []
        for one in self.samples:
            row = {name: value for name, value in asdict(one).items() if value is not None}
            rows.append(row | {f"energy_{name}": it for name, it in row.pop("energies").items()})
        columns = ["chain", "epoch", "text", "energy_raw", "energy_norm"]
        return pandas.DataFrame(rows, columns=None if rows else columns)

    def fills(self, top_k: int | None = None, model: MaskedModel | None = None) -> list[list[Fill]]:
        """Return the fills of each template that chains held after burn-in, with their shares.

        The model that the run names is loaded to spell them, unless it is given.
        """
        from maskov.runs.manifest import load_model
        from maskov.ui.detokenise import detokenised

        refuse(
            (
                self.manifest.inputs.templates is None,
                "this run has no templates, so nothing was filled.",
            )
        )
        config = self.manifest.config
        speller = model or load_model(config.model, config.inputs.sources)
        found = fills_of_run(
            self, lambda ids: detokenised(speller.decode(ids), speller.token_strings(ids))
        )
        return [each[:top_k] for each in found]

    def fill_table(self, top_k: int | None = None) -> DataFrame:
        """Return the fills as a DataFrame, a row each."""
        return fill_table(self.fills(top_k))

    def plot(self, what: str = "energy", axes: Axes | None = None) -> Axes:
        """Draw a trace of the chains and their mean, or R-hat; return the axes of matplotlib.

        `what` is "energy", that of the target, the name of another trace such as "energy_norm" or
        "accepted", or "r_hat", that of energies and tokens. It is drawn on the `axes`, or on new
        ones; `run.plot().figure.savefig("run.png")` writes them to a file.
        """
        traced = [name for name, values in self.traces.items() if values.ndim == 2]
        known = ("energy", "r_hat", *traced)
        refuse(
            (
                what not in known,
                f"a run has no '{what}' to plot; use one of {', '.join(known)}.",
            )
        )
        try:
            from matplotlib import pyplot
        except ImportError:
            raise InputError("plot() needs matplotlib: pip install '.[notebook]'.") from None
        drawn: Axes = pyplot.subplots(layout="constrained")[1] if axes is None else axes
        if what == "r_hat":
            _draw_r_hats(drawn, self)
        else:
            _draw_trace(drawn, self, what)
        return drawn

    def report(self, path: str | Path, *, title: str | None = None) -> Path:
        """Write the file that `maskov report` writes, and return its path.

        It is HTML unless the name ends in .md or .json.
        """
        from maskov.ui.report import build, content_of, format_of

        out = Path(path)
        write_file(out, content_of(build([self], title=title), format_of(None, out)))
        return out

    def __len__(self) -> int:
        return len(self.samples)

    def __iter__(self) -> Iterator[Sample]:
        return iter(self.samples)

    def __getitem__(self, index: int) -> Sample:
        return self.samples[index]

    def __bool__(self) -> bool:
        return True  # also before a sample is kept

    def __repr__(self) -> str:
        summary = self.summary()
        energy = "no target" if summary.energy is None else f"energy {summary.energy}"
        done, epochs = summary.epochs_done, summary.epochs
        shown = f"{epochs}" if done == epochs else f"{done} of {epochs}"
        return (
            f"<Run of {summary.model}: {len(self)} samples, {summary.chains} chains, "
            f"{shown} epochs, {energy}>"
        )

    def __str__(self) -> str:
        shown = (one.text for one in self.samples[:SHOWN_SAMPLES])
        return "\n".join([repr(self), *self.diagnose().verdict.lines(), *shown])

    def _repr_html_(self) -> str:
        """Return what a notebook shows: the verdict, the energies and a few samples."""
        from maskov.ui.report import templates

        diagnosis, samples = self.diagnose(), self.samples
        return (
            templates()
            .get_template("notebook.html")
            .render(
                found=diagnosis.verdict,
                energies=diagnosis.energies,
                samples=samples[:SHOWN_SAMPLES],
                more=len(samples) - SHOWN_SAMPLES,
                about=repr(self),
            )
        )

    def _token_texts(self) -> dict[int, str]:
        try:
            samples = self.samples
        except RunError:  # damaged samples do not keep anybody from the traces
            samples = []
        pairs = (zip(one.ids, one.tokens, strict=False) for one in samples)
        return {token: text for sample in pairs for token, text in sample} | self.store.spellings()

    @classmethod
    def open(cls, path: str | Path) -> Run:
        """Read a run folder, finished or not."""
        return cls(Store.open(Path(path)))


def _draw_trace(axes: Axes, run: Run, what: str) -> None:
    """Draw a trace of each chain, thin, and its mean over chains."""
    manifest, traces = run.manifest, run.traces
    done = int((traces["steps"] > 0).all(1).sum())
    name = what.replace("_", " ")
    if what == "energy":
        has_target = np.isfinite(traces["energy_target"][:done]).any()
        what = "energy_target" if has_target else "energy_raw"
        name = f"energy {manifest.energy if has_target else 'raw'}"
    energy = traces[what][:done]
    traced = np.isfinite(energy).all(1)
    epochs = np.arange(1, done + 1)[traced]
    for chain in range(min(energy.shape[1], _MOST_LINES)):
        axes.plot(epochs, energy[traced, chain], color="tab:blue", alpha=0.25, linewidth=0.8)
    unit, time, before = (
        ("particles", "point of the path", "before the target")
        if manifest.particles
        else ("chains", "epoch", "burn-in")
    )
    axes.plot(epochs, energy[traced].mean(1), color="black", label=f"mean of all {unit}")
    if burn_in := manifest.burn_in(done):
        axes.axvspan(0.5, burn_in + 0.5, color="0.9", label=before)
    axes.set(xlabel=time, ylabel=name, title=manifest.config.model.name)
    axes.legend()


def _draw_r_hats(axes: Axes, run: Run) -> None:
    """Draw R-hat of each energy and of the slowest token statistics."""
    diagnosis = run.diagnose()
    tokens = diagnosis.tokens.statistics[:_MOST_STATISTICS] if diagnosis.tokens else []
    numbers = measured(run.manifest, diagnosis.energies, tokens)
    names, figures, _ = zip(*numbers, strict=True)
    # Nothing is drawn for single chains.
    axes.barh(names, [min(one.r_hat or 1.0, _MOST_R_HAT) - 1 for one in figures], left=1.0)
    limits = [one.r_hat_limit or 1.0 for one in figures]
    axes.plot(limits, range(len(names)), "|", color="tab:red", markersize=12, label="limit")
    axes.invert_yaxis()
    axes.set(xlabel="nested R-hat", title=diagnosis.verdict.state)
    axes.legend()


def fill_table(fills: Sequence[Sequence[Fill]]) -> DataFrame:
    """Return the fills of templates as a DataFrame, a row each."""
    import pandas

    rows = [{"template": n, **asdict(fill)} for n, each in enumerate(fills) for fill in each]
    return pandas.DataFrame(rows)


def fills_of_run(run: Run, spelled: Callable[[Tokens], str]) -> list[list[Fill]]:
    """Return the fills that chains or particles held after burn-in, with their shares.

    The error is that between chains, or between populations, which count in proportion to Z.
    """
    particles = run.manifest.particles or 1
    template_of = {one.chain: one.template for one in run.samples}
    held = defaultdict[int, list[tuple[int, Tokens, float]]](list)
    for chain, ids, energy in _states(run):
        held[template_of[chain]].append((chain // particles, ids, energy))
    figures = population_figures(run.manifest, run.traces) if run.manifest.particles else []
    evidence = {one.template: one.each for one in figures}
    found = []
    for template, states in sorted(held.items()):
        groups = sorted({chain // particles for chain, of in template_of.items() if of == template})
        energies = {ids: energy for _, ids, energy in states}
        row = {ids: number for number, ids in enumerate(energies)}
        counts = np.zeros((len(row), len(groups)), dtype=int)
        for group, ids, _ in states:
            counts[row[ids], groups.index(group)] += 1
        shares = counts / counts.sum(0).clip(1)
        weight = np.exp(evidence.get(template, [0.0] * len(groups)))
        weight = weight / weight.sum()
        share = (weight * shares).sum(1)
        scatter = ((weight * (shares - share[:, None])) ** 2).sum(1)
        several = len(groups) - 1 or math.nan  # one group has no error
        error = np.sqrt(scatter * len(groups) / several)
        rows = [
            Fill(spelled(ids), [], float(share[n]), float(error[n]), energies[ids],
                 int(counts[n].sum()))
            for ids, n in row.items()
        ]  # fmt: skip
        found.append(sorted(rows, key=lambda fill: (-fill.probability, fill.energy, fill.text)))
    return found


def _states(run: Run) -> Iterator[tuple[int, Tokens, float]]:
    """Yield the chain, tokens and energy of every state after burn-in.

    Large runs trace no tokens; of those only the samples are known.
    """
    traces = run.traces
    target = {"raw": "energy_raw", "norm": "energy_norm"}.get(str(run.manifest.energy))
    if "tokens" not in traces or "lengths" not in traces:
        for one in run.samples:
            energy = getattr(one, target) if target else one.energies.get("target", math.nan)
            yield one.chain, tuple(one.ids), energy
        return
    kept = kept_epochs(run.manifest, traces)
    names = ("tokens", "lengths", "energy_target")
    for epoch in zip(*(traces[name][kept].tolist() for name in names), strict=True):
        for chain, (ids, length, energy) in enumerate(zip(*epoch, strict=True)):
            yield chain, tuple(ids[:length]), energy


def write_library(store: Store, anew: bool = True) -> None:
    """Write the sequences of a run that started from FASTA, and their mutations.

    Unless `anew`, a library that is there is left as it is.
    """
    if store.manifest.inputs.names is None or (not anew and (store.path / FASTA).exists()):
        return
    samples, several = store.samples(), bool(store.manifest.config.thin)
    with explained(store.path):
        files = {FASTA: to_fasta(record_of(sample, several) for sample in samples)}
        if any(sample.mutations is not None for sample in samples):
            files[TABLE] = mutation_table(samples, several)
        for name, content in files.items():
            write_atomically(store.path / name, content.encode("utf-8", "replace"))


def record_of(sample: Sample, several: bool) -> Record:
    """Return a sample as a record; `several` says that chains have more than one."""
    numbers = (sample.chain, sample.epoch) if several else (sample.chain,)
    return Record(numbered(str(sample.name), *numbers), "".join(map(letter, sample.tokens)))


def mutation_table(samples: list[Sample], several: bool) -> str:
    """Return the mutations of samples as CSV."""
    out = io.StringIO()
    table = csv.writer(out, lineterminator="\n")
    table.writerow(_COLUMNS)
    for sample in samples:
        found = sample.mutations or []
        table.writerow([
            record_of(sample, several).name, sample.name, sample.chain, sample.epoch,
            len(found), " ".join(found), sample.energy_raw, sample.energy_norm,
        ])  # fmt: skip
    return out.getvalue()
