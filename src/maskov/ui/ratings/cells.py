"""Text as cells of a CSV file that a spreadsheet does not take for formulas."""

from __future__ import annotations

# A full-width sign begins a formula in some languages' versions of spreadsheets.
_FORMULA_SIGNS = frozenset("=+-@＝＋－＠")
_CONTROLS = frozenset("\t\r\n")
_MARK = "'"


def to_cell(text: str) -> str:
    """Return text with ' in front if it could begin a formula, or begins with ' itself.

    `from_cell` undoes it, so nothing is lost.
    """
    first, first_visible = text[:1], text.lstrip()[:1]
    if first in _CONTROLS or first == _MARK or first_visible in _FORMULA_SIGNS:
        return _MARK + text
    return text


def from_cell(cell: str) -> str:
    """Return the text of a cell."""
    return cell.removeprefix(_MARK)
