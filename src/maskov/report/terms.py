"""What every token of a sample contributes to its energies, from the run's own model."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch

from maskov.energies import Norm, Raw
from maskov.engine import Engine
from maskov.errors import RunError
from maskov.models.base import MaskedModel
from maskov.run import Run, Sample
from maskov.run.api import load_model
from maskov.types import Sequences

# Samples held at once: the masked passes of more than this add nothing to a full batch.
_GROUP = 64


@dataclass(frozen=True)
class Terms:
    """The terms of one sample, one a token; they add up to its energies."""

    raw: list[float]
    norm: list[float]


class Scorer:
    """Scores samples of runs by their own models, each loaded once, on `device` if it is named."""

    def __init__(self, device: str | None = None) -> None:
        self._device = device
        self._loaded: dict[str, MaskedModel] = {}

    def terms_of(self, run: Run, samples: Sequence[Sample]) -> list[Terms]:
        """Return the terms of some samples of a run."""
        return score_samples(self._model(run), samples) if samples else []

    def _model(self, run: Run) -> MaskedModel:
        expected = run.manifest["model"]
        # A model that translates is one with its sources.
        key = json.dumps([expected, run.manifest["origin"].get("sources")], sort_keys=True)
        if key not in self._loaded:
            model = load_model(run.manifest, self._device)
            if model.fingerprint() != expected["fingerprint"]:
                raise RunError(
                    f"the model '{expected['name']}' is not the one this run was drawn from (its "
                    "weights or vocabulary have changed); put the old one back, or leave out "
                    "--terms."
                )
            self._loaded[key] = model
        return self._loaded[key]


def score_samples(model: MaskedModel, samples: Sequence[Sample]) -> list[Terms]:
    """Return the terms of each sample, by its tokens: its text might be read as others."""
    engine = Engine(model)
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
