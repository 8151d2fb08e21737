"""maskov: sample correctly and fast from any masked language model.

A masked language model defines an energy, and its conditionals propose moves that a
Metropolis-Hastings test accepts or rejects (Goyal, Dyer & Berg-Kirkpatrick, ICLR 2022).
"""

from __future__ import annotations

import ast
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

# A name stands once, in the file that type checkers and editors read.
_NAMES = ast.parse(Path(__file__).with_suffix(".pyi").read_text(encoding="utf-8"))
_MODULES = {
    alias.name: str(node.module)
    for node in _NAMES.body
    if isinstance(node, ast.ImportFrom)
    for alias in node.names
}
__all__ = sorted(_MODULES)


def __getattr__(name: str) -> Any:
    """Import what is used: PyTorch takes seconds, and `maskov --help` does not need it."""
    if name in _MODULES:
        return getattr(import_module(_MODULES[name]), name)
    if not name.startswith("_") and find_spec(f"maskov.{name}") is not None:
        return import_module(f"maskov.{name}")
    raise AttributeError(f"module 'maskov' has no attribute '{name}'")


def __dir__() -> list[str]:
    return __all__
