"""What a run came to."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from maskov.config import Manifest
from maskov.diagnostics import Diagnosis, Summary, diagnose, summarise, to_arviz
from maskov.errors import RunError
from maskov.runs.sample import Sample
from maskov.runs.store import Store
from maskov.types import Traces


@dataclass(frozen=True)
class Run:
    """A finished run: its samples, its traces and how they came about.

    `damaged` are the files that `resume` could not use, `recovered` says what it did instead.
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
