"""The runs that a page may start: small ones, with all settings within bounds."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from maskov.config import check_name
from maskov.errors import InputError
from maskov.kernels import Kernel
from maskov.kernels.registry import named_kernel
from maskov.models import DEFAULT_MODEL
from maskov.models.base import MaskedModel
from maskov.models.registry import listed
from maskov.moves import MaskedConditional, Site
from maskov.schedules import Schedule

MOST_CHAINS, MOST_EPOCHS, MOST_TOKENS = 16, 200, 64
LONGEST_TEXT, LONGEST_RULE, LONGEST_NAME = 500, 200, 100
METHODS = {
    "mh": "Metropolis–Hastings: exact",
    "gibbs": "degenerate Gibbs: accepts everything, has no target",
    "mask-predict": "mask-predict: greedy, has no target",
}


class RunRequest(BaseModel):
    """The settings of a run, validated strictly; unknown fields are refused.

    With a `text`, chains start from it and have its length; `freeze` names those of its tokens that
    stay. `prefix` is a text that the model reads before every sequence.
    """

    model_config = ConfigDict(strict=True, extra="forbid", allow_inf_nan=False)

    model: str = Field(max_length=100)
    method: Literal["mh", "gibbs", "mask-predict"] = "mh"
    energy: Literal["raw", "norm"] = "raw"
    chains: int = Field(default=6, ge=1, le=MOST_CHAINS)
    length: int = Field(default=16, ge=1, le=MOST_TOKENS)
    epochs: int = Field(default=30, ge=1, le=MOST_EPOCHS)
    temperature: float = Field(default=1.0, ge=0.1, le=5.0)
    seed: int = Field(default=0, ge=0, le=2**32 - 1)
    name: str = Field(default="", max_length=LONGEST_NAME)
    text: str = Field(default="", max_length=LONGEST_TEXT)
    freeze: str = Field(default="", max_length=LONGEST_RULE)
    prefix: str = Field(default="", max_length=LONGEST_RULE)

    def kernel(self) -> Kernel:
        """Return the kernel of the method."""
        moves = (Site(MaskedConditional(self.temperature)),)
        return named_kernel(self.method, self.energy, moves, iterations=self.epochs)

    def check(self) -> None:
        """Refuse what the fields alone cannot tell."""
        check_name(self.name)
        if self.model not in known_models():
            raise InputError("no such model on this server.")
        if self.freeze and not self.text:
            raise InputError("frozen tokens are those of a text: give one to start from.")
        if self.text and self.method == "mask-predict":
            raise InputError("mask-predict starts from all masked: leave the text empty.")

    def start(self, model: MaskedModel) -> dict[str, Any]:
        """Return where chains start, as arguments of `sample`."""
        if not self.text:
            return {"length": self.length}
        tokens = len(model.encode(self.text))
        if tokens > MOST_TOKENS:
            raise InputError(f"the text has {tokens} tokens; {MOST_TOKENS} is the maximum here.")
        return {"texts": [self.text], "freeze": self.freeze or None}

    def schedule(self) -> Schedule:
        """Return the schedule."""
        return Schedule(epochs=self.epochs)


def known_models() -> dict[str, str]:
    """Return the names and summaries of the models that a page may run."""
    return {model.name: model.summary for model in listed() if model.kind == "masked"}


def choices() -> dict[str, Any]:
    """Return the choices, bounds and defaults of the form."""
    bounds: dict[str, dict[str, Any]] = {}
    for name, field in RunRequest.model_fields.items():
        limits = {type(part).__name__.lower(): part for part in field.metadata}
        bounds[name] = {
            "value": None if field.is_required() else field.default,
            "least": getattr(limits.get("ge"), "ge", None),
            "most": getattr(limits.get("le"), "le", None),
            "longest": getattr(limits.get("maxlen"), "max_length", None),
        }
    bounds["model"]["value"] = DEFAULT_MODEL
    return {
        "models": known_models(),
        "methods": METHODS,
        "energies": ["raw", "norm"],
        "bounds": bounds,
    }
