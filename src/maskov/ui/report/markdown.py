"""A report as Markdown: the numbers and some samples, for notes, issues and e-mails."""

from __future__ import annotations

import re
from collections.abc import Sequence

from maskov.ui.report.data import Number, Report, RunReport
from maskov.ui.report.numbers import UNKNOWN, mixing_row, shown, with_error

_LISTED = 20
_MIXING = ("", "R-hat", "ESS bulk", "ESS tail", "mean", "MCSE", "forgotten in")


def to_markdown(report: Report) -> str:
    """Return a summary with tables; samples are the lowest in energy."""
    lines = [f"# {_safe(report.title)}", ""]
    if len(report.runs) > 1:
        lines += _comparison(report)
    for run in report.runs:
        lines += _run(run, "##" if len(report.runs) > 1 else "")
    lines += [f"Made by maskov {_safe(report.version)}."]
    return "\n".join(lines) + "\n"


def _comparison(report: Report) -> list[str]:
    names = [number.name for number in report.runs[0].numbers]
    rows = [
        [run.label, run.findings.verdict, *(_number(number) for number in run.numbers)]
        for run in report.runs
    ]
    cautions = [f"- {_safe(caution)}" for caution in report.cautions]
    return [*_table(["run", "verdict", *names], rows), "", *cautions, *([""] if cautions else [])]


def _run(run: RunReport, level: str) -> list[str]:
    lines = [f"{level} {_safe(run.label)}", ""] if level else []
    found = run.findings
    invariant = "yes" if found.invariant else "no"
    lines += [f"**{_safe(found.verdict)}**: {_safe(found.reason)}.", ""]
    lines += [f"Leaves its target invariant: {invariant}.", ""]
    lines += [f"- {_safe(note)}" for note in (*run.notes, *found.notes, *run.remarks)]
    lines += ["", *_table(["", "value"], [[n.name, _number(n)] for n in run.numbers]), ""]
    if found.mixing:
        rows = [[one.name, *mixing_row(one)] for one in found.mixing]
        lines += [*_table(_MIXING, rows), ""]
    lines += [*_table(["how", ""], [[name, value] for name, value in run.facts.items()]), ""]
    lines += [*_samples(run), "", "Signature:", "", f"    {_one_line(run.signature)}", ""]
    return lines


def _samples(run: RunReport) -> list[str]:
    lowest = sorted(run.samples, key=lambda one: one.energy_raw)[:_LISTED]
    if not lowest:
        return ["No samples yet."]
    several = any(one.source is not None for one in lowest)
    head = ["E_raw", "E_norm", "text", *(["source"] if several else [])]
    rows = [
        [
            shown(one.energy_raw),
            shown(one.energy_norm),
            one.text,
            *([one.source or ""] if several else []),
        ]
        for one in lowest
    ]
    said = f"The {len(lowest)} lowest in E_raw of {run.samples_in_all:,} samples:"
    return [said, "", *_table(head, rows)]


def _number(number: Number) -> str:
    return UNKNOWN if number.value is None else with_error(number.value, number.standard_error)


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    lines = [head, ["---"] * len(head), *rows]
    return ["| " + " | ".join(_safe(cell) for cell in line) + " |" for line in lines]


def _one_line(text: str) -> str:
    return " ".join(text.split())


def _safe(text: str) -> str:
    """Escape what Markdown or HTML would read as more than text."""
    if text == "---":
        return text
    return re.sub(r"([\\`*_\[\]<>|~#])", r"\\\1", _one_line(text)).replace("&", "&amp;")
