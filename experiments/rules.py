"""Translations by rules without chance as cells, and mask-predict written out a second time."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import torch

import maskov
from experiments import bleu
from experiments.chains import readable
from experiments.estimates import estimate
from experiments.work import Found, Work
from experiments.workshop import Workshop, pair_of
from maskov.evaluation.translation import compare
from maskov.models.base import Queries
from maskov.models.conditional.model import ConditionalModel
from maskov.translation.api import run_method, translate
from maskov.translation.methods import TranslationMethod

# Positions of a translation, to plan by.
_LENGTH = 25


@dataclass(frozen=True)
class Written(Work):
    """One translation of each sentence: by `greedy`, `mask-predict` or `ar`.

    There are no chains; the error of BLEU is that of a bootstrap over sentences.
    """

    kind: ClassVar[str] = "written"

    method: str
    data: str
    sentences: int | None = None
    iterations: int | None = None
    beam: int | None = None

    def roles(self) -> tuple[str, ...]:
        """Return the models that are used."""
        pair = pair_of(self.data)
        return (pair, f"twin-{pair}") if self.method == "ar" else (pair,)

    @property
    def passes(self) -> float:
        """Guess the passes: those of the method and one energy."""
        return (self.sentences or 3000) * (_LENGTH + (self.iterations or 1))

    def run(self, workshop: Workshop, folder: Path) -> Found:
        """Translate and score."""
        pair = pair_of(self.data)
        model = workshop.masked(pair)
        assert isinstance(model, ConditionalModel)
        sources, references, long = readable(model, *workshop.pairs(self.data), self.sentences)
        method = TranslationMethod(self.method, iterations=self.iterations, beam=self.beam)
        twin = workshop.twin(pair) if self.method == "ar" else None
        settings = {} if self.method == "ar" else {"stop": workshop.stop}
        lines = translate(model, sources, method, twin, **settings)
        score = compare([line.text for line in lines], references)
        # Half of a 95 % interval is 1.96 standard errors.
        error = None if score.bleu_interval is None else score.bleu_interval / 1.96
        count = len(lines)
        return {
            "signature": f"method:{self.method}|iterations:{self.iterations}|beam:{self.beam}",
            "seed": None,
            "leaves_invariant": False,
            "notes": ["a rule without chance: the error of BLEU is over sentences, by bootstrap"],
            "values": {
                "bleu": {"value": score.bleu, "standard_error": error, "n": count},
                "bleu_last": {"value": score.bleu, "standard_error": error, "n": count},
                "energy_norm": estimate([line.energy_norm for line in lines]),
                "energy_raw": estimate([line.energy_raw for line in lines]),
            },
            "sentences": count,
            "left_out": long,
            "bleu_signature": bleu.signature(),
            "texts": [line.text for line in lines][:500],
            "sentence_counts": bleu.sentence_counts([[line.text for line in lines]], references),
        }


@dataclass(frozen=True)
class MaskPredictIsBlockGibbs(Work):
    """Whether block Gibbs at temperature 0 gives what mask-predict gives, sentence by sentence.

    The kernel is degenerate Gibbs with a block, temperature 0 and mask-predict's choice of
    positions; beside it stands mask-predict written out in plain code, as its authors describe it.
    """

    kind: ClassVar[str] = "mask-predict-is-block-gibbs"

    data: str
    sentences: int
    longest: int | None = None
    iterations: int = 10

    def roles(self) -> tuple[str, ...]:
        """Return the models that are used."""
        return (pair_of(self.data),)

    def run(self, workshop: Workshop, folder: Path) -> Found:
        """Compare the tokens."""
        model = workshop.masked(*self.roles())
        assert isinstance(model, ConditionalModel)
        both = workshop.pairs(self.data)
        sources, _, long = readable(model, *both, self.sentences, self.longest)
        # Coarse products would let the cut of a batch decide near ties.
        exact = model.exact if isinstance(model.exact, ConditionalModel) else model
        given = exact.given(sources)
        run = run_method(given, TranslationMethod("mask-predict", iterations=self.iterations))
        ours = [one.ids for one in run.samples]
        plain = [
            plain_mask_predict(given, line, len(ids), self.iterations)
            for line, ids in enumerate(ours)
        ]
        same = sum(a == b for a, b in zip(ours, plain, strict=True))
        return {
            "signature": run.signature,
            "seed": None,
            "leaves_invariant": False,
            "notes": list(run.manifest.notes),
            "values": {
                "equal": {"value": same / len(ours), "standard_error": None, "n": len(ours)}
            },
            "sentences": len(ours),
            "left_out": long,
        }


def plain_mask_predict(
    model: maskov.MaskedModel, source: int, length: int, iterations: int
) -> list[int]:
    """Return the translation of one source by mask-predict, without any kernel.

    All positions are masked and filled with their most probable token; then, iteration after
    iteration, the ⌊length · (N − t) / N⌋ least probable are masked and filled again.
    """
    tokens = torch.full((1, length), model.mask_id, device=model.device)
    sure = torch.zeros(length, dtype=torch.float64, device=model.device)
    lengths = torch.tensor([length], device=model.device)
    for step in range(iterations):
        count = max(1, length * (iterations - step) // iterations)
        masked = torch.zeros((1, length), dtype=torch.bool, device=model.device)
        masked[0, sure.argsort(stable=True)[:count]] = True
        queries = Queries(tokens, lengths, masked, torch.tensor([source], device=model.device))
        logits = model.logits(model.hidden(queries)).double()
        best = logits.masked_fill(model.forbidden, -torch.inf).argmax(1)
        tokens[masked] = best
        sure[masked[0]] = logits.log_softmax(1).gather(1, best[:, None]).squeeze(1).exp()
    return [int(token) for token in tokens[0]]
