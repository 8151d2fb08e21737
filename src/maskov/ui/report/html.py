"""A report as one self-contained HTML file.

Text is escaped, data is JSON that cannot end its element, and the content security policy allows
only the page's own scripts and styles, by hash: no sample can inject code.
"""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from hashlib import sha256
from html import escape
from importlib.resources import files

from maskov.ui.report.data import Number, Report, RunReport
from maskov.ui.report.json_data import PAGE_DIGITS, json_safe
from maskov.ui.report.logo import logo
from maskov.ui.report.numbers import EXPERTS, MIXING, UNKNOWN, mixing_row, shown, with_error

_SCRIPTS = (
    "scales.js",
    "drawing.js",
    "charts.js",
    "proteins.js",
    "figures.js",
    "samples.js",
    "theme.js",
    "page.js",
)
_STYLES = ("report.css", "charts.css", "samples.css", "proteins.css", "print.css")
_SHADING = "maskov report RUN --terms"


@dataclass(frozen=True)
class Page:
    """A page and its content security policy, which a server sends as a header too."""

    html: str
    policy: str


def to_html(report: Report) -> str:
    """Return the page."""
    return to_page(report).html


def to_page(report: Report) -> Page:
    """Return the page with its policy."""
    # One scope for all scripts, to define no globals.
    script = "(() => {\n" + _read(_SCRIPTS) + "})();\n"
    style = _read(_STYLES)
    policy = (
        f"default-src 'none'; script-src '{_hash(script)}'; style-src '{_hash(style)}'; "
        "img-src data:; base-uri 'none'; form-action 'none'"
    )
    title = escape(f"{report.title} – maskov report")
    text = f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{policy}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="referrer" content="no-referrer">
<title>{title}</title>
<link rel="icon" href="data:,">
<style>{style}</style>
</head>
<body>
<a class="skip" href="#main">Skip to the report</a>
{_bar(report)}
<main id="main" tabindex="-1">
{_header(report)}
{_comparison(report)}
{"".join(_run(run, index, len(report.runs)) for index, run in enumerate(report.runs))}
{_samples(report)}
</main>
<footer><p>Made by maskov {escape(report.version)}. This page is self-contained: it loads nothing
from the network.</p></footer>
<script type="application/json" id="report-data">{_data(report)}</script>
<script>{script}</script>
</body>
</html>
"""
    return Page(text, policy)


def _bar(report: Report) -> str:
    links = [("#comparison", "Comparison")] if len(report.runs) > 1 else []
    for index, run in enumerate(report.runs):
        links.append((f"#run-{index}", run.label if len(report.runs) > 1 else "Run"))
    links.append(("#samples", "Samples"))
    items = "".join(f'<li><a href="{link}">{escape(name)}</a></li>' for link, name in links)
    return f"""<div class="bar"><div class="inner">
<span class="brand" aria-hidden="true">maskov</span>
<nav aria-label="Parts of the report"><ul>{items}</ul></nav>
<button type="button" id="theme" hidden>Dark</button>
</div></div>"""


def _header(report: Report) -> str:
    count = len(report.runs)
    kind = "Report of a run" if count == 1 else f"Report of {count} runs"
    return f"""<header class="top"><p class="kind">{kind}</p>
<h1>{escape(report.title)}</h1>
<noscript><p class="caution">Charts and samples are drawn by a script inside this page; allow it to
see them.</p></noscript></header>"""


def _comparison(report: Report) -> str:
    if len(report.runs) < 2:
        return ""
    names = [number.name for number in report.runs[0].numbers]
    rows = [
        [
            f'<span class="key s{index % 7}" aria-hidden="true"></span>{escape(run.label)}',
            f'<span class="pill {run.findings.tone}">{escape(run.findings.verdict)}</span>',
            *(escape(shown_number(number)) for number in run.numbers),
        ]
        for index, run in enumerate(report.runs)
    ]
    table = _table(["run", "verdict", *names], rows, "Main numbers, ± standard error over chains")
    return f"""<section id="comparison" class="part" aria-labelledby="comparison-title">
<h2 id="comparison-title">Side by side</h2>
{table}{_list(report.cautions, "cautions")}
<div class="charts" data-charts="comparison"></div></section>"""


def _run(run: RunReport, index: int, count: int) -> str:
    diagnosis = run.findings
    title = "" if count == 1 else f"<h2 id='run-{index}-title'>{escape(run.label)}</h2>"
    labelled = "aria-label='Run'" if count == 1 else f"aria-labelledby='run-{index}-title'"
    level = "h2" if count == 1 else "h3"
    tone, verdict, reason = diagnosis.tone, escape(diagnosis.verdict), escape(diagnosis.reason)
    advice = f"<p>Try next: {escape(diagnosis.advice)}</p>" if diagnosis.advice else ""
    cards = "".join(_card(number) for number in run.numbers)
    done = "" if run.finished else '<span class="pill bad">not finished</span>'
    rows = [[escape(mixing.name), *map(escape, mixing_row(mixing))] for mixing in diagnosis.mixing]
    experts = [list(map(escape, expert)) for expert in diagnosis.experts]
    swaps = [[escape(name), escape(value)] for name, value in diagnosis.exchange]
    metadata = "".join(
        f"<div><dt>{escape(name)}</dt><dd>{escape(value)}</dd></div>"
        for name, value in run.metadata.items()
    )
    return f"""<section id="run-{index}" class="part" {labelled}>{title}
