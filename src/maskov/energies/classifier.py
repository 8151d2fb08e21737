"""The energy of a classifier: −log p(label | text), under any Hugging Face sequence classifier."""

from __future__ import annotations

from functools import cached_property
from typing import Any

from maskov.energies.base import Energy
from maskov.energies.loading import Loading, SideNetwork
from maskov.errors import InputError, ModelError
from maskov.models.base import MaskedModel
from maskov.parts import quoted
from maskov.types import Float, Sequences, Tensor


class Classifier(Energy):
    """−log p of a label, given by its name or its number."""

    cost = 1.0

    def __init__(self, name: str, label: str | int, loading: Loading | None = None) -> None:
        # A label that looks like another thing, such as True, is a name.
        self.label = label if type(label) is int else str(label)
        self._network = SideNetwork(
            "AutoModelForSequenceClassification",
            "sequence classifier",
            "classifier",
            name,
            loading or Loading(),
        )
        self.name = self._network.name

    @cached_property
    def _index(self) -> int:
        """The number of the label."""
        config = self._network.network.config
        names = {int(index): str(name) for index, name in config.id2label.items()}
        if len(names) < 2 or config.problem_type not in (None, "single_label_classification"):
            raise InputError(f"'{self.name}' does not choose one of several labels.")
        if sorted(names) != list(range(len(names))):
            raise ModelError(f"the labels of '{self.name}' are damaged: their numbers have gaps.")
        if isinstance(self.label, int):
            if not 0 <= self.label < len(names):
                raise InputError(f"'{self.name}' has labels 0 to {len(names) - 1}.")
            return self.label
        matching = [i for i, name in names.items() if name.lower() == self.label.lower()]
        if not matching:
            raise InputError(
                f"'{self.name}' has no label '{self.label}'; it has "
                f"{', '.join(names[index] for index in sorted(names))}."
            )
        return matching[0]

    def __call__(self, model: MaskedModel, sequences: Sequences) -> Float[Tensor, " n"]:
        """Classify the sequences."""
        index = self._index

        def read(answer: Any, attention: Tensor) -> Tensor:
            found: Tensor = -answer.logits.double().log_softmax(1)[:, index]
            return found

        values = self._network.run(self._network.encode(model, sequences), read)
        return values.to(sequences.tokens.device)

    def models(self) -> dict[str, str]:
        """Name the classifier and its fingerprint; refuse a label that it has not."""
        _ = self._index
        return {self.name: self._network.fingerprint(labels=self._labels)}

    @cached_property
    def _labels(self) -> list[str]:
        names = self._network.network.config.id2label
        return [str(names[index]) for index in sorted(names)]

    def __str__(self) -> str:
        return f"classifier({quoted(self.name)}, label={quoted(self.label)})"
