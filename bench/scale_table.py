"""Put the results of bench/scale.py into docs/scaling.md, between its two marks.

python bench/scale_table.py results/bench/scale-cpu.json
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

PAGE = Path(__file__).parents[1] / "docs" / "scaling.md"
BEGIN, END = "<!-- measured: begin -->", "<!-- measured: end -->"


def tables(found: dict[str, Any], name: str) -> str:
    """Return the results as Markdown; parts that were not measured are left out."""
    machine, options = found["machine"], found["options"]
    lines = [
        f"`{name}`: {machine['processor']}, {machine['cores']} cores; {options['model']}, "
        f"{options['chains']} chains of length {options['length']}, {options['epochs']} epochs, "
        f"groups of {options['resident']}; the least of {options['repeat']} times.",
    ]
    if "workers" in found:
        rows = found["workers"]["rows"] | found.get("ray", {}).get("rows", {})
        lines += ["", "| | seconds | passes/s | against one process on as many cores |"]
        lines += ["|---|---|---|---|"]
        for way, row in rows.items():
            count = "".join(sign for sign in way if sign.isdigit())
            beside = rows.get(f"one process, {count} threads", row)
            more = row["seconds"] / beside["seconds"] - 1
            told = "" if beside is row else f"{more:+.1%}"
            lines.append(
                f"| {way} | {row['seconds']:.1f} | {row['passes_per_second']:.0f} | {told} |"
            )
        same = {row["samples"] for row in rows.values() if row["threads"] == 1}
        lines += ["", f"Different samples among all rows of one thread a process: {len(same) - 1}."]
    if "checkpoints" in found:
        part = found["checkpoints"]
        lines += [
            "",
            f"A checkpoint of a group takes {part['seconds_each'] * 1000:.1f} ms, which is "
            f"{part['share_at_interval']:.3%} of the 60 seconds between two of them; all "
            f"{part['checkpoints']} of this run, traces forced to disk included, took "
            f"{part['seconds_of_checkpoints'] * 1000:.1f} ms, {part['share_of_run']:.2%} of it.",
        ]
    if "wire" in found:
        part = found["wire"]
        lines += [
            "",
            f"A group of {part['mib']:.0f} MiB is packed in {part['pack']:.2f} s and unpacked in "
            f"{part['unpack']:.2f} s, by one core.",
        ]
    if "resume" in found:
        part = found["resume"]
        lines += [
            "",
            f"`resume` moves chains {part['sampling']:.2f} s after the model was loaded, which "
            f"took {part['load']:.2f} s.",
        ]
    if "load" in found:
        lines += [
            "",
            "| chains | groups of | seconds | MiB before | first epoch | last | peak |",
        ]
        lines += ["|---|---|---|---|---|---|---|"]
        for row in found["load"]["runs"].values():
            by = row["mib_by_epoch"]
            lines.append(
                f"| {row['chains']:,} | {row['group']:,} | {row['seconds']:.0f} | "
                f"{row['mib_before']:.0f} | {by[0]:.0f} | {by[-1]:.0f} | {row['mib_peak']:.0f} |"
            )
    return "\n".join(lines)


def main() -> None:
    """Write the page anew."""
    files = [Path(name) for name in sys.argv[1:]]
    parts = [tables(json.loads(file.read_text()), file.name) for file in files]
    text = PAGE.read_text(encoding="utf-8")
    before, _, rest = text.partition(BEGIN)
    _, _, after = rest.partition(END)
    body = "\n\n".join(parts)
    PAGE.write_text(f"{before}{BEGIN}\n{body}\n{END}{after}", encoding="utf-8")


if __name__ == "__main__":
    main()
