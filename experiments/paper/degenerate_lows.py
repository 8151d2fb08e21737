"""From the appendix: ill-formed sequences such as '.......' have low energies."""

from __future__ import annotations

from experiments.lib import style
from experiments.lib.result import Document, Entry, Result
from experiments.lib.settings import Setting
from experiments.lib.style import Figure
from experiments.paper.low_energy_search import LowEnergySearch

_ENTRIES = (
    "held_out_raw", "period_raw", "held_out_norm", "period_norm", "held_out_perplexity",
    "period_perplexity", "repeated_below_raw", "repeated_below_norm",
)  # fmt: skip


def _cells(setting: Setting) -> dict[str, LowEnergySearch]:
    size = setting.text
    return {
        "lows": LowEnergySearch(
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
    (panel,) = axes
    for key, label, color, marker in (
        ("repeated", "one token, repeated", style.OTHERS[2], "o"),
        ("held_out", "held-out text", style.COLOURS["norm"], "^"),
    ):
        raw, norm = zip(*cell["spread"][key], strict=True)
        panel.scatter(raw, norm, s=26, color=color, marker=marker, alpha=0.55, label=label)
    ends = [row for rows in cell["annealed"].values() for row in rows]
    panel.scatter(
        [row["energy_raw"] for row in ends], [row["energy_norm"] for row in ends], s=34,
        color=style.OTHERS[0], marker="D", label="ends of annealed chains",
    )  # fmt: skip
    periods = cell["periods"][-1]
    panel.plot(periods["energy_raw"], periods["energy_norm"], "*", markersize=20, color="#D55E00",
             label="“" + "." * 7 + "”")  # fmt: skip
    panel.set_xlabel("E_raw per token (left is more probable)")
    panel.set_ylabel("E_norm per token (down is more probable)")
    panel.legend(fontsize=12)
    style.caption(figure, document)
    return figure


def _extra_markdown(document: Document) -> str:
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
        lines += [
            f"## {title}",
            "",
            "| text | E_raw per token | E_norm per token | judge perplexity |",
        ]
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
    section="the appendix on limitations",
    cells=_cells,
    entries=lambda setting: [Entry(name, "search", "value", "lows") for name in _ENTRIES],
    draw=_draw,
    notes=(
        "Errors are over held-out sentences, or over repeated tokens.",
        "The paper names sequences of periods and gives no numbers. All energies are per token, so "
        "lengths compare.",
        "The annealed chains use delayed acceptance: only their final states matter, not how often "
        "they move.",
    ),
    extra_markdown=_extra_markdown,
    keep=("periods", "repeated", "annealed", "spread"),
)
