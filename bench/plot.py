"""Draw benchmarks: `python bench/plot.py FILES... --out DIR`, as SVG and PNG.

Files of `maskov bench --out` become bar charts, one each; files of `maskov.benchmarks.scaling`
become curves, those over the same quantity together. It needs matplotlib (the extra `bench`).
"""

from __future__ import annotations

import argparse
import json
import math
import sys
from collections import defaultdict
from pathlib import Path
from typing import Any

import matplotlib as mpl

mpl.use("Agg")

from matplotlib import pyplot as plt
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import NullFormatter

# Okabe and Ito's colours, which colour-blind readers tell apart; markers differ as well.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
MARKERS = ("o", "s", "^", "D", "v", "P", "X")
STYLE = {
    "font.size": 14,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": "#DDDDDD",
    "lines.linewidth": 2.5,
    "lines.markersize": 9,
    "savefig.dpi": 200,
    "svg.hashsalt": "maskov",
}
ALONG = {
    "chains": "chains",
    "length": "length (tokens)",
    "size": "model size (millions of parameters)",
}
SPEEDS = {
    "novel_per_second": "novel moves per second",
    "passes_per_second": "masked passes per second",
    "share_of_ceiling": "share of the matrix-product ceiling",
}


def draw(files: list[Path], out: Path) -> list[Path]:
    """Draw every file; return the pictures."""
    curves: dict[str, list[dict[str, Any]]] = defaultdict(list)
    pictures: list[Path] = []
    out.mkdir(parents=True, exist_ok=True)
    with mpl.rc_context(STYLE):
        for file in files:
            found = json.loads(file.read_text(encoding="utf-8"))
            if found["kind"] == "scaling":
                curves[found["over"]].append(found)
                continue
            if found["rows"]:
                pictures += save(samplers(found), out / f"{file.stem}-samplers")
            if found["score"] is not None:
                pictures += save(scorers(found), out / f"{file.stem}-scorers")
        for over, group in curves.items():
            pictures += save(scaling(over, group), out / f"scaling-{over}")
    return pictures


def samplers(found: dict[str, Any]) -> Figure:
    """Draw what counts, novel moves, by time and by masked pass."""
    rows = found["rows"]
    figure, (left, right) = plt.subplots(
        1, 2, figsize=(12, 1.6 + 0.6 * len(rows)), sharey=True, layout="constrained"
    )
    for axes, key, label in (
        (left, "novel_per_second", "novel moves per second"),
        (right, "novel_per_pass", "novel moves per masked pass"),
    ):
        values = [row[key] or 0.0 for row in rows]
        times = [row["ratios"].get("a", {}).get(key) for row in rows]
        _bars(axes, [row["name"] for row in rows], values, times)
        axes.set_xlabel(f"{label} (log scale)")
    figure.suptitle(" · ".join(_told(found)), fontsize=13)
    return figure


def scorers(found: dict[str, Any]) -> Figure:
    """Draw how many sentences each scorer scores."""
    rows = [row for row in found["score"]["rows"] if "missing" not in row]
    figure, axes = plt.subplots(figsize=(9, 1.6 + 0.6 * len(rows)), layout="constrained")
    speeds = [row["sentences_per_second"] for row in rows]
    _bars(axes, [row["name"] for row in rows], speeds, [speed / min(speeds) for speed in speeds])
    axes.set_xlabel("sentences scored per second (E_norm; log scale)")
    options = found["options"]
    told = (options["model"], options["precision"], _device(found["machine"]))
    figure.suptitle(" · ".join(told), fontsize=13)
    return figure


