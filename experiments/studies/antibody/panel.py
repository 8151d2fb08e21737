"""The 25 antibodies, what the laboratory made of them, and curves of precision and recall."""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from experiments.studies.antibody.rankings import LETTERS, Ranking

# What systems proposed, as points next to our curve (`humab_eval.py` has their numbers).
PUBLISHED = ("humab", "straight_grafts", "vernier_grafts", *(f"sapiens{k}" for k in range(1, 6)))


@dataclass(frozen=True)
class Panel:
    """Parents, the laboratory's sequences and the places of CDRs, which are frozen."""

    tool: Any
    folder: Path
    parents: dict[str, str]
    made: dict[str, str]
    held: dict[str, set[int]]

    @classmethod
    def read(cls, data: Path, evaluator: Path, most: int | None = None) -> Panel:
        """Read the pairs with the evaluator's own readers."""
        spec = importlib.util.spec_from_file_location("humab_eval", evaluator)
        assert spec is not None
        assert spec.loader is not None
        tool = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(tool)
        folder = data / "humab25"
        parents, made = (tool.fasta(folder / f"{name}.fa") for name in ("parental", "experimental"))
        names = list(parents)[:most]
        return cls(tool, folder, {name: parents[name] for name in names}, made, tool.cdrs())

    @property
    def parts(self) -> dict[str, list[str]]:
        """Names of chains: every other pair to choose on, the rest, all."""
        pairs = {name[:-3]: 0 for name in self.parents}
        pairs = {pair: number for number, pair in enumerate(pairs)}
        return {
            "chosen on": [name for name in self.parents if pairs[name[:-3]] % 2 == 0],
            "rest": [name for name in self.parents if pairs[name[:-3]] % 2],
            "all": list(self.parents),
        }

    def judged(self, system: Mapping[str, str], names: list[str]) -> Any:
        """Return the evaluator's numbers."""
        kept = {name: self.parents[name] for name in names}
        return self.tool.scores(system, kept, self.made, self.held)

    def published(self) -> dict[str, dict[str, Any]]:
        """Return the numbers of published systems by part."""
        return {
            name: {
                part: self.judged(self.tool.fasta(self.folder / f"{name}.fa"), names)
                for part, names in self.parts.items()
            }
            for name in PUBLISHED
        }

    def counted(self, name: str) -> bool:
        """Return whether the evaluator counts a chain: its length did not change."""
        return len(self.parents[name]) == len(self.made[name])


@dataclass(frozen=True)
class Curve:
    """Mutations of all chains, the most certain first; `right` counts the right ones so far."""

    names: list[str]
    mutations: list[tuple[str, int, str]]
    right: npt.NDArray[np.int64]
    wanted: int

    @classmethod
    def of(cls, panel: Panel, rankings: Mapping[str, Ranking], names: list[str]) -> Curve:
        """Take the best other letter of each free place, by how much it beats the parent's."""
        found = []
        for name in filter(panel.counted, names):
            parent, logs = panel.parents[name], np.log(np.maximum(rankings[name], 1e-300))
            rows = np.arange(len(parent))
            own = np.array([LETTERS.index(letter) for letter in parent])
            parents = logs[rows, own]
            logs[rows, own] = -np.inf
            best = logs.argmax(1)
            margin = logs.max(1) - parents
            found += [
                (-margin[at], name, at, LETTERS[best[at]])
                for at in range(len(parent))
                if at not in panel.held[name]
            ]
        found.sort()
        right = [panel.made[name][at] == letter for _, name, at, letter in found]
        wanted = sum(
            a != b
            for name in filter(panel.counted, names)
            for a, b in zip(panel.parents[name], panel.made[name], strict=True)
        )
        mutations = [(name, at, letter) for _, name, at, letter in found]
        return cls(names, mutations, np.cumsum(right, dtype=np.int64), wanted)

    def at(self, mutations: int) -> tuple[float, float]:
        """Return precision and recall at so many mutations, or at all that are ranked."""
        count = min(mutations, len(self.right))
        right = int(self.right[count - 1]) if count else 0
        return right / max(count, 1), right / max(self.wanted, 1)

    def sequences(self, panel: Panel, mutations: int) -> dict[str, str]:
        """Return the parents with the first so many mutations."""
        made = {name: list(panel.parents[name]) for name in self.names}
        for name, at, letter in self.mutations[:mutations]:
            made[name][at] = letter
        return {name: "".join(letters) for name, letters in made.items()}
