"""A sequence logo as SVG: at each position the letters of the samples, as high as their share.

The parent stands below; positions where samples differ from it are marked.
"""

from __future__ import annotations

from html import escape

from maskov.ui.report.proteins import Family

# Positions of a row, the size of one, and the height of a letter that all samples have.
_ROW, _WIDTH, _HEIGHT = 40, 22, 88
_FOOT, _GAP = 40, 14
# The height of a capital of the font, in its size.
_CAPITAL, _SIZE = 0.72, 22
_SMALLEST = 1.5
# Kinds of residues, by the colours of charts: acidic, basic, polar, aromatic, hydrophobic, others.
_KINDS = {0: "KRH", 1: "DE", 2: "STNQ", 3: "FWY", 4: "CGP", 6: "AVLIM"}
_TONES = {letter: tone for tone, letters in _KINDS.items() for letter in letters}


def logo(family: Family) -> str:
    """Return the logo of a parent's samples."""
    length = len(family.parent)
    rows = range(0, length, _ROW)
    width = min(length, _ROW) * _WIDTH
    height = len(rows) * (_HEIGHT + _FOOT + _GAP)
    most = max((column.bits for column in family.columns), default=1.0) or 1.0
    parts = list[str]()
    for number, first in enumerate(rows):
        base = number * (_HEIGHT + _FOOT + _GAP) + _HEIGHT
        for at in range(first, min(first + _ROW, length)):
            middle = (at - first + 0.5) * _WIDTH
            parts.append(_stack(family, at, middle, base, most))
    title = escape(f"Sequence logo of {family.samples:,} samples of {family.name}")
    return (
        f'<svg class="logo" viewBox="0 0 {width} {height}" width="{width}" role="img" '
        f'aria-label="{title}"><title>{title}</title>{"".join(parts)}</svg>'
    )


def _stack(family: Family, at: int, middle: float, base: float, most: float) -> str:
    """Return the letters of a position, the most frequent on top, and the parent's below."""
    column, own = family.columns[at], family.parent[at]
    drawn, top = list[str](), base
    whole = _HEIGHT * column.bits / most
    for name, share in reversed(list(zip(column.letters, column.shares, strict=True))):
        size = whole * share
        if size < _SMALLEST:
            continue
        drawn.append(_letter(name, middle, top, size / (_CAPITAL * _SIZE)))
        top -= size
    changed = family.changed[at]
    mark = ' class="changed"' if changed > 0 else ""
    number = f'<text class="place" x="{middle:g}" y="{base + 34:g}">{at + 1}</text>'
    shown = number if (at + 1) % 10 == 0 else ""
    hint = escape(f"{own}{at + 1}: {changed:.0%} changed")
    return (
        f"<g><title>{hint}</title>{''.join(drawn)}"
        f'<text{mark} x="{middle:g}" y="{base + 18:g}">{escape(own)}</text>{shown}</g>'
    )


def _letter(name: str, middle: float, base: float, scale: float) -> str:
    tone = _TONES.get(name, 5)
    return (
        f'<text class="letter s{tone}" font-size="{_SIZE}" '
        f'transform="translate({middle:.1f} {base:.1f}) scale(1 {scale:.3f})">{escape(name)}</text>'
    )
