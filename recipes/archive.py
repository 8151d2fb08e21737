"""Pack a model folder into the archive that `maskov models fetch` unpacks.

python -m recipes.archive models/deroen-small --out deroen-small-1.tar

The same files give the same bytes: times, owners and order are fixed. The size and the SHA-256 that
it prints belong into `maskov.fetching`.
"""

from __future__ import annotations

import argparse
import hashlib
import tarfile
from pathlib import Path


def pack(folder: Path, out: Path) -> tuple[int, str]:
    """Write the archive of a folder, and return its size in bytes and its SHA-256."""
    with tarfile.open(out, "w:", format=tarfile.USTAR_FORMAT) as archive:
        for path in sorted(folder.iterdir()):
            member = tarfile.TarInfo(f"{folder.name}/{path.name}")
            member.size, member.mode = path.stat().st_size, 0o644
            with path.open("rb") as file:
                archive.addfile(member, file)
    with out.open("rb") as file:
        return out.stat().st_size, hashlib.file_digest(file, "sha256").hexdigest()


def main() -> None:
    """Run the command."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--out", type=Path, required=True)
    given = parser.parse_args()
    size, digest = pack(given.folder, given.out)
    print(f"{given.out}: {size} bytes, sha256 {digest}")


if __name__ == "__main__":
    main()
