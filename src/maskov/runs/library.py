"""What a run that started from FASTA leaves beside its samples: a library to order or to screen.

    samples.fa       every sample, called PARENT|CHAIN, or PARENT|CHAIN|EPOCH if several are kept;
                     what follows the first word of a parent's name follows that
    mutations.csv    one line a sample: energies, and the mutations of its parent (fixed lengths)

Both are made from `samples.jsonl` when the run ends, and are made again by `resume` if they are
gone.
"""

from __future__ import annotations

import csv
import io

from maskov.fasta import Record, letter, numbered, to_fasta
from maskov.runs.files import explained, write_atomically
from maskov.runs.folder import RunFolder
from maskov.runs.sample import Sample

FASTA, TABLE = "samples.fa", "mutations.csv"
_COLUMNS = ("sample", "parent", "chain", "epoch", "count", "mutations", "energy_raw", "energy_norm")


def write_library(folder: RunFolder, anew: bool = True) -> None:
    """Write the sequences of a run that started from FASTA, and their mutations.

    Unless `anew`, a library that is there is left as it is.
    """
    if folder.manifest.inputs.names is None or (not anew and (folder.path / FASTA).exists()):
        return
    samples, several = folder.samples(), bool(folder.manifest.config.thin)
    with explained(folder.path):
        records = to_fasta(record_of(sample, several) for sample in samples)
        write_atomically(folder.path / FASTA, records.encode("utf-8", "replace"))
        if any(sample.mutations is not None for sample in samples):
            table = mutation_table(samples, several).encode("utf-8", "replace")
            write_atomically(folder.path / TABLE, table)


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
