"""Carry the models from the GPU machine: one archive in parts of at most 15 MiB."""

from __future__ import annotations

import io
import tarfile
from pathlib import Path

PART = 15 * 2**20
STEM = "control.tar"


def pack(work: Path, out: Path) -> list[Path]:
    """Write WORK/models as OUT/control.tar.0, .1, ..."""
    out.mkdir(parents=True, exist_ok=True)
    archive = io.BytesIO()
    with tarfile.open(fileobj=archive, mode="w") as tar:
        tar.add(work / "models", arcname="models")
    data = archive.getvalue()
    files = []
    for number, begin in enumerate(range(0, len(data), PART)):
        files.append(out / f"{STEM}.{number}")
        files[-1].write_bytes(data[begin : begin + PART])
    print(f"{len(data):,} bytes in {len(files)} files under {out}")
    return files


def unpack(folder: Path, work: Path) -> None:
    """Join the parts in a folder and extract WORK/models."""
    files = sorted(folder.glob(f"{STEM}.*"), key=lambda file: int(file.suffix[1:]))
    if not files:
        raise SystemExit(f"'{folder}' has no {STEM}.0")
    archive = io.BytesIO(b"".join(file.read_bytes() for file in files))
    with tarfile.open(fileobj=archive) as tar:
        tar.extractall(work, filter="data")
    print(f"{work / 'models'}: {', '.join(sorted(x.name for x in (work / 'models').iterdir()))}")
