"""A run, as Python and notebooks show it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from html import escape
from pathlib import Path
from typing import Any

from maskov.api.figures import run_figure
from maskov.diagnostics.verdict import shown
from maskov.errors import InputError
from maskov.runs import result
from maskov.runs.sample import Sample
from maskov.ui.escaping import printable

_SHOWN_SAMPLES = 5


@dataclass(frozen=True, repr=False)
class Run(result.Run):
    """A run: its samples, its traces and how they came about.

    It is a sequence of its samples: `len(run)`, `for sample in run`, `run[0]`. `samples`, `traces`,
    `manifest` and `signature` are what a run folder holds; `summary()` and `diagnose()` judge it;
    `to_pandas()`, `to_arviz()`, `plot()` and `report()` hand it on. `damaged` are the files that
    `resume` could not use, `recovered` says what it did instead.
    """

    @classmethod
    def of(cls, run: result.Run) -> Run:
        """Return a run with all that Python offers."""
        return cls(run.store, run.damaged, run.recovered)

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
        diagnosis, samples = self.diagnose(), self.samples
        energies = "".join(
            f"<tr><td>{_html(name)}</td><td>{_number(one.mean)}</td>"
            f"<td>{'' if one.r_hat is None else shown(one.r_hat, '.3f')}</td>"
            f"<td>{_number(one.ess_bulk, 0)}</td></tr>"
            for name, one in diagnosis.energies.items()
        )
        rows = "".join(
            f"<tr><td>{one.chain}</td><td>{_number(one.energy_raw)}</td>"
            f"<td>{_number(one.energy_norm)}</td>"
            f'<td style="text-align:left">{_html(one.text)}</td></tr>'
            for one in samples[:_SHOWN_SAMPLES]
        )
        more = len(samples) - _SHOWN_SAMPLES
        return (
            f"<div><p><b>{_html(diagnosis.verdict.state)}</b>: "
            f"{_html(diagnosis.verdict.reason)}</p>"
            + (f"<p>try next: {_html(advice)}</p>" if (advice := diagnosis.verdict.advice) else "")
            + "<table><thead><tr><th>energy</th><th>mean</th><th>nested R-hat</th>"
            f"<th>effective draws</th></tr></thead><tbody>{energies}</tbody></table>"
            "<table><thead><tr><th>chain</th><th>E_raw</th><th>E_norm</th><th>text</th></tr>"
            f"</thead><tbody>{rows}</tbody></table>"
            + (f"<p>and {more} more samples</p>" if more > 0 else "")
            + f"<p><small>{_html(repr(self))}</small></p></div>"
        )

    def to_pandas(self) -> Any:
        """Return the samples as a DataFrame, a row each; energies of experts have columns."""
        try:
            import pandas
        except ImportError:
            raise InputError("to_pandas() needs pandas: pip install '.[notebook]'.") from None
        rows = []
        for one in self.samples:
            row = asdict(one)
            experts = row.pop("energies")
            row |= {f"energy_{name}": value for name, value in experts.items()}
            if one.name is None:
                del row["name"]
            if one.mutations is None:
                del row["mutations"]
            rows.append(row)
        columns = ["chain", "epoch", "text", "energy_raw", "energy_norm"]
        return pandas.DataFrame(rows, columns=None if rows else columns)

    def plot(self) -> Any:
        """Return a matplotlib Figure: the energies of the chains, and R-hat of energies and tokens.

        A notebook shows it; `run.plot().savefig("run.png")` writes it to a file.
        """
        return run_figure(self)

    def report(self, path: str | Path, *, title: str | None = None) -> Path:
        """Write the file that `maskov report` writes, and return its path.

        It is HTML unless the name ends in .md or .json.
        """
        from maskov.ui.report.formats import write_report

        return write_report([self], Path(path), title=title)


def _html(text: str) -> str:
    return escape(printable(text))


def _number(value: float | None, digits: int = 2) -> str:
    return "" if value is None else f"{value:.{digits}f}"
