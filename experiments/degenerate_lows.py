"""The appendix's observation: ill-formed sequences such as '.......' have low energies."""

from __future__ import annotations

from experiments import style
from experiments.lows import LowEnergies
from experiments.result import Document, Entry, Result
from experiments.settings import Setting
from experiments.style import Figure

_ENTRIES = (
    "held_out_raw", "period_raw", "held_out_norm", "period_norm", "held_out_perplexity",
    "period_perplexity", "repeated_below_raw", "repeated_below_norm",
)  # fmt: skip


def _cells(setting: Setting) -> dict[str, LowEnergies]:
    size = setting.text
    return {
        "lows": LowEnergies(
            tokens=size.search,
            texts=max(4, min(191, size.search // 4)),
            chains=min(16, size.chains),
            epochs=size.epochs,
            length=12 if setting.name == "quick" else 20,
        )
    }


def _draw(document: Document) -> Figure:
    figure, axes = style.panels(1, 6.4)
    cell = document["cells"].get("lows")
    if cell is None:
        return figure
    (one,) = axes
    for key, label, tint, marker in (
        ("repeated", "one token, repeated", style.OTHERS[2], "o"),
        ("held_out", "held-out text", style.COLOURS["norm"], "^"),
    ):
        raw, norm = zip(*cell["spread"][key], strict=True)
        one.scatter(raw, norm, s=26, color=tint, marker=marker, alpha=0.55, label=label)
    ends = [row for rows in cell["annealed"].values() for row in rows]
    one.scatter(
        [row["energy_raw"] for row in ends], [row["energy_norm"] for row in ends], s=34,
        color=style.OTHERS[0], marker="D", label="ends of annealed chains",
    )  # fmt: skip
    dots = cell["periods"][-1]
    one.plot(dots["energy_raw"], dots["energy_norm"], "*", markersize=20, color="#D55E00",
             label="“" + "." * 7 + "”")  # fmt: skip
    one.set_xlabel("E_raw a token (left is more probable)")
    one.set_ylabel("E_norm a token (down is more probable)")
    one.legend(fontsize=12)
    style.caption(figure, document)
    return figure


def _more(document: Document) -> str:
    cell = document["cells"].get("lows")
    if cell is None:
        return ""
    lines = []
    for title, rows in (
        ("Periods", cell["periods"]),
        ("The lowest of the repeated tokens", cell["repeated"]),
        ("Where chains annealed on E_raw end", cell["annealed"]["raw"]),
        ("Where chains annealed on E_norm end", cell["annealed"]["norm"]),
    ):
        lines += [f"## {title}", "", "| text | E_raw a token | E_norm a token | judge perplexity |"]
        lines.append("|---|---|---|---|")
        lines += [
            f"| `{row['text']}` | {row['energy_raw']:.2f} | {row['energy_norm']:.3f} | "
            f"{row['perplexity']:.1f} |"
            for row in rows
        ]
        lines.append("")
    return "\n".join(lines)


RESULT = Result(
    name="degenerate-lows",
    title="Ill-formed sequences of low energy",
    cells=_cells,
    entries=lambda setting: [Entry(name, "search", "value", "lows") for name in _ENTRIES],
    draw=_draw,
    notes=(
        "Errors are over held-out sentences, or over repeated tokens.",
        "The paper names sequences of periods and gives no numbers. All energies are a token, so "
        "that "
        "lengths compare.",
        "The annealed chains use delayed acceptance: where they end counts, not how often they "
        "move.",
    ),
    more=_more,
)
