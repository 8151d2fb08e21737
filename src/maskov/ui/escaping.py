"""Show text from files on a terminal: control characters are escaped, never obeyed.

A manifest, a sample or a vocabulary may be anybody's. An escape sequence in it could clear the
screen, change what was printed before, or set the title of the window.
"""

import re

# C0 and C1 without tab and newline, delete, line and paragraph separators, surrogates, and the
# marks that override the direction of writing.
_CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")


def printable(text: str) -> str:
    r"""Return a text with each control character as its escape, such as \x1b."""
    return _CONTROL.sub(lambda match: ascii(match[0])[1:-1], text)


def json_printable(line: str) -> str:
    r"""Return a line of JSON with control characters as \u escapes: the same value."""
    return _CONTROL.sub(lambda match: f"\\u{ord(match[0]):04x}", line)
