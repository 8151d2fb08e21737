"""A report as Markdown, for notes, issues and e-mails."""

from __future__ import annotations

import re
from collections.abc import Sequence

from maskov.ui.report.data import Number, Report, RunReport
from maskov.ui.report.numbers import EXPERTS, MIXING, UNKNOWN, mixing_row, shown, with_error
from maskov.ui.report.samples import ShownSample

_LISTED = 20


def to_markdown(report: Report) -> str:
    """Return the tables of a report and the samples of lowest energy."""
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
    diagnosis = run.findings
    lines += [f"{_safe(diagnosis.headline)}.", ""]
    lines += [f"**{_safe(diagnosis.verdict)}**: {_safe(diagnosis.reason)}.", ""]
    if diagnosis.advice:
        lines += [f"Try next: {_safe(diagnosis.advice)}.", ""]
    if run.first_samples:
        lines += [*(f"- {_safe(sample.text)}" for sample in run.first_samples), ""]
    lines += [f"- {_safe(note)}" for note in (*run.notes, *diagnosis.notes, *run.remarks)]
    lines += ["", *_table(["", "value"], [[n.name, _number(n)] for n in run.numbers]), ""]
    if diagnosis.mixing:
        rows = [[mixing.name, *mixing_row(mixing)] for mixing in diagnosis.mixing]
        lines += [*_table(MIXING, rows), ""]
    if diagnosis.experts:
        lines += [*_table(EXPERTS, diagnosis.experts), ""]
    if diagnosis.exchange:
        lines += [*_table(["replicas", ""], diagnosis.exchange), ""]
    lines += [*_table(["how", ""], [[name, value] for name, value in run.metadata.items()]), ""]
    lines += _families(run)
    lines += [*_samples(run), "", "Signature:", "", f"    {_one_line(run.signature)}", ""]
    return lines


def _families(run: RunReport) -> list[str]:
    """Return the parents of a run from FASTA and their most frequent mutations."""
    if not run.families:
        return []
    head = ["parent", "samples", "mutations", "between samples", "most frequent"]
    rows = [
        [
            family.name,
            f"{family.samples:,}",
            f"{family.mean_mutations:.1f}",
            UNKNOWN if family.mean_distance is None else f"{family.mean_distance:.1f}",
            ", ".join(f"{one} {share:.0%}" for one, share in family.frequent[:8]),
        ]
        for family in run.families
    ]
    return [*_table(head, rows), ""]


def _samples(run: RunReport) -> list[str]:
    groups: dict[int, list[ShownSample]] = {}
    for sample in sorted(run.samples, key=lambda sample: sample.rank(run.order, run.per_token)):
        groups.setdefault(sample.group, []).append(sample)
    lowest = [group[0] for group in groups.values()][:_LISTED]
    if not lowest:
        return ["No samples yet."]
    similar = any(len(groups[sample.group]) > 1 for sample in lowest)
    sources = any(sample.source is not None for sample in lowest)
    named = any(sample.name is not None for sample in lowest)
    named_order = f"E_{run.order}" + (" per token" if run.per_token else "")
    added = [named_order] if named_order not in ("E_raw", "E_norm") else []
    head = [*added, "E_raw", "E_norm", *(["similar"] if similar else []), "text"]
    head += ["source"] if sources else []
    head += ["parent", "mutations"] if named else []
    rows = [
        [
            *[shown(sample.rank(run.order, run.per_token)) for _ in added],
            shown(sample.energy_raw),
            shown(sample.energy_norm),
            *([str(len(groups[sample.group]) - 1)] if similar else []),
            sample.text,
            *([sample.source or ""] if sources else []),
            *([sample.name or "", " ".join(sample.mutations or ())] if named else []),
        ]
        for sample in lowest
    ]
    title = f"The {len(lowest)} lowest in {named_order} of {run.samples_in_all:,} samples"
    title += ", similar ones of a chain counted:" if similar else ":"
    return [title, "", *_table(head, rows)]


def _number(number: Number) -> str:
    return UNKNOWN if number.value is None else with_error(number.value, number.standard_error)


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    lines = [head, ["---"] * len(head), *rows]
    return ["| " + " | ".join(_safe(cell) for cell in line) + " |" for line in lines]


def _one_line(text: str) -> str:
    return " ".join(text.split())


def _safe(text: str) -> str:
    """Escape the special characters of Markdown and HTML."""
    if text == "---":
        return text
    return re.sub(r"([\\`*_\[\]<>|~#])", r"\\\1", _one_line(text)).replace("&", "&amp;")
