"""The energy terms of every token of a sample, computed with the run's model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch

from maskov.energies import Norm, Raw
from maskov.models.base import MaskedModel
from maskov.models.scorer import Scorer
from maskov.runs import Run, Sample
from maskov.runs.rebuild import LoadedModels
from maskov.types import Sequences

# Samples per group; their masked passes already fill the batches.
_GROUP = 64


@dataclass(frozen=True)
class Terms:
    """The terms of one sample, one per token; they sum to its energies."""

    raw: list[float]
    norm: list[float]


class TermScorer:
    """Scores samples with the models of their runs, each loaded once."""

    def __init__(
        self,
        device: str | None = None,
        trust_remote_code: bool = False,
        allow_download: bool = False,
    ) -> None:
        self._models = LoadedModels(device, trust=trust_remote_code, allow_download=allow_download)

    def terms_of(self, run: Run, samples: Sequence[Sample]) -> list[Terms]:
        """Return the terms of some samples of a run."""
        return score_samples(self._models.of(run.manifest), samples) if samples else []


def score_samples(model: MaskedModel, samples: Sequence[Sample]) -> list[Terms]:
    """Return the terms of each sample; its text could be tokenised differently, so ids are used."""
    engine = Scorer(model)
    terms: list[Terms] = []
    for begin in range(0, len(samples), _GROUP):
        group = samples[begin : begin + _GROUP]
        lengths = torch.tensor([len(sample.ids) for sample in group], device=model.device)
        tokens = torch.full((len(group), int(lengths.max())), model.mask_id, device=model.device)
        for row, sample in enumerate(group):
            tokens[row, : len(sample.ids)] = torch.tensor(sample.ids, device=model.device)
        source = torch.tensor([sample.template for sample in group], device=model.device)
        given = Sequences(tokens, lengths, source=source)
        given = replace(given, pass_cache=engine.cache(given))
        engine.check()
        raw, norm = (energy.terms(model, given).tolist() for energy in (Raw(), Norm()))
        terms += [
            Terms(raw[row][: len(sample.ids)], norm[row][: len(sample.ids)])
            for row, sample in enumerate(group)
        ]
    return terms
