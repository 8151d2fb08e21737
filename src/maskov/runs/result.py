"""What a run came to."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from maskov.config import Manifest
from maskov.diagnostics import Diagnosis, Summary, diagnose, summarise, to_arviz
from maskov.errors import RunError
from maskov.runs.sample import Sample
from maskov.runs.store import Store
from maskov.types import Traces

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from pandas import DataFrame


@dataclass(frozen=True, repr=False)
class Run:
    """A run: its samples, its traces and how they came about.

    It is a sequence of its samples: `len(run)`, `for sample in run`, `run[0]`. `samples`, `traces`,
    `manifest` and `signature` are what a run folder holds; `summary()` and `diagnose()` judge it;
    `to_pandas()`, `to_arviz()`, `plot()` and `report()` hand it on. `damaged` are the files that
    `resume` could not use, `recovered` says what it did instead.
    """

    store: Store
    damaged: list[Path] = field(default_factory=list)
    recovered: list[str] = field(default_factory=list)

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

    def summary(self) -> Summary:
        """Rates, costs and mean energies."""
        return summarise(self.manifest, self.traces)

    def diagnose(self) -> Diagnosis:
        """R-hat, effective sizes, autocorrelations, rates by position, and a verdict."""
        diagnosis = diagnose(self.manifest, self.traces, self._token_texts)
        note = self.store.damage_note()
        return diagnosis if note is None else replace(diagnosis, notes=[note, *diagnosis.notes])

    def to_arviz(self, warmup: bool = False) -> Any:
        """Return the traces as the DataTree that ArviZ works on, burn-in only if asked for."""
        return to_arviz(self.manifest, self.traces, warmup=warmup)

    def to_pandas(self) -> DataFrame:
        """Return the samples as a DataFrame, a row each; energies of experts have columns."""
        from maskov.ui.notebook import run_frame

        return run_frame(self)

    def plot(self) -> Figure:
        """Return a matplotlib Figure: the energies of the chains, and R-hat of energies and tokens.

        A notebook shows it; `run.plot().savefig("run.png")` writes it to a file.
        """
        from maskov.ui.notebook import run_figure

        return run_figure(self)

    def report(self, path: str | Path, *, title: str | None = None) -> Path:
        """Write the file that `maskov report` writes, and return its path.

        It is HTML unless the name ends in .md or .json.
        """
        from maskov.ui.report.formats import write_report

        return write_report([self], Path(path), title=title)

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

    def _repr_html_(self) -> str:
        """Return what a notebook shows: the verdict, the energies and a few samples."""
        from maskov.ui.notebook import run_html

        return run_html(self)

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
