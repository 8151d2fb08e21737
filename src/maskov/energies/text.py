"""Energies of texts: any callable that takes a list of texts and returns a list of numbers."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from maskov.energies.base import Energy, failure
from maskov.errors import InputError
from maskov.models.base import MaskedModel
from maskov.parts import part_text
from maskov.types import Float, Sequences, Tensor


@dataclass(frozen=True)
class TextEnergy(Energy):
    """The energy that a function gives to the decoded text of a sequence.

    It is asked before any masked pass unless the function has a `cost` of its own, in masked
    passes.
    """

    function: Callable[[list[str]], Sequence[float]]

    @property
    def cost(self) -> float:  # type: ignore[override]
        """What the function says of itself, or nearly nothing."""
        return float(getattr(self.function, "cost", 0.0))

    def __call__(self, model: MaskedModel, sequences: Sequences) -> Float[Tensor, " n"]:
        """Decode the sequences and ask the function."""
        rows, sizes = sequences.tokens.tolist(), sequences.lengths.tolist()
        texts = [model.decode(row[:size]) for row, size in zip(rows, sizes, strict=True)]
        try:
            numbers: Any = self.function(texts)
            values = [float(number) for number in numbers]
        except Exception as error:
            raise failure(self, error) from error
        if len(values) != len(texts) or any(math.isnan(value) for value in values):
            raise InputError(
                f"the energy '{self}' must return one number for each text; it returned "
                f"{len(values)} for {len(texts)}, or some are not numbers."
            )
        return torch.tensor(values, dtype=torch.float64, device=sequences.tokens.device)

    def is_part(self, other: Energy) -> bool:
        """Whether both ask the same function; what equality means to it is not known here."""
        return isinstance(other, TextEnergy) and self.function is other.function

    def __str__(self) -> str:
        return part_text(self.function)
