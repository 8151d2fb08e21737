"""Cells of deterministic translation methods, and mask-predict in plain code."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar

import torch

import maskov
from experiments.lib import bleu
from experiments.lib.cell import LATER, Cell, CellResult
from experiments.lib.context import Context, pair_of
from experiments.lib.estimates import estimate
from experiments.lib.sentences import choose_sentences
from maskov.evaluation import compare
from maskov.models.base import Queries
from maskov.models.conditional import ConditionalModel
from maskov.translation import TranslationMethod, run_method

# Tokens of a translation, for planning.
_EXPECTED_LENGTH = 25


@dataclass(frozen=True)
class DeterministicTranslations(Cell):
    """One translation per sentence, by `greedy`, `mask-predict` or `ar`.

    There are no chains; the standard error of BLEU is a bootstrap over sentences. A source that is
    too long for the model counts as an empty translation.
    """

    kind: ClassVar[str] = "written"

    method: str
    data: str
    sentences: int | None = None
    iterations: int | None = None
    beam: int | None = None
    length_beam: int | None = field(default=None, metadata=LATER)

    def roles(self) -> tuple[str, ...]:
        """Return the roles of the models."""
        pair = pair_of(self.data)
        return (pair, f"twin-{pair}") if self.method == "ar" else (pair,)

    @property
    def expected_passes(self) -> float:
        """A rough number of masked passes: those of the method and of one energy."""
        each = (self.iterations or 1) * (self.length_beam or 1)
        return (self.sentences or 3000) * (_EXPECTED_LENGTH + each)

    def run(self, context: Context, folder: Path) -> CellResult:
        """Translate and score."""
        pair = pair_of(self.data)
        model = context.masked_model(pair)
        assert isinstance(model, ConditionalModel)
        chosen = choose_sentences(model, *context.pairs(self.data), self.sentences)
        method = TranslationMethod(
            self.method,
            iterations=self.iterations,
            length_beam=self.length_beam,
            beam=self.beam,
        )
        twin = context.twin(pair) if self.method == "ar" else None
        stop = None if self.method == "ar" else context.stop
        translations = maskov.translate(
            model, chosen.sources, method, twin, progress=False, stop=stop
        )
        texts = chosen.with_empty([translation.text for translation in translations])
        score = compare(texts, chosen.references)
        # Half of a 95 % interval is 1.96 standard errors.
        error = None if score.bleu_interval is None else score.bleu_interval / 1.96
        count = len(texts)
        lengths = "" if self.length_beam is None else f"|lengths:{self.length_beam}"
        return {
            "signature": f"method:{self.method}|iterations:{self.iterations}|beam:{self.beam}"
            + lengths,
            "seed": None,
            "leaves_invariant": False,
            "notes": ["deterministic: the standard error of BLEU is a bootstrap over sentences"],
            "values": {
                "bleu": {"value": score.bleu, "standard_error": error, "n": count},
                "bleu_last": {"value": score.bleu, "standard_error": error, "n": count},
                "energy_norm": estimate([translation.energy_norm for translation in translations]),
                "energy_raw": estimate([translation.energy_raw for translation in translations]),
            },
            "sentences": count,
            "left_out": chosen.left_out,
            "bleu_signature": bleu.signature(),
            "texts": texts[:500],
            "sentence_counts": bleu.sentence_counts([texts], chosen.references),
        }


@dataclass(frozen=True)
class MaskPredictIsBlockGibbs(Cell):
    """Whether block Gibbs at temperature 0 and mask-predict give the same translations.

    The kernel is degenerate Gibbs with a block, temperature 0 and mask-predict's choice of
    positions. It is compared with mask-predict in plain code, as its authors describe it.
    """

    kind: ClassVar[str] = "mask-predict-is-block-gibbs"

    data: str
    sentences: int
    longest: int | None = None
    iterations: int = 10

    def roles(self) -> tuple[str, ...]:
        """Return the roles of the models."""
        return (pair_of(self.data),)

    def run(self, context: Context, folder: Path) -> CellResult:
        """Compare the tokens."""
        model = context.masked_model(*self.roles())
        assert isinstance(model, ConditionalModel)
        chosen = choose_sentences(model, *context.pairs(self.data), self.sentences, self.longest)
        # In low precision the composition of a batch would decide near ties.
        exact = model.exact if isinstance(model.exact, ConditionalModel) else model
        given = exact.given(chosen.sources)
        run = run_method(given, TranslationMethod("mask-predict", iterations=self.iterations))
        ours = [sample.ids for sample in run.samples]
        plain = [
            plain_mask_predict(given, source, len(ids), self.iterations)
            for source, ids in enumerate(ours)
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
            "left_out": chosen.left_out,
        }


def plain_mask_predict(
    model: maskov.MaskedModel, source: int, length: int, iterations: int
) -> list[int]:
    """Translate one source by mask-predict, without any kernel.

    All positions are masked and filled with their most probable token. Iteration t then masks and
    fills the ⌊length · (N − t) / N⌋ least probable positions again.
    """
    tokens = torch.full((1, length), model.mask_id, device=model.device)
    confidence = torch.zeros(length, dtype=torch.float64, device=model.device)
    lengths = torch.tensor([length], device=model.device)
    for step in range(iterations):
        count = max(1, length * (iterations - step) // iterations)
        masked = torch.zeros((1, length), dtype=torch.bool, device=model.device)
        masked[0, confidence.argsort(stable=True)[:count]] = True
        queries = Queries(tokens, lengths, masked, torch.tensor([source], device=model.device))
        logits = model.logits(model.hidden(queries)).double()
        best = logits.masked_fill(model.forbidden, -torch.inf).argmax(1)
        tokens[masked] = best
        confidence[masked[0]] = logits.log_softmax(1).gather(1, best[:, None]).squeeze(1).exp()
    return [int(token) for token in tokens[0]]
