"""maskov: sample correctly and fast from any masked language model.

A masked language model defines an energy, and its conditionals propose moves that a
Metropolis-Hastings test accepts or rejects (Goyal, Dyer & Berg-Kirkpatrick, ICLR 2022).
"""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from maskov.public import *  # noqa: F403
    from maskov.public import __all__ as __all__


def __getattr__(name: str) -> Any:
    """Import what is used: PyTorch takes seconds, and `maskov --help` does not need it."""
    if not name.startswith("_") and find_spec(f"maskov.{name}") is not None:
        return import_module(f"maskov.{name}")
    if not name.startswith("_") or name in ("__all__", "__version__"):
        public = import_module("maskov.public")
        globals().update({each: getattr(public, each) for each in public.__all__})
        globals()["__all__"] = public.__all__
    if name in globals():
        return globals()[name]
    raise AttributeError(f"module 'maskov' has no attribute '{name}'")


def __dir__() -> list[str]:
    return sorted({*globals(), *__getattr__("__all__")})
