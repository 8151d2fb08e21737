"""Write the results of `maskov.benchmarks.overhead` into docs/reference/scaling.md.

They stand between the two marks of that page:

python -m maskov.benchmarks.overhead_table results/bench/scale-cpu.json
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

BEGIN, END = "<!-- measured: begin -->", "<!-- measured: end -->"


def tables(results: dict[str, Any], name: str) -> str:
    """Return the measured parts as Markdown."""
    machine, options = results["machine"], results["options"]
    lines = [
        f"`{name}`: {machine['processor']}, {machine['cores']} cores; {options['model']}, "
        f"{options['chains']} chains of length {options['length']}, {options['epochs']} epochs, "
        f"groups of {options['resident']}; the fastest of {options['repeat']} runs.",
    ]
    if "workers" in results:
        rows = results["workers"]["rows"] | results.get("ray", {}).get("rows", {})
        lines += ["", "| | seconds | passes/s | against one process with as many threads |"]
        lines += ["|---|---|---|---|"]
        for way, row in rows.items():
            count = "".join(character for character in way if character.isdigit())
            baseline = rows.get(f"one process, {count} threads", row)
            more = row["seconds"] / baseline["seconds"] - 1
            change = "" if baseline is row else f"{more:+.1%}"
            lines.append(
                f"| {way} | {row['seconds']:.1f} | {row['passes_per_second']:.0f} | {change} |"
            )
        hashes = {row["samples"] for row in rows.values() if row["threads"] == 1}
        samples = "the same samples" if len(hashes) == 1 else f"{len(hashes)} different samples"
        lines += ["", f"The rows with one thread per process give {samples}."]
    if "checkpoints" in results:
        part = results["checkpoints"]
        lines += [
            "",
            f"A checkpoint of a group takes {part['seconds_each'] * 1000:.1f} ms, "
            f"{part['share_at_interval']:.3%} of the 60 seconds between two checkpoints; all "
            f"{part['checkpoints']} of this run, including flushing the traces to disk, took "
            f"{part['seconds_of_checkpoints'] * 1000:.1f} ms, "
            f"{part['share_of_run']:.2%} of the run.",
        ]
    if "wire" in results:
        part = results["wire"]
        lines += [
            "",
            f"Packing a group of {part['mib']:.0f} MiB takes {part['pack']:.2f} s and unpacking it "
            f"{part['unpack']:.2f} s, on one core.",
        ]
    if "resume" in results:
        part = results["resume"]
        lines += [
            "",
            f"`resume` samples {part['sampling']:.2f} s after the model is loaded, which takes "
            f"{part['load']:.2f} s.",
        ]
    if "load" in results:
        lines += [
            "",
            "| chains | groups of | seconds | MiB before | first epoch | last | peak |",
        ]
        lines += ["|---|---|---|---|---|---|---|"]
        for row in results["load"]["runs"].values():
            by = row["mib_by_epoch"]
            lines.append(
                f"| {row['chains']:,} | {row['group']:,} | {row['seconds']:.0f} | "
                f"{row['mib_before']:.0f} | {by[0]:.0f} | {by[-1]:.0f} | {row['mib_peak']:.0f} |"
            )
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> None:
    """Write the page."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("files", nargs="+", type=Path, help="JSON files of the benchmark")
    parser.add_argument("--page", type=Path, default=Path("docs/reference/scaling.md"))
    options = parser.parse_args(arguments)
    parts = [tables(json.loads(file.read_text()), file.name) for file in options.files]
    text = options.page.read_text(encoding="utf-8")
    before, _, rest = text.partition(BEGIN)
    _, _, after = rest.partition(END)
    body = "\n\n".join(parts)
    options.page.write_text(f"{before}{BEGIN}\n{body}\n{END}{after}", encoding="utf-8")


if __name__ == "__main__":
    main()
