"""Every model that needs no download."""

from __future__ import annotations

from dataclasses import replace

from maskov.models.antibody import installed
from maskov.shipped import BUILT_IN, Shipped, default_judge, default_model, shipped


def listed() -> list[Shipped]:
    """Return the shipped, built-in and installed models, the defaults marked."""
    defaults = (default_model(), default_judge())
    every = (*shipped(), *BUILT_IN, *installed())
    return [replace(model, default=model.name in defaults) for model in every]
