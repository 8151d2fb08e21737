"""The figure of the comparison: accuracy against self-BLEU as the weights of the energy vary."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from experiments import style
from experiments.control.scoring import Scores

OURS, CHOSEN = "#0072B2", "#D55E00"
ASKED, WANTED = (55.4, 90.0), (63.2, 93.6)  # self-BLEU and accuracy at least
# Where the name of a published system is written, in points from its mark; others: to the right.
_OFFSETS: dict[str, tuple[float, float, str]] = {
    "style-transformer-multi": (0, -16, "left"),
    "style-transformer-cond": (0, -16, "right"),
    "mix-and-match": (-9, -12, "right"),
    "delete-and-retrieve": (-9, 4, "right"),
    "delete-only": (-9, -10, "right"),
    "human reference": (9, -4, "left"),
    "source": (-9, 4, "right"),
}


@dataclass(frozen=True)
class Point:
    """A setting of ours: its scores, and the series whose points differ in weights alone."""

    scores: Scores
    series: str
    chosen: bool = False


def draw(published: Mapping[str, Scores], ours: Mapping[str, Point], stem: Path) -> None:
    """Write the figure as SVG and PNG."""
    with style.plt.rc_context(style.STYLE):
        figure, (axes,) = style.panels(1, height=7.0, width=11.0)
        for (x, y), shade, label in ((ASKED, "#E8F1F8", "asked"), (WANTED, "#CFE3F1", "wanted")):
            axes.fill_between([x, 101], y, 101, color=shade, linewidth=0, zorder=0)
            axes.text(99.5, y + 0.6, label, color="#5C87A8", ha="right", fontsize=11)
        for name, found in published.items():
            x, y = _place(found)
            own = name in ("source", "human reference")
            axes.plot(x, y, "s" if own else "o", color="#999999" if own else "#5C5C5C",
                      markerfacecolor="white", markeredgewidth=1.6)  # fmt: skip
            dx, dy, side = _OFFSETS.get(name, (9, -4, "left"))
            axes.annotate(name, (x, y), (dx, dy), textcoords="offset points", ha=side,
                          fontsize=11, color="#5C5C5C")  # fmt: skip
        groups: dict[str, list[Point]] = {}
        for point in ours.values():
            groups.setdefault(point.series, []).append(point)
        for number, (series, points) in enumerate(groups.items()):
            places = sorted(_place(point.scores) for point in points)
            colour = OURS if number == 0 else style.OTHERS[number % len(style.OTHERS)]
            axes.plot([x for x, _ in places], [y for _, y in places], "o-", color=colour,
                      label=f"maskov, {series}" if series else "maskov")  # fmt: skip
        for point in ours.values():
            if point.chosen:
                axes.plot(*_place(point.scores), "*", color=CHOSEN, markersize=20, zorder=5,
                          label="maskov, the setting chosen on held-out lines")  # fmt: skip
        axes.set_xlim(0, 101)
        axes.set_ylim(0, 101)
        axes.set_xlabel("self-BLEU: how much of the source is kept")
        axes.set_ylabel("accuracy of the published evaluator, %")
        figure.suptitle("Sentiment rewriting, 1,000 Yelp sentences\n", fontsize=17,
                        fontweight="bold", x=0.01, ha="left")  # fmt: skip
        style.legend(figure)
        style.save(figure, stem)


def _place(scores: Scores) -> tuple[float, float]:
    return scores.self_bleu.value, scores.accuracy.value
