"""The page and the figure of the study: BLEU, energies and speed of each system."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from experiments.lib import style
from experiments.studies.lengths.systems import BASELINE, twin_energy
from maskov.energies.registry import weighted_terms
from maskov.translation import SAMPLED


def page(results: dict[str, Any]) -> str:
    """Return the table in Markdown."""
    lines = [
        "# Translation with sampled lengths",
        "",
        f"{results['sentences']} sentences of {results['set']}, {results['model']['name']}, "
        f"{results['device']}, {results['precision']}. Difference and p: sacreBLEU's paired "
        f"bootstrap against {BASELINE}. Energies are means over sentences. *Own target* is the "
        "energy that the chains of a row sample; *with lengths* "
        f"({SAMPLED.energy.replace('*', '·')}) and *with the twin* "
        f"({twin_energy(results['twin']['name']).replace('*', '·')}) are the two targets of "
        "sampled lengths, for all rows. The lowest of a column is bold.",
        "",
        "| | BLEU | difference | p | length | own target | with lengths | with the twin | E_norm "
        "| E_raw | sentences/s | passes |",
        "|---|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    columns = {name: _energies(row) for name, row in results["rows"].items()}
    least = [min(column[number] for column in columns.values()) for number in range(4)]
    for name, row in results["rows"].items():
        against = row.get("against_baseline")
        gap = f"{against['bleu']:+.2f} ± {against['standard_error']:.2f}" if against else ""
        chance = f"{against['p']:.3f}" if against else ""
        values = columns[name]
        shown = [
            f"**{value:.2f}**" if value == lowest else f"{value:.2f}"
            for value, lowest in zip(values, least, strict=True)
        ]
        own = "" if row["target"] is None else f"{mean_energy(row, row['target']):.2f}"
        passes = row["passes_per_sentence"]
        lines.append(
            f"| {name} | {row['bleu']:.2f} | {gap} | {chance} | {row['length_ratio']:.3f} | "
            f"{own} | {' | '.join(shown)} | {row['sentences_per_second']:.1f} | "
            f"{'' if passes is None else f'{passes:.0f}'} |"
        )
    picture = "![BLEU and E_norm of each system](lengths.svg)"
    return "\n".join([*lines, "", picture, "", "All numbers: [lengths.json](lengths.json).", ""])


def _energies(row: dict[str, Any]) -> list[float]:
    """Return mean energies that all rows have: both targets of sampled lengths, E_norm, E_raw."""
    targets = (SAMPLED.energy, twin_energy("twin"), "norm", "raw")
    return [mean_energy(row, target) for target in targets]


def mean_energy(row: dict[str, Any], target: str) -> float:
    """Return the mean over sentences of a sum of energies, by the row's means of its parts."""
    keys = {"norm": "energy_norm", "raw": "energy_raw", "predicted_length": "predicted_length"}
    total = 0.0
    for weight, name in weighted_terms(target):
        key = "autoregressive" if name.startswith("autoregressive(") else keys[name]
        total += weight * float(row[key])
    return total


def draw(results: dict[str, Any], path: Path) -> None:
    """Draw BLEU and E_norm of each system; bars are two standard errors of the difference."""
    rows = results["rows"]
    names = list(rows)[::-1]
    colours = [style.COLOURS["raw" if name.startswith("MH") else "deg"] for name in names]
    errors = [
        2 * rows[name].get("against_baseline", {"standard_error": 0.0})["standard_error"]
        for name in names
    ]
    with style.mpl.rc_context(style.STYLE):
        size = (13, 1.6 + 0.42 * len(names))
        figure, axes = style.plt.subplots(1, 2, figsize=size, sharey=True, layout="constrained")
        bleu = [rows[name]["bleu"] for name in names]
        for name, value, error, colour in zip(names, bleu, errors, colours, strict=True):
            axes[0].errorbar(value, name, xerr=error, fmt="o", color=colour, capsize=4)
        if BASELINE in rows:
            axes[0].axvline(rows[BASELINE]["bleu"], color="#222222", linewidth=1, linestyle=":")
        axes[0].set_title(f"BLEU, {results['set']}")
        axes[1].barh(names, [rows[name]["energy_norm"] for name in names], color=colours)
        axes[1].set_title("mean E_norm")
        for panel in axes:
            panel.grid(False, axis="y")
        style.write(figure, path)
