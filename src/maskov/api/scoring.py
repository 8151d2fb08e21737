"""Score texts from Python."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from maskov.api.arguments import as_option, read_options, refuse_both, takes_options
from maskov.api.kinds import TextFunction
from maskov.energies import Energy
from maskov.fasta import Record
from maskov.models import MaskedModel
from maskov.options.scoring import ScoringOptions
from maskov.scoring import Score

_OF_MODELS = ("tokenizer", "device", "trust_remote_code", "prefix", "remove_smoothing")


@takes_options(ScoringOptions)
def score(
    model: str | Path | MaskedModel,
    texts: Sequence[str | Record],
    energy: str | Energy | TextFunction = "raw",
    **options: Any,
) -> list[Score]:
    """Return the energy of each text and what every token contributes to it; the order is kept.

        scores = maskov.score("wiki-small", ["The cat sat on the mat."], energy="norm")

    `model` is a name, a folder or a MaskedModel; `energy` is named as on the command line, or an
    Energy, or a function that takes a list of texts and returns a number for each. With
    "autoregressive" the scores are those of `causal_model`, in its own tokens. Every option of
    `maskov score` is a keyword of the same name: causal_model, tokenizer, device,
    trust_remote_code, prefix, remove_smoothing, token_budget. A translation model that was given
    sources, `model.given(sources)`, scores one translation of each.
    """
    chosen = read_options(ScoringOptions, options)
    chosen = replace(chosen, energy=as_option(ScoringOptions, "energy", energy))
    if isinstance(model, MaskedModel):
        refuse_both(options, _OF_MODELS, "a model that is loaded")
        return chosen.scores(texts, model)
    name = str(model.resolve()) if isinstance(model, Path) else model
    return replace(chosen, model=name).scores(texts)
