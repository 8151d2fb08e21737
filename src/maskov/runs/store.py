"""What a run comes to: named arrays and samples, in memory; `RunFolder` has them on disk.

A row of an array has its place, so that writing it twice does no harm. The arrays hold everything;
samples are a view of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from functools import cached_property
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from maskov.config import Manifest
from maskov.execution.buffers import COUNTS, ENERGIES
from maskov.runs.checkpoint import GroupShape
from maskov.runs.group import EXPERTS, PLACES, REPLICAS, GroupState, kept_epochs
from maskov.runs.sample import Sample
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
# Of runs too large to trace their tokens, those of the epochs with samples.
ARRAYS: dict[str, type[np.generic]] = TRACES | {"kept": np.int32}
# Traces with more than one entry for each chain.
WIDE = (*PLACES, *REPLICAS, *EXPERTS, "sizes")
# Epochs × chains × positions up to which what happens at each position is traced.
_MOST_PLACES = 2**24


def array_shape(manifest: Manifest, name: str) -> tuple[int, ...] | None:
    """Return the shape of an array, or None if this run has none of that name.

    Only small runs have traces of positions.
    """
    shape, replicas = (manifest.schedule.epochs, manifest.chains), manifest.replicas
    places = (*shape, manifest.width)
    if name in PLACES:
        return places if prod(places) <= _MOST_PLACES else None
    if name == "kept":
        return None if prod(places) <= _MOST_PLACES else (len(kept_epochs(manifest)), *places[1:])
    if name == "sizes":
        return (*shape, manifest.regions) if manifest.regions else None
    if name in EXPERTS:
        return (*shape, len(manifest.experts)) if manifest.experts else None
    if name in REPLICAS:
        entries = replicas - 1 if name.startswith("swap") else replicas
        return (*shape, entries) if replicas > 1 else None
    return shape


def row_of(manifest: Manifest, name: str, epoch: int) -> int | None:
    """Return the row of an epoch in an array, if it has one."""
    if name != "kept":
        return epoch
    kept = kept_epochs(manifest)
    return kept.index(epoch) if epoch in kept else None


def empty_arrays(manifest: Manifest) -> Iterator[tuple[str, npt.NDArray[Any]]]:
    """Yield the arrays of a run that has not begun."""
    for name, kind in ARRAYS.items():
        shape = array_shape(manifest, name)
        if shape is not None:
            made = np.zeros(shape, dtype=kind)
            yield name, np.full_like(made, np.nan) if kind is np.float64 else made


class Store:
    """Results that end with the process."""

    # Whether what is saved can be loaded again.
    durable = False

    def __init__(self, manifest: Manifest) -> None:
        self.manifest = manifest
        # The files that were damaged, and what became of it, in sentences.
        self.damaged: list[Path] = []
        self.recovered: list[str] = []
        self._samples: list[Sample] = []
        self._spellings: dict[int, str] = {}

    @cached_property
    def _arrays(self) -> Traces:
        return dict(empty_arrays(self.manifest))

    def array(self, name: str) -> npt.NDArray[Any]:
        """Return an array, to be read."""
        return self._arrays[name]

    def write_rows(self, first: int, epoch: int, values: Traces) -> None:
        """Keep what the chains from `first` on came to in an epoch."""
        for name, row, rows in self._placed(epoch, values):
            self._arrays[name][row, first : first + len(rows)] = rows

    def _placed(self, epoch: int, values: Traces) -> Iterator[tuple[str, int, npt.NDArray[Any]]]:
        """Yield the rows of an epoch, each with the name of its array and its place there."""
        # Steps last: who reads along takes an epoch that has some for a whole one.
        for name in sorted(ARRAYS, key=lambda name: name == "steps"):
            row = row_of(self.manifest, name, epoch)
            if row is not None and array_shape(self.manifest, name) is not None:
                yield name, row, values["tokens" if name == "kept" else name]

    def row(self, epoch: int) -> Traces:
        """Return what all chains came to in an epoch, one number each."""
        return {name: np.array(self.array(name)[epoch]) for name in TRACES if name not in WIDE}

    def tokens(self, epoch: int) -> npt.NDArray[Any]:
        """Return the tokens of all chains at the end of an epoch with samples."""
        name = "kept" if array_shape(self.manifest, "tokens") is None else "tokens"
        return np.array(self.array(name)[row_of(self.manifest, name, epoch)])

    def sampled(self, closed: int) -> Sequence[int]:
        """Return those of the first so many epochs that have samples."""
        kept = [epoch for epoch in kept_epochs(self.manifest) if epoch < closed]
        if not self.manifest.config.thin:
            return [epoch for epoch in kept if epoch == self.manifest.epochs - 1]
        return kept

    def write_samples(self, epoch: int, samples: Iterable[Sample]) -> None:
        """Keep the samples of an epoch, after those of the epochs before."""
        self._samples += samples

    def restore_samples(self, closed: int) -> Sequence[int]:
        """Make room after the samples of so many epochs; return those to be written again."""
        return ()

    def save(self, group: int, state: GroupState) -> None:
        """Keep the state of a group of chains, if there can be a later process to go on from it."""

    def load(self, group: int, shape: GroupShape) -> GroupState | None:
        """Return the newest state of a group that is whole."""
        return None

    @property
    def finished(self) -> bool:
        """Whether every epoch was run and every sample kept."""
        return True

    def damage_note(self) -> str | None:
        """Say which traces do not fit the run and how to make them again, if any."""
        return None

    def note(self, **found: Any) -> None:
        """Add to the manifest something that the run has found out."""
        self.manifest = replace(self.manifest, **found)

    def spell(self, texts: dict[int, str]) -> None:
        """Keep the texts of all tokens that the traces hold."""
        self._spellings = dict(texts)

    def spellings(self) -> dict[int, str]:
        """Return these texts, as far as they are known."""
        return self._spellings

    def samples(self) -> list[Sample]:
        """Return the samples kept so far."""
        return list(self._samples)

    def traces(self) -> Traces:
        """Return the traces, epochs × chains; without epochs after one that ended the run."""
        return {name: self.array(name)[: self.manifest.epochs] for name in self.traced()}

    def traced(self) -> list[str]:
        """Return the names of the traces there are."""
        return [name for name in TRACES if array_shape(self.manifest, name) is not None]
