"""What `infill` prints: each distinct filled text, how often it was drawn, and its energy."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rich.table import Table

from maskov.cli.output import print_table, say

if TYPE_CHECKING:
    from maskov.models import MaskedModel
    from maskov.runs import Run

# Rows of the table for each template.
_SHOWN = 20
_TRACED = ("tokens", "lengths", "energy_raw", "energy_norm")


@dataclass(frozen=True)
class Fill:
    """A distinct text of a template: the draws that it is, their share, and its mean energies."""

    text: str
    count: int
    share: float
    energy_raw: float
    energy_norm: float


def fills(run: Run, model: MaskedModel) -> dict[int, list[Fill]]:
    """Return the fills of each template, the most frequent first."""
    from maskov.ui.detokenise import detokenised  # which imports torch

    drawn: dict[int, dict[tuple[int, ...], list[tuple[float, float]]]] = defaultdict(
        lambda: defaultdict(list)
    )
    for template, ids, raw, norm in _draws(run):
        drawn[template][ids].append((raw, norm))
    found = {}
    for template, texts in sorted(drawn.items()):
        total = sum(map(len, texts.values()))
        rows = [
            Fill(
                detokenised(model.decode(list(ids)), model.token_strings(ids)),
                len(each),
                len(each) / total,
                _mean([raw for raw, _ in each]),
                _mean([norm for _, norm in each]),
            )
            for ids, each in texts.items()
        ]
        found[template] = sorted(rows, key=lambda fill: (-fill.count, fill.energy_raw, fill.text))
    return found


def _draws(run: Run) -> Iterator[tuple[int, tuple[int, ...], float, float]]:
    """Yield the template, tokens and energies of every chain after burn-in, epoch by epoch.

    Large runs trace no tokens; of those only the samples are known.
    """
    from maskov.diagnostics.chains import kept_epochs

    samples, traces = run.samples, run.traces
    if "tokens" not in traces or "lengths" not in traces:
        for one in samples:
            yield one.template, tuple(one.ids), one.energy_raw, one.energy_norm
        return
    template = {one.chain: one.template for one in samples}
    kept = kept_epochs(run.manifest, traces)
    for epoch in zip(*(traces[name][kept].tolist() for name in _TRACED), strict=True):
        for chain, (ids, length, raw, norm) in enumerate(zip(*epoch, strict=True)):
            yield template[chain], tuple(ids[:length]), raw, norm


def _mean(values: list[float]) -> float:
    """Return the mean of those that were traced."""
    known = [value for value in values if not math.isnan(value)]
    return sum(known) / len(known) if known else math.nan


def print_fills(run: Run, model: MaskedModel, quiet: bool) -> None:
    """Print the fills of each template as a table."""
    found = fills(run, model)
    names = run.manifest.inputs.names
    table = Table(box=None, pad_edge=False, header_style="dim")
    several = len(found) > 1
    for name in [*(["template"] if several else []), "count", "share", "E_raw", "E_norm"]:
        table.add_column(name, justify="right", style="dim" if name == "template" else "cyan")
    table.add_column("text", overflow="fold")
    for template, rows in found.items():
        label = str(template + 1) if names is None else names[template]
        for fill in rows[:_SHOWN]:
            energies = map(_shown, (fill.energy_raw, fill.energy_norm))
            shown = (str(fill.count), f"{fill.share:.1%}", *energies, fill.text)
            table.add_row(*([label] if several else []), *shown)
    print_table(table)
    rest = sum(max(len(rows) - _SHOWN, 0) for rows in found.values())
    if not quiet:
        draws = sum(fill.count for rows in found.values() for fill in rows)
        more = f"; {rest:,} more fills are not shown (--json prints samples)" if rest else ""
        say(f"counts of {draws:,} draws: the state of each chain in each epoch after burn-in{more}")


def _shown(energy: float) -> str:
    return "–" if math.isnan(energy) else f"{energy:.2f}"
