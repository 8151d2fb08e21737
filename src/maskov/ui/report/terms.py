"""What every token of a sample contributes to its energies, from the run's own model."""

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

# Samples held at once: the masked passes of more than this add nothing to a full batch.
_GROUP = 64


@dataclass(frozen=True)
class Terms:
    """The terms of one sample, one a token; they add up to its energies."""

    raw: list[float]
    norm: list[float]


class TermScorer:
    """Scores samples of runs by their own models, each loaded once, on `device` if it is named."""

    def __init__(self, device: str | None = None, trust_remote_code: bool = False) -> None:
        self._models = LoadedModels(device, trust=trust_remote_code)

    def terms_of(self, run: Run, samples: Sequence[Sample]) -> list[Terms]:
        """Return the terms of some samples of a run."""
        return score_samples(self._models.of(run.manifest), samples) if samples else []


def score_samples(model: MaskedModel, samples: Sequence[Sample]) -> list[Terms]:
    """Return the terms of each sample, by its tokens: its text might be read as others."""
    engine = Scorer(model)
    found: list[Terms] = []
    for begin in range(0, len(samples), _GROUP):
        group = samples[begin : begin + _GROUP]
        lengths = torch.tensor([len(one.ids) for one in group], device=model.device)
        tokens = torch.full((len(group), int(lengths.max())), model.mask_id, device=model.device)
        for row, one in enumerate(group):
            tokens[row, : len(one.ids)] = torch.tensor(one.ids, device=model.device)
        source = torch.tensor([one.template for one in group], device=model.device)
        given = Sequences(tokens, lengths, source=source)
        given = replace(given, sites=engine.sites(given))
        engine.check()
        raw, norm = (energy.terms(model, given).tolist() for energy in (Raw(), Norm()))
        found += [
            Terms(raw[row][: len(one.ids)], norm[row][: len(one.ids)])
            for row, one in enumerate(group)
        ]
    return found