<div class="verdict {tone}"><p><strong>{escape(diagnosis.headline)}.</strong></p>
<p><span class="pill {tone}">{verdict}</span>{done}<span>{reason}</span></p>{advice}</div>
{_first_samples(run, level)}
<dl class="cards">{cards}</dl>
{_list((*run.notes, *diagnosis.notes, *run.remarks), "notes")}
<{level}>Traces and mixing</{level}>
<div class="charts" data-charts="run" data-run="{index}"></div>
{_families(run, index, level)}
<{level}>Agreement of the chains</{level}>
{_table(MIXING, rows, "Convergence after burn-in")}
{_table(EXPERTS, experts, "Experts: weights are those in the energy, means are without them")}
{_table(["", "replicas"], swaps, "Exchange of replicas after burn-in")}
<{level}>How it was made</{level}>
<dl class="metadata">{metadata}</dl>
<div class="signature"><p class="label" id="signature-{index}-label">Signature</p>
<code id="signature-{index}">{escape(run.signature)}</code>
<button type="button" class="copy" data-copy="signature-{index}"
 aria-describedby="signature-{index}-label" hidden>Copy</button></div>
</section>"""


def _first_samples(run: RunReport, level: str) -> str:
    """Return a few samples, to be seen before anything else, by those who run no script too."""
    if not run.first_samples:
        return ""
    lines = []
    for sample in run.first_samples:
        about = [
            *filter(None, (sample.source, sample.name)),
            f"chain {sample.chain}, epoch {sample.epoch}, "
            f"E_{run.order} {shown(sample.rank(run.order, False))}",
        ]
        lines.append(
            f"<li><span class='text'>{escape(sample.text)}</span> "
            f"<span class='about'>{escape(' · '.join(about))}</span></li>"
        )
    of = "" if len(lines) == run.samples_in_all else f" of {run.samples_in_all:,}"
    title = "1 sample" if len(lines) == 1 else f"{len(lines)} samples"
    chosen = (
        "The last samples of evenly chosen chains."
        if run.chains >= len(lines)
        else "The last sample of each chain, and earlier ones that differ."
    )
    return f"""<{level}>{title}{of}</{level}>
<ol class="first-samples">{"".join(lines)}</ol>
<p class="small">{chosen} <a href="#samples">More samples</a></p>
"""


def _families(run: RunReport, index: int, level: str) -> str:
    """Return the logo, the charts and the most frequent mutations of each parent."""
    if not run.families:
        return ""
    parts, below = [], {"h2": "h3", "h3": "h4"}[level]
    for number, family in enumerate(run.families):
        name, distance = escape(family.name), family.mean_distance
        apart = "" if distance is None else f", {distance:.1f} apart from each other"
        rows = [[escape(one), f"{share:.0%}"] for one, share in family.frequent]
        parts.append(f"""<div class="family"><{below}>{name}</{below}>
<p class="small">{family.samples:,} samples, {family.mean_mutations:.1f} mutations on
average{apart}. The parent is the lower line; its letters that change are marked.</p>
<div class="scroll" tabindex="0" role="group" aria-label="Logo of {name}">{logo(family)}</div>
<div class="charts" data-family="{number}" data-run="{index}"></div>
{_table(["mutation", "share of samples"], rows, f"Most frequent mutations of {family.name}")}
</div>""")
    return f"<{level}>Parents and their mutations</{level}>{''.join(parts)}"


def _samples(report: Report) -> str:
    shading = (
        ""
        if any(run.shaded for run in report.runs)
        else f'<p class="small">Tokens are not shaded: <code>{_SHADING}</code> scores each of '
        "them with the run’s model.</p>"
    )
    return f"""<section id="samples" class="part" aria-labelledby="samples-title">
<h2 id="samples-title">Samples</h2>{shading}<div id="sample-browser"></div></section>"""


def _card(number: Number) -> str:
    value, _, error = shown_number(number).partition(" ± ")
    beside = f' <span class="error">± {escape(error)}</span>' if error else ""
    return f"<div><dt>{escape(number.name)}</dt><dd>{escape(value)}{beside}</dd></div>"


def shown_number(number: Number) -> str:
    """Return value ± standard error, or a dash where there is none."""
    return UNKNOWN if number.value is None else with_error(number.value, number.standard_error)


def _list(items: Iterable[str], kind: str) -> str:
    lines = "".join(f"<li>{escape(item)}</li>" for item in items)
    return f'<ul class="{kind}">{lines}</ul>' if lines else ""


def _table(head: Sequence[str], rows: Sequence[Sequence[str]], caption: str) -> str:
    """Return a table of escaped cells, in a scrolling box."""
    if not rows:
        return ""
    tops = "".join(f'<th scope="col">{escape(name)}</th>' if name else "<td></td>" for name in head)
    body = "".join(
        f'<tr><th scope="row">{first}</th>{"".join(f"<td>{cell}</td>" for cell in rest)}</tr>'
        for first, *rest in rows
    )
    return (
        f'<div class="scroll" tabindex="0" role="group" aria-label="{escape(caption)}"><table>'
        f"<caption>{escape(caption)}</caption><thead><tr>{tops}</tr></thead>"
        f"<tbody>{body}</tbody></table></div>"
    )


def _data(report: Report) -> str:
    """Return the data as JSON that cannot end the element around it."""
    text = json.dumps(
        json_safe(report, PAGE_DIGITS), ensure_ascii=False, allow_nan=False, separators=(",", ":")
    )
    for sign in "<>&\u2028\u2029":
        text = text.replace(sign, f"\\u{ord(sign):04x}")
    return text


def _read(names: Sequence[str]) -> str:
    static = files("maskov.ui.report") / "static"
    return "\n".join((static / name).read_text(encoding="utf-8") for name in names)


def _hash(content: str) -> str:
    return f"sha256-{b64encode(sha256(content.encode()).digest()).decode()}"
