"""Draw benchmark results as SVG and PNG: `python -m maskov.benchmarks.plot FILES... --out DIR`.

Files of `maskov bench --out` become bar charts. Files of `maskov.benchmarks.scaling` become curves,
one figure per quantity. Needs matplotlib (the extra `bench`).
"""

from __future__ import annotations

import argparse
import json
import math
import sys
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import matplotlib as mpl

mpl.use("Agg")

from matplotlib import pyplot as plt
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import NullFormatter

# Okabe and Ito's colours, which colour-blind readers can tell apart; markers differ, too.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
MARKERS = ("o", "s", "^", "D", "v", "P", "X")
STYLE: dict[Any, Any] = {
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
AXIS_LABELS = {
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
    """Draw every file; return the paths of the figures."""
    curves: dict[str, list[dict[str, Any]]] = defaultdict(list)
    figures: list[Path] = []
    out.mkdir(parents=True, exist_ok=True)
    with mpl.rc_context(STYLE):
        for file in files:
            results = json.loads(file.read_text(encoding="utf-8"))
            if results["kind"] == "scaling":
                curves[results["over"]].append(results)
                continue
            if results["rows"]:
                figures += save(samplers(results), out / f"{file.stem}-samplers")
            if results["score"] is not None:
                figures += save(scorers(results), out / f"{file.stem}-scorers")
        for over, group in curves.items():
            figures += save(scaling(over, group), out / f"scaling-{over}")
    return figures


def samplers(results: dict[str, Any]) -> Figure:
    """Draw novel moves per second and per masked pass."""
    rows = results["rows"]
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
    figure.suptitle(" · ".join(_describe(results)), fontsize=13)
    return figure


def scorers(results: dict[str, Any]) -> Figure:
    """Draw the sentences per second of each scorer."""
    rows = [row for row in results["score"]["rows"] if "missing" not in row]
    figure, axes = plt.subplots(figsize=(9, 1.6 + 0.6 * len(rows)), layout="constrained")
    speeds = [row["sentences_per_second"] for row in rows]
    _bars(axes, [row["name"] for row in rows], speeds, [speed / min(speeds) for speed in speeds])
    axes.set_xlabel("sentences scored per second (E_norm; log scale)")
    options = results["options"]
    description = (options["model"], options["precision"], _device(results["machine"]))
    figure.suptitle(" · ".join(description), fontsize=13)
    return figure


def scaling(over: str, group: list[dict[str, Any]]) -> Figure:
    """Draw speeds over one quantity, one curve per file."""
    figure, panels = plt.subplots(1, len(SPEEDS), figsize=(17, 5.5), layout="constrained")
    descriptions = [_describe(results) for results in group]
    common = [part for part in descriptions[0] if all(part in other for other in descriptions)]
    for axes, (key, label) in zip(panels, SPEEDS.items(), strict=True):
        for index, results in enumerate(group):
            color = index % len(COLOURS)
            points = [point for point in results["points"] if point[key] is not None]
            axes.plot(
                [_x_value(over, point) for point in points],
                [point[key] for point in points],
                color=COLOURS[color],
                marker=MARKERS[color],
                label=", ".join(part for part in descriptions[index] if part not in common),
            )
        axes.set_xscale("log", base=2)
        measured = sorted(
            {_x_value(over, point) for results in group for point in results["points"]}
        )
        axes.set_xticks(measured, [f"{value:.3g}" for value in measured])
        axes.xaxis.set_minor_formatter(NullFormatter())
        axes.set_xlabel(AXIS_LABELS[over])
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
    """Write a figure as SVG and PNG without dates, so the same data gives the same bytes."""
    written = []
    for kind in ("svg", "png"):
        path = stem.with_name(f"{stem.name}.{kind}")
        figure.savefig(path, metadata={"Date": None} if kind == "svg" else None)
        written.append(path)
    plt.close(figure)
    return written


def _bars(axes: Axes, names: list[str], values: list[float], times: list[float | None]) -> None:
    """Draw labelled horizontal bars on a log scale, the first on top."""
    colours = [COLOURS[index % len(COLOURS)] for index in range(len(names))]
    bars = axes.barh(names, values, color=colours, height=0.65)
    labels = [
        f" {_short(value)}" + ("" if time is None else f"  ({_short(time)}×)")
        for value, time in zip(values, times, strict=True)
    ]
    axes.bar_label(bars, labels, padding=2)
    positive = [value for value in values if value > 0]
    if positive:
        axes.set_xscale("log")
        # Bars on a log scale have no natural base; a tenth of the smallest keeps all visible.
        axes.set_xlim(min(positive) / 10, max(positive) * 30)
    if not axes.yaxis_inverted():
        axes.invert_yaxis()
    axes.grid(False, axis="y")


def _whole_decades(axes: Axes) -> None:
    """Extend a log scale to whole powers of ten."""
    values = [float(y) for line in axes.lines for y in line.get_ydata() if y > 0]  # type: ignore
    if not values:
        return
    least, most = math.floor(math.log10(min(values))), math.ceil(math.log10(max(values)))
    axes.set_yscale("log")
    axes.set_ylim(10**least, 10 ** max(most, least + 1))
    axes.yaxis.set_major_formatter("{x:,g}")
    axes.yaxis.set_minor_formatter(NullFormatter())


def _x_value(over: str, point: dict[str, Any]) -> float:
    return point["model"]["parameters"] / 1e6 if over == "size" else float(point["value"])


def _device(machine: dict[str, Any]) -> str:
    if "gpu" in machine:
        return str(machine["gpu"])
    threads = machine["threads"]
    return f"{machine['processor']}, {threads} thread{'s' if threads > 1 else ''}"


def _describe(results: dict[str, Any]) -> list[str]:
    """Return the options of a benchmark, except the one that its curve varies."""
    options, over = results["options"], results.get("over")
    shortest, longest = options["length"]
    length = f"length {shortest}" if shortest == longest else f"{shortest}–{longest} tokens"
    return [
        *([results["variant"]] if "variant" in results else []),
        *([options["model"]] if over != "size" else []),
        *([length] if over != "length" else []),
        *([f"{options['chains']} chains"] if over != "chains" else []),
        f"E_{options['energy']}",
        options["precision"],
        _device(results["machine"]),
    ]


def main(arguments: Sequence[str] | None = None) -> None:
    """Draw the given files."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("files", nargs="+", type=Path, help="JSON files of benchmarks")
    parser.add_argument("--out", type=Path, required=True, help="folder for the figures")
    given = parser.parse_args(arguments)
    try:
        pictures = draw(given.files, given.out)
    except OSError as error:
        sys.exit(f"plot: {error}")
    except (ValueError, KeyError, TypeError) as error:
        sys.exit(f"plot: not a benchmark file ({error!r})")
    for picture in pictures:
        print(picture)


def _short(value: float) -> str:
    """Format with three digits, or as a whole number from 100 on."""
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


if __name__ == "__main__":
    main()
