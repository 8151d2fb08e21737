"""Reports: runs as one file that can be sent to a colleague."""

from maskov.report.data import Report, RunReport, build
from maskov.report.html import to_html
from maskov.report.markdown import to_markdown
from maskov.report.plain import to_json

__all__ = ["Report", "RunReport", "build", "to_html", "to_json", "to_markdown"]
