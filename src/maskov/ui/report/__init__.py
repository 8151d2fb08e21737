"""Reports: one or more runs as a single file (HTML, Markdown or JSON)."""

from maskov.ui.report.data import build
from maskov.ui.report.formats import to_html, to_json, to_markdown

__all__ = ["build", "to_html", "to_json", "to_markdown"]
