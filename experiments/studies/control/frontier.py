"""The figure of the comparison: accuracy against self-BLEU as the weights of the energy vary."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from matplotlib.axes import Axes

from experiments.lib import style
from experiments.studies.control.scoring import Scores

OURS, CHOSEN = "#0072B2", "#D55E00"
ASKED, WANTED = (55.4, 90.0), (63.2, 93.6)  # self-BLEU and accuracy at least
_CLOSE = (40.0, 80.0, 75.0, 100.0)  # what the second panel shows: x from, x to, y from, y to
# Where the name of a published system is written, in points from its mark; others: to the right.
_OFFSETS: dict[str, tuple[float, float, str]] = {
    "style-transformer-cond": (-9, 4, "right"),
    "mix-and-match": (-9, -10, "right"),
    "template": (9, -10, "left"),
    "retrieval": (-4, -18, "left"),
    "delete-and-retrieve": (-9, 4, "right"),
    "delete-only": (-9, -10, "right"),
    "source": (-9, 4, "right"),
}


@dataclass(frozen=True)
class Point:
    """A setting of ours: its scores, and the series whose points differ in weights alone."""

    scores: Scores
    series: str
    chosen: bool = False


def draw(published: Mapping[str, Scores], ours: Mapping[str, Point], stem: Path) -> None:
    """Write the figure as SVG and PNG: all systems, and the corner that matters."""
    with style.plt.rc_context(style.STYLE):
        figure, (whole, close) = style.panels(2, height=6.6, width=7.6)
        for axes in (whole, close):
            _aims(axes)
            _published(axes, published, close=axes is close)
            _ours(axes, ours)
            axes.set_xlabel("self-BLEU: how much of the source is kept")
        whole.set(xlim=(0, 101), ylim=(0, 101), title="all systems")
        whole.set_ylabel("accuracy of the published evaluator, %")
        close.set(xlim=_CLOSE[:2], ylim=_CLOSE[2:], title="the upper right")
        title = "Sentiment rewriting, 1,000 Yelp sentences\n"
        figure.suptitle(title, fontsize=17, fontweight="bold", x=0.01, ha="left")
        style.legend(figure)
        style.save(figure, stem)


def _aims(axes: Axes) -> None:
    for (x, y), shade, label in ((ASKED, "#E8F1F8", "asked"), (WANTED, "#CFE3F1", "wanted")):
        axes.fill_between([x, 101], y, 101, color=shade, linewidth=0, zorder=0, label=label)


def _published(axes: Axes, published: Mapping[str, Scores], close: bool) -> None:
    for name, scores in published.items():
        x, y = _place(scores)
        inside = _CLOSE[0] <= x <= _CLOSE[1] and _CLOSE[2] <= y <= _CLOSE[3]
        if close and not inside:
            continue
        end = name in ("source", "human reference")
        axes.plot(
            x, y, "s" if end else "o", color="#5C5C5C", markerfacecolor="white", markeredgewidth=1.6
        )  # fmt: skip
        if inside and not close:
            continue  # named in the other panel
        dx, dy, side = _OFFSETS.get(name, (9, -4, "left"))
        axes.annotate(
            name, (x, y), (dx, dy), textcoords="offset points", ha=side, fontsize=11,
            color="#5C5C5C",
        )  # fmt: skip


def _ours(axes: Axes, ours: Mapping[str, Point]) -> None:
    groups: dict[str, list[Point]] = {}
    for point in ours.values():
        groups.setdefault(point.series, []).append(point)
    for number, (series, points) in enumerate(groups.items()):
        places = sorted(_place(point.scores) for point in points)
        colour = OURS if number == 0 else style.OTHERS[number % len(style.OTHERS)]
        label = f"maskov, {series}" if series else "maskov, weights vary"
        axes.plot([x for x, _ in places], [y for _, y in places], "o-", color=colour, label=label)
    for point in ours.values():
        if point.chosen:
            axes.plot(
                *_place(point.scores), "*", color=CHOSEN, markersize=18, zorder=5,
                linestyle="none", label="maskov, chosen",
            )  # fmt: skip


def _place(scores: Scores) -> tuple[float, float]:
    return scores.self_bleu.value, scores.accuracy.value
