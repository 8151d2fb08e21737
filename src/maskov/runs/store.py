"""What a run writes its results to, and the one that keeps them in memory."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from dataclasses import replace
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from maskov.config import Manifest
from maskov.execution.buffers import COUNTS, ENERGIES
from maskov.runs.checkpoint import Cursor, Saved
from maskov.runs.group import EXPERTS, PLACES, REPLICAS
from maskov.runs.sample import Sample
from maskov.runs.validation import GroupShape
from maskov.types import Traces

# Energies at the end of each epoch, what was counted within it, and what belongs to positions, to
# replicas and to experts.
TRACES: dict[str, type[np.generic]] = {
    **dict.fromkeys(ENERGIES, np.float64),
    **dict.fromkeys(COUNTS, np.int64),
    "lengths": np.int32,
    "tokens": np.int32,
    "rejected": np.bool_,
    "rung_energy": np.float64,
    "rung_replica": np.int8,
    "swap_tested": np.bool_,
    "swap_accepted": np.bool_,
    "sizes": np.int32,
    "expert_energy": np.float64,
    "expert_calls": np.int64,
}
# Traces with more than one entry for each chain.
WIDE = (*PLACES, *REPLICAS, *EXPERTS, "sizes")
# Epochs × chains × positions up to which what happens at each position is traced.
_MOST_PLACES = 2**24


class Store(ABC):
    """What the loop writes to."""

    manifest: Manifest
    # Whether what is saved can be loaded again.
    durable: bool

    @abstractmethod
    def write_rows(self, first: int, epoch: int, values: Traces) -> None:
        """Keep what the chains from `first` on came to in an epoch; twice does no harm."""

    @abstractmethod
    def row(self, epoch: int) -> Traces:
        """Return what all chains came to in an epoch, one number each."""

    @abstractmethod
    def write_samples(self, samples: Iterable[Sample], after: int) -> tuple[int, str]:
        """Put samples after the first `after` bytes; return where they end and the hash so far."""

    @abstractmethod
    def save(self, group: int, saved: Saved) -> None:
        """Keep the state of a group of chains."""

    @abstractmethod
    def load(self, group: int, shape: GroupShape) -> tuple[Saved | None, list[Path]]:
        """Return the newest state of a group that is whole, and the damaged files."""

    @abstractmethod
    def cursor(self) -> Cursor:
        """Return how far the run has come."""

    @abstractmethod
    def note(self, **found: Any) -> None:
        """Add to the manifest something that the run has found out."""

    @abstractmethod
    def spell(self, texts: dict[int, str]) -> None:
        """Keep the texts of all tokens that the traces hold."""

    @abstractmethod
    def spellings(self) -> dict[int, str]:
        """Return these texts, as far as they are known."""

    @abstractmethod
    def samples(self) -> list[Sample]:
        """Return the samples kept so far."""

    @abstractmethod
    def traces(self) -> Traces:
        """Return the traces, epochs × chains; without epochs after one that ended the run."""

    @abstractmethod
    def traced(self) -> frozenset[str]:
        """Return the names of the traces there are."""


def trace_shape(manifest: Manifest, name: str) -> tuple[int, ...] | None:
    """Return the shape of a trace, or None if this run has none of that name.

    Only small runs have traces of positions.
    """
    shape, replicas = (manifest.schedule.epochs, manifest.chains), manifest.replicas
    if name in PLACES:
        places = (*shape, manifest.width)
        return places if prod(places) <= _MOST_PLACES else None
    if name == "sizes":
        return (*shape, manifest.regions) if manifest.regions else None
    if name in EXPERTS:
        return (*shape, len(manifest.experts)) if manifest.experts else None
    if name in REPLICAS:
        entries = replicas - 1 if name.startswith("swap") else replicas
        return (*shape, entries) if replicas > 1 else None
    return shape


def empty_traces(manifest: Manifest) -> Iterator[tuple[str, npt.NDArray[Any]]]:
    """Yield the traces of a run that has not begun."""
    for name, kind in TRACES.items():
        shape = trace_shape(manifest, name)
        if shape is not None:
            yield name, np.full(shape, np.nan if kind is np.float64 else 0, dtype=kind)


class MemoryStore(Store):
    """Results that end with the process."""

    def __init__(self, manifest: Manifest) -> None:
        self.manifest = manifest
        self._traces = dict(empty_traces(manifest))
        self._samples: list[Sample] = []
        self._spellings: dict[int, str] = {}

    durable = False

    def write_rows(self, first: int, epoch: int, values: Traces) -> None:
        """Put the rows in their place."""
        for name, trace in self._traces.items():
            trace[epoch, first : first + len(values[name])] = values[name]

    def row(self, epoch: int) -> Traces:
        """Return one row of each trace."""
        return {name: trace[epoch] for name, trace in self._traces.items() if name not in WIDE}

    def write_samples(self, samples: Iterable[Sample], after: int) -> tuple[int, str]:
        """Keep samples; positions count samples here, and nobody can change them."""
        self._samples[after:] = samples
        return len(self._samples), ""

    def save(self, group: int, saved: Saved) -> None:
        """Keep nothing: there is no later process to go on from it."""

    def load(self, group: int, shape: GroupShape) -> tuple[Saved | None, list[Path]]:
        """Return nothing: what is not in memory has not begun."""
        return None, []

    def cursor(self) -> Cursor:
        """Return that nothing was done yet."""
        return Cursor()

    def note(self, **found: Any) -> None:
        """Add to the manifest."""
        self.manifest = replace(self.manifest, **found)

    def spell(self, texts: dict[int, str]) -> None:
        """Keep the texts of tokens."""
        self._spellings = dict(texts)

    def spellings(self) -> dict[int, str]:
        """Return the texts of tokens."""
        return self._spellings

    def samples(self) -> list[Sample]:
        """Return the samples kept so far."""
        return list(self._samples)

    def traces(self) -> Traces:
        """Return the traces."""
        end = self.manifest.stopped_at
        if end is None:
            return self._traces
        return {name: trace[:end] for name, trace in self._traces.items()}

    def traced(self) -> frozenset[str]:
        """Return the names of the traces there are."""
        return frozenset(self._traces)
