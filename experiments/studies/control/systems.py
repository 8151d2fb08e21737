"""The rewritings to be compared: those of the published systems, and ours of every chain.

Ours are NAME.PICK.HALF.jsonl, where PICK is lowest (the text of lowest energy that a chain had) or
last (a plain sample), HALF is 0 or 1, and every chain of a line has a row; NAME.json has the
setting and its cost.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from experiments.studies.control.scoring import Halves, Task
from maskov.evaluation import most_alike
from maskov.rewriting import Rewriting

PICKS = ("lowest", "last")
_Chains = list[list[Rewriting]]  # of each line
# Files that were compared in no publication: the evaluator's two ends.
SOURCE, HUMAN = "source", "human reference"


def read_lines(file: Path) -> list[str]:
    """Return the lines of a file."""
    return file.read_text(encoding="utf-8").rstrip("\n").split("\n")


def read_halves(folder: Path, name: str) -> Halves:
    """Return both halves of a system's rewritings."""
    return read_lines(folder / f"{name}.0.txt"), read_lines(folder / f"{name}.1.txt")


def read_task(data: Path) -> Task:
    """Return the lines of the comparison."""
    return Task(read_halves(data, "test"), read_halves(data, "reference"))


def read_published(data: Path) -> dict[str, Halves]:
    """Return what the published systems wrote."""
    files = sorted((data / "peers").glob("*.0.txt"))
    return {
        name: read_halves(data / "peers", name)
        for name in (file.name.removesuffix(".0.txt") for file in files)
    }


@dataclass(frozen=True)
class OurSystem:
    """Rewritings by one setting, of every chain of each line."""

    name: str
    record: dict[str, Any]
    rows: dict[str, tuple[_Chains, _Chains]]

    @classmethod
    def read(cls, folder: Path, name: str, task: Task) -> OurSystem:
        """Read and check the files of a setting."""
        record = json.loads((folder / f"{name}.json").read_text(encoding="utf-8"))
        rows = {
            pick: (
                _read_half(folder / f"{name}.{pick}.0.jsonl", task.sources[0]),
                _read_half(folder / f"{name}.{pick}.1.jsonl", task.sources[1]),
            )
            for pick in PICKS
        }
        found = cls(name, record, rows)
        if found.lines != tuple(map(len, rows["last"])):
            raise SystemExit(f"'{folder / name}': the files of {' and '.join(PICKS)} differ")
        return found

    @property
    def lines(self) -> tuple[int, int]:
        """How many lines of each half were rewritten: the first ones, or all."""
        return len(self.rows["lowest"][0]), len(self.rows["lowest"][1])

    @property
    def chains(self) -> int:
        """The chains of a line."""
        return len(self.rows["lowest"][0][0])

    def of_chain(self, pick: str, chain: int) -> Halves:
        """Return the rewritings of one chain."""
        return self._chosen(pick, lambda found: found[chain])

    def of_lowest_energy(self, pick: str = "lowest") -> Halves:
        """Return of each line's chains the one of lowest energy."""
        return self._chosen(pick, lambda found: min(found, key=_energy))

    def most_alike(self, pick: str = "last") -> Halves:
        """Return of each line's chains the one most like all of them."""
        return self._chosen(pick, lambda found: found[most_alike([row.text for row in found])])

    def mean_energy(self, pick: str, all_chains: bool) -> float:
        """Return the mean energy, of all rows or of each line's lowest."""
        lines = [found for half in self.rows[pick] for found in half]
        if all_chains:
            return sum(_energy(row) for found in lines for row in found) / sum(map(len, lines))
        return sum(min(map(_energy, found)) for found in lines) / len(lines)

    def _chosen(self, pick: str, choose: Callable[[list[Rewriting]], Rewriting]) -> Halves:
        first, second = self.rows[pick]
        return [choose(found).text for found in first], [choose(found).text for found in second]


def _energy(row: Rewriting) -> float:
    return row.energies["target"]


def _read_half(file: Path, sources: list[str]) -> _Chains:
    if not file.is_file():
        raise SystemExit(f"'{file}' not found")
    lines: _Chains = [[] for _ in sources]
    for text in read_lines(file):
        row = Rewriting(**json.loads(text))
        if not 0 <= row.line < len(sources) or row.source != sources[row.line]:
            raise SystemExit(f"'{file}' has a line {row.line} that is not the test's")
        lines[row.line].append(row)
    while not lines[-1]:  # the first lines alone were rewritten
        lines.pop()
    counts = {len(found) for found in lines}
    if len(counts) > 1 or 0 in counts:
        raise SystemExit(f"'{file}' has not the same number of chains for every line")
    return [sorted(found, key=lambda row: row.chain) for found in lines]


def our_names(folder: Path) -> list[str]:
    """Return the settings in a folder of rewritings."""
    files = sorted(folder.glob("*.lowest.0.jsonl"))
    return [file.name.removesuffix(".lowest.0.jsonl") for file in files]
