"""The page of the study: BLEU, energies and speed of each system."""

from __future__ import annotations

from typing import Any

import numpy as np

from experiments.studies.lengths.systems import BASELINE, twin_energy
from maskov.energies.registry import weighted_terms
from maskov.translation.methods import SAMPLED


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
    return "\n".join([*lines, "", "All numbers: [lengths.json](lengths.json).", ""])


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
        total += weight * float(np.mean(row[key]))
    return total
