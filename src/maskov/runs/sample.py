"""One sample, as it is stored, printed and handed to Python; and libraries of them.

A run that started from FASTA leaves a library beside its samples, to order or to screen:

    samples.fa       every sample, called PARENT|CHAIN, or PARENT|CHAIN|EPOCH if several are kept;
                     what follows the first word of a parent's name follows that
    mutations.csv    one line a sample: energies, and the mutations of its parent (fixed lengths)

Both are made from `samples.jsonl` when the run ends, and are made again by `resume` if they are
gone.
"""

from __future__ import annotations

import csv
import io
import json
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING

from maskov.fasta import Record, letter, numbered, to_fasta
from maskov.runs.files import explained, write_atomically

if TYPE_CHECKING:
    from maskov.runs.store import Store

FASTA, TABLE = "samples.fa", "mutations.csv"
_COLUMNS = ("sample", "parent", "chain", "epoch", "count", "mutations", "energy_raw", "energy_norm")


@dataclass(frozen=True)
class Sample:
    """A sequence that a chain held at the end of an epoch, with both energies.

    `ids` are the content tokens and are what the energies belong to: decoding them and
    tokenising the text again may give others. `template` is the line of the user's input the
    chain belongs to, 0 where there was none. `energies` are, where the energy has experts, those
    of the `target` and of each expert by name. Of chains that started from FASTA, `name` is the
    parent's and `mutations`, where lengths are fixed, are the differences to it, such as S31R.
    Samples of populations have the number of theirs, their weight in it, and which of its first
    particles they descend from.
    """

    chain: int
    epoch: int
    text: str
    tokens: list[str]
    ids: list[int]
    energy_raw: float
    energy_norm: float
    template: int = 0
    energies: dict[str, float] = field(default_factory=dict)
    name: str | None = None
    mutations: list[str] | None = None
    population: int | None = None
    weight: float | None = None
    ancestor: int | None = None

    def to_json(self) -> str:
        """Return the sample as one line of JSON."""
        data = asdict(self)
        if not self.energies:
            del data["energies"]
        for name in ("name", "mutations", "population", "weight", "ancestor"):
            if data[name] is None:
                del data[name]
        return json.dumps(data, ensure_ascii=False)


def write_library(store: Store, anew: bool = True) -> None:
    """Write the sequences of a run that started from FASTA, and their mutations.

    Unless `anew`, a library that is there is left as it is.
    """
    if store.manifest.inputs.names is None or (not anew and (store.path / FASTA).exists()):
        return
    samples, several = store.samples(), bool(store.manifest.config.thin)
    with explained(store.path):
        records = to_fasta(record_of(sample, several) for sample in samples)
        write_atomically(store.path / FASTA, records.encode("utf-8", "replace"))
        if any(sample.mutations is not None for sample in samples):
            table = mutation_table(samples, several).encode("utf-8", "replace")
            write_atomically(store.path / TABLE, table)


def record_of(sample: Sample, several: bool) -> Record:
    """Return a sample as a record; `several` says that chains have more than one."""
    numbers = (sample.chain, sample.epoch) if several else (sample.chain,)
    name = numbered(str(sample.name), *numbers)
    return Record(name, "".join(map(letter, sample.tokens)))


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
