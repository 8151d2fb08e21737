"""The energy of a text that drifts from the one a chain started from: 1 − cosine of embeddings."""

from __future__ import annotations

from typing import Any

import torch

from maskov.energies.base import Energy
from maskov.energies.loading import Loading, SideNetwork, contents, references
from maskov.models.base import MaskedModel
from maskov.parts import quoted
from maskov.types import Float, Sequences, Tensor


class Similar(Energy):
    """1 − cos(text, start text), of the means of a Hugging Face encoder's last vectors."""

    cost = 1.0
    compares = True

    def __init__(self, name: str, loading: Loading | None = None) -> None:
        self._network = SideNetwork("AutoModel", "text encoder", None, name, loading or Loading())
        self.name = self._network.name
        self._known: dict[tuple[int, ...], Tensor] = {}

    def __call__(self, model: MaskedModel, sequences: Sequences) -> Float[Tensor, " n"]:
        """Compare the embeddings."""
        starts = self._network.encode(model, references(sequences, self))
        keys = [tuple(ids) for ids in contents(starts)]
        for row, key in enumerate(keys):
            if key not in self._known:
                # Alone: in another batch its last bits would differ, and chains resume anywhere.
                width, index = len(key), torch.tensor([row], device=starts.tokens.device)
                alone = Sequences(starts.tokens[index, :width], starts.lengths[index])
                self._known[key] = self._network.run(alone, _mean)[0]
        embedded = self._network.run(self._network.encode(model, sequences), _mean)
        compared = torch.stack([self._known[key] for key in keys])
        return (1 - (embedded * compared).sum(1)).to(sequences.tokens.device)

    def models(self) -> dict[str, str]:
        """Name the encoder and its fingerprint."""
        return {self.name: self._network.fingerprint()}

    def __str__(self) -> str:
        return f"similar({quoted(self.name)})"


def _mean(answer: Any, attention: Tensor) -> Tensor:
    """Return the mean of the vectors of each text, of length 1."""
    known = attention[:, :, None].double()
    mean = (answer.last_hidden_state.double() * known).sum(1) / known.sum(1)
    return torch.nn.functional.normalize(mean, dim=1)
