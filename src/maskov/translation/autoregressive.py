"""An ordinary autoregressive translation model of the same architecture, for comparison."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import torch

from maskov.errors import InputError
from maskov.models.conditional.autoregressive import AutoregressiveModel
from maskov.models.scorer import Batcher
from maskov.translation.search import search
from maskov.types import Tensor, inside

DEFAULT_BEAM = 5
# Maximum source tokens, times beam size, per batch.
_CPU_TOKENS, _GPU_TOKENS = 2**11, 2**17
# Sources, with the network's extra first position, are padded to a multiple of this.
_CPU_UNIT, _GPU_UNIT = 1, 8


class AutoregressiveTranslator(AutoregressiveModel):
    """A translation model that generates from left to right."""

    @classmethod
    def load(
        cls, folder: Path, device: torch.device, name: str, dtype: torch.dtype = torch.float32
    ) -> AutoregressiveTranslator:
        """Load a translation model folder."""
        model = super().load(folder, device, name, dtype)
        assert isinstance(model, cls)
        return model

    def translate(
        self,
        texts: Sequence[str],
        beam: int = DEFAULT_BEAM,
        length_power: float = 1.0,
        lines: Sequence[int] | None = None,
    ) -> list[list[int]]:
        """Return the tokens of the best translation found for each text.

        Errors name texts by `lines`, by default 1, 2, ...
        """
        if beam < 1:
            raise InputError(f"the beam size must be at least 1, not {beam}.")
        return self.translate_ids(self.source_ids(texts, lines), beam, length_power)

    def translate_ids(
        self, ids: Sequence[Sequence[int]], beam: int, length_power: float = 1.0
    ) -> list[list[int]]:
        """Return the tokens of the best translation found for each source, which has its end."""
        sizes = torch.tensor([len(line) for line in ids], device=self.device)
        translations: list[list[int]] = [[] for _ in ids]
        on_gpu = self.device.type == "cuda"
        unit = _GPU_UNIT if on_gpu else _CPU_UNIT

        def work(rows: Tensor, width: int) -> None:
            width = min(-(-(width + 1) // unit) * unit - 1, self.network.shape.longest)
            lines = [ids[row] for row in rows.tolist()]
            padded = [[*line, *[self.special.pad] * (width - len(line))] for line in lines]
            best, _ = search(
                self.network, torch.tensor(padded, device=self.device),
                inside(sizes[rows], width), self.special, self.forbidden, beam, length_power,
            )  # fmt: skip
            for row, tokens in zip(rows.tolist(), best, strict=True):
                translations[row] = tokens

        budget = _GPU_TOKENS if on_gpu else _CPU_TOKENS
        Batcher(max(1, budget // beam), padded_share=1.0).each(sizes, work)
        return translations
