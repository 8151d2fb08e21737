"""Draw results of `python -m benchmarks samplers` as SVG.

    python -m benchmarks plot results/bench/side-by-side-*.json results/bench/scaling-*.json

Bars show the rows of one file, curves the points of a grid. Figures lie next to their files.
"""

import argparse
import json
from collections.abc import Sequence
from pathlib import Path

import matplotlib as mpl
from experiments.lib.style import OTHERS, STYLE
from matplotlib import pyplot as plt

SPEEDS = {
    "novel_per_second": "novel moves per second",
    "passes_per_second": "masked passes per second",
    "novel_per_pass": "novel moves per masked pass",
    "share_of_ceiling": "share of the matrix-product ceiling",
}


def draw(file: Path) -> Path:
    """Draw one file; return the path of the figure."""
    results = json.loads(file.read_text(encoding="utf-8"))
    rows = results["points" if results["kind"] == "scaling" else "rows"]
    figure, panels = plt.subplots(1, len(SPEEDS), figsize=(20, 4.5), layout="constrained")
    for axes, (key, label) in zip(panels, SPEEDS.items(), strict=True):
        values = [row[key] or 0.0 for row in rows]
        if results["kind"] == "scaling":
            axes.plot([row["value"] for row in rows], values, color=OTHERS[4], marker="o")
            axes.set_xlabel(results["over"])
            axes.set_yscale("linear" if key == "share_of_ceiling" else "log")
        else:
            bars = axes.bar([row["name"].replace(" ", "\n") for row in rows], values, color=OTHERS)
            axes.bar_label(bars, [f"{value:.3g}" for value in values])
        axes.set_title(label)
    options, machine = results["options"], results["machine"]
    shown = [
        f"{name} {options[name]}"
        for name in ("model", "precision", "energy", "chains", "length")
        if name != results.get("over")
    ]
    figure.suptitle(" · ".join([*shown, machine.get("gpu", machine["processor"])]))
    path = file.with_suffix(".svg")
    figure.savefig(path, metadata={"Date": None})
    plt.close(figure)
    return path


def main(arguments: Sequence[str] | None = None) -> None:
    """Draw the given files."""
    made = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    made.add_argument("files", nargs="+", type=Path, help="JSON files of `samplers`")
    with mpl.rc_context(STYLE):  # type: ignore[arg-type]
        for file in made.parse_args(arguments).files:
            print(draw(file))
