"""Section 2.1: conditionals of no joint distribution, and degenerate Gibbs on them."""

from __future__ import annotations

from experiments.lib import style
from experiments.lib.quantities import ORDERS
from experiments.lib.result import Document, Entry, Result
from experiments.lib.style import Figure
from experiments.paper import printed
from experiments.paper.exact_laws import ExactLaws


def _entries(setting: object) -> list[Entry]:
    papers = {
        "ratio_first": printed.COUNTEREXAMPLE["first over second"],
        "ratio_second": printed.COUNTEREXAMPLE["second over first"],
        "odds_first": None,
        "odds_second": None,
        "mh_invariance_error": None,
        "deg_invariance_error": None,
    }
    entries = [Entry(name, "exact", "value", "laws", value) for name, value in papers.items()]
    return entries + [
        Entry(f"variation_{energy}, {order}", "degenerate Gibbs", "value", "laws")
        for order in ORDERS
        for energy in ("raw", "norm")
    ]


def _draw(document: Document) -> Figure:
    figure, axes = style.panels(2)
    cell = document["cells"].get("laws")
    if cell is None:
        return figure
    shown = {
        "raw": ("exp(−E_raw)", cell["targets"]["raw"]),
        "norm": ("exp(−E_norm)", cell["targets"]["norm"]),
        "deg": ("degenerate Gibbs", cell["laws"]["deg, left to right"]),
    }
    for index, (series, (label, law)) in enumerate(shown.items()):
        positions = [x + (index - 1) * 0.27 for x in range(len(law))]
        axes[0].bar(positions, list(law.values()), 0.25, color=style.COLOURS[series], label=label)
    axes[0].set_xticks(range(4), list(shown["raw"][1]))
    axes[0].set_title("Targets, and what Gibbs visits left to right")
    axes[0].set_ylabel("probability")
    by_order = {order: cell["laws"][f"deg, {order}"] for order in ORDERS}
    for index, (order, law) in enumerate(by_order.items()):
        positions = [x + (index - 1) * 0.27 for x in range(len(law))]
        axes[1].bar(positions, list(law.values()), 0.25, color=style.OTHERS[index], label=order)
    axes[1].set_xticks(range(4), list(by_order[ORDERS[0]]))
    axes[1].set_title("Degenerate Gibbs: the order decides the law")
    for panel in axes:
        panel.grid(False, axis="x")
        panel.legend(fontsize=11)
    style.caption(figure, document)
    return figure


RESULT = Result(
    name="counterexample",
    title="Conditionals that fit no joint distribution",
    section="section 2.1 and the appendix on the counter-example",
    cells=lambda setting: {"laws": ExactLaws()},
    entries=_entries,
    draw=_draw,
    notes=(
        "Two tokens, two positions: all states are enumerated with the kernels' own code.",
        "Either conditional of a joint distribution gives its odds ratio p(aa)p(bb)/(p(ab)p(ba)); "
        "these two disagree by a factor of 9801, so no joint has both.",
        "Distances are total variation between the stationary distribution of a sweep and a "
        "target. Both energies have the same distribution here, because the table contains "
        "log-probabilities.",
        "Swept right to left, degenerate Gibbs happens to reach the target, because the second "
        "conditional is uniform: its stationary distribution depends on the order.",
    ),
    keep=("laws", "targets"),
)
