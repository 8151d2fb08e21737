"""Section 2.1: conditionals that fit no joint, and what degenerate Gibbs makes of them."""

from __future__ import annotations

from experiments import paper, style
from experiments.laws import Laws
from experiments.quantities import ORDERS
from experiments.result import Document, Entry, Result
from experiments.style import Figure


def _entries(setting: object) -> list[Entry]:
    printed = {
        "ratio_first": paper.COUNTEREXAMPLE["first over second"],
        "ratio_second": paper.COUNTEREXAMPLE["second over first"],
        "odds_first": None,
        "odds_second": None,
        "mh_invariance_error": None,
        "deg_invariance_error": None,
    }
    entries = [Entry(name, "exact", "value", "laws", value) for name, value in printed.items()]
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
        places = [place + (index - 1) * 0.27 for place in range(len(law))]
        axes[0].bar(places, list(law.values()), 0.25, color=style.COLOURS[series], label=label)
    axes[0].set_xticks(range(4), list(shown["raw"][1]))
    axes[0].set_title("Targets, and what Gibbs visits left to right")
    axes[0].set_ylabel("probability")
    rules = {order: cell["laws"][f"deg, {order}"] for order in ORDERS}
    for index, (order, law) in enumerate(rules.items()):
        places = [place + (index - 1) * 0.27 for place in range(len(law))]
        axes[1].bar(places, list(law.values()), 0.25, color=style.OTHERS[index], label=order)
    axes[1].set_xticks(range(4), list(rules[ORDERS[0]]))
    axes[1].set_title("Degenerate Gibbs: the order decides the law")
    for one in axes:
        one.grid(False, axis="x")
        one.legend(fontsize=11)
    style.caption(figure, document)
    return figure


RESULT = Result(
    name="counterexample",
    title="Conditionals that fit no joint distribution",
    cells=lambda setting: {"laws": Laws()},
    entries=_entries,
    draw=_draw,
    notes=(
        "Two tokens, two positions: everything is enumerated with the kernels' own code.",
        "A joint fixes the odds ratio p(aa)p(bb)/(p(ab)p(ba)), and either conditional gives it; "
        "the "
        "two conditionals disagree by a factor of 9801, so that no joint has both.",
        "Distances are total variation between the stationary law of a sweep and a target. Both "
        "energies have the same distribution here, since the table holds log-probabilities.",
        "Swept right to left, degenerate Gibbs happens to hit the target, because the second "
        "conditional is uniform: the order in which positions are visited decides its law.",
    ),
)