def scaling(over: str, group: list[dict[str, Any]]) -> Figure:
    """Draw speeds along one quantity, a curve for each file."""
    figure, panels = plt.subplots(1, len(SPEEDS), figsize=(17, 5.5), layout="constrained")
    told = [_told(found) for found in group]
    common = [part for part in told[0] if all(part in others for others in told)]
    for axes, (key, label) in zip(panels, SPEEDS.items(), strict=True):
        for index, found in enumerate(group):
            style = index % len(COLOURS)
            points = [point for point in found["points"] if point[key] is not None]
            axes.plot(
                [_along(over, point) for point in points],
                [point[key] for point in points],
                color=COLOURS[style],
                marker=MARKERS[style],
                label=", ".join(part for part in told[index] if part not in common),
            )
        axes.set_xscale("log", base=2)
        measured = sorted({_along(over, point) for found in group for point in found["points"]})
        axes.set_xticks(measured, [f"{value:.3g}" for value in measured])
        axes.xaxis.set_minor_formatter(NullFormatter())
        axes.set_xlabel(ALONG[over])
        axes.set_ylabel(label)
        if key == "share_of_ceiling":
            axes.set_ylim(0, 1)
        else:
            _whole_decades(axes)
    if len(group) > 1:
        handles, labels = panels[0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside lower center", frameon=False)
    figure.suptitle(" · ".join(common), fontsize=13)
    return figure


def save(figure: Figure, stem: Path) -> list[Path]:
    """Write a figure as SVG and PNG; without dates, so that the same data gives the same bytes."""
    written = []
    for kind in ("svg", "png"):
        path = stem.with_name(f"{stem.name}.{kind}")
        figure.savefig(path, metadata={"Date": None} if kind == "svg" else None)
        written.append(path)
    plt.close(figure)
    return written


def _bars(axes: Axes, names: list[str], values: list[float], times: list[float | None]) -> None:
    """Draw bars from the top down, on a log scale, with their values beside them."""
    colours = [COLOURS[index % len(COLOURS)] for index in range(len(names))]
    shown = axes.barh(names, values, color=colours, height=0.65)
    labels = [
        f" {_short(value)}" + ("" if time is None else f"  ({_short(time)}×)")
        for value, time in zip(values, times, strict=True)
    ]
    axes.bar_label(shown, labels, padding=2)
    positive = [value for value in values if value > 0]
    if positive:
        axes.set_xscale("log")
        # Bars on a log scale have no natural foot; a tenth of the smallest leaves all in sight.
        axes.set_xlim(min(positive) / 10, max(positive) * 30)
    if not axes.yaxis_inverted():
        axes.invert_yaxis()
    axes.grid(False, axis="y")


def _whole_decades(axes: Axes) -> None:
    """Let a log scale reach from one power of ten to another, so that it can be read."""
    values = [float(y) for line in axes.lines for y in line.get_ydata() if y > 0]  # type: ignore
    if not values:
        return
    least, most = math.floor(math.log10(min(values))), math.ceil(math.log10(max(values)))
    axes.set_yscale("log")
    axes.set_ylim(10**least, 10 ** max(most, least + 1))
    axes.yaxis.set_major_formatter("{x:,g}")
    axes.yaxis.set_minor_formatter(NullFormatter())


def _along(over: str, point: dict[str, Any]) -> float:
    return point["model"]["parameters"] / 1e6 if over == "size" else float(point["value"])


def _device(machine: dict[str, Any]) -> str:
    if "gpu" in machine:
        return str(machine["gpu"])
    threads = machine["threads"]
    return f"{machine['processor']}, {threads} thread{'s' if threads > 1 else ''}"


def _told(found: dict[str, Any]) -> list[str]:
    """Say what a benchmark was of, but for what its curve runs along."""
    options, over = found["options"], found.get("over")
    shortest, longest = options["length"]
    length = f"length {shortest}" if shortest == longest else f"{shortest}–{longest} tokens"
    return [
        *([found["variant"]] if "variant" in found else []),
        *([options["model"]] if over != "size" else []),
        *([length] if over != "length" else []),
        *([f"{options['chains']} chains"] if over != "chains" else []),
        f"E_{options['energy']}",
        options["precision"],
        _device(found["machine"]),
    ]


def main() -> None:
    """Read the command line and draw."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("files", nargs="+", type=Path, help="JSON files of benchmarks")
    parser.add_argument("--out", type=Path, required=True, help="folder for the pictures")
    given = parser.parse_args()
    try:
        pictures = draw(given.files, given.out)
    except OSError as error:
        sys.exit(f"plot: {error}")
    except (ValueError, KeyError, TypeError) as error:
        sys.exit(f"plot: not a benchmark's file ({error!r})")
    for picture in pictures:
        print(picture)


def _short(value: float) -> str:
    """Write three digits, and large numbers in full."""
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


if __name__ == "__main__":
    main()
