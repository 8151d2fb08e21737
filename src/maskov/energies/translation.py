"""The energy of an autoregressive translation model: −log p(translation | source)."""

from __future__ import annotations

from functools import cached_property
from pathlib import Path

import torch

from maskov.energies.base import Energy
from maskov.energies.loading import Loading
from maskov.errors import InputError, ModelError
from maskov.models.base import MaskedModel
from maskov.models.conditional.autoregressive import AutoregressiveModel
from maskov.models.conditional.checkpoint import translation_folder
from maskov.models.conditional.model import ConditionalModel
from maskov.models.conditional.sources import Sources
from maskov.models.precision import coarse
from maskov.types import Float, Sequences, Tensor


class AutoregressiveTranslation(Energy):
    """−log p(y | source) of a translation and its end, under a model with the same tokens.

    It reads each chain's own source, encodes all sources once and costs one decoder pass a
    sequence. It compares translations of any length. Those too long for the model have probability
    zero.
    """

    # One pass, and the scores of the whole vocabulary at each position.
    cost = 1.5

    def __init__(
        self, name: str, loading: Loading | None = None, dtype: torch.dtype = torch.float32
    ) -> None:
        self._loading = loading or Loading()
        self.name, self._dtype = self._loading.find(name), dtype
        self._sources: Sources | None = None
        self._checked: MaskedModel | None = None

    @cached_property
    def _twin(self) -> AutoregressiveModel:
        folder = translation_folder(self.name) or Path(self.name)
        device = torch.device(self._loading.device)
        return AutoregressiveModel.load(folder, device, self.name, self._dtype)

    def __call__(self, model: MaskedModel, sequences: Sequences) -> Float[Tensor, " n"]:
        """Return −log p of each translation, its end included."""
        return self.terms(model, sequences).sum(1)

    def terms(self, model: MaskedModel, sequences: Sequences) -> Float[Tensor, "n length"]:
        """Return the term of each position; the last one's includes the end."""
        sources, twin = self._read(model), self._twin
        if sequences.source is None:
            raise no_sources(self, model)
        given = (sequences.source, sequences.tokens, sequences.lengths)
        source, tokens, lengths = (one.to(twin.device) for one in given)
        # What is too long is read in part, and is impossible whatever that gives.
        kept = lengths.clamp(max=twin.max_length)
        with coarse(isinstance(model, ConditionalModel) and model.coarse_products):
            found = twin.token_terms(sources, source, tokens[:, : twin.max_length], kept)
        if bool(found.isnan().any()):
            raise ModelError(
                f"the model '{self.name}' gave not-a-number scores (NaN); its weights are damaged."
            )
        last = kept[:, None]
        end = found.gather(1, last)
        terms = found.scatter(1, last, 0.0)[:, :-1].scatter_add(1, last - 1, end)
        terms[:, 0] = terms[:, 0].masked_fill(lengths > twin.max_length, torch.inf)
        padded = torch.nn.functional.pad(terms, (0, tokens.shape[1] - terms.shape[1]))
        return padded.to(sequences.tokens.device)

    def _read(self, model: MaskedModel) -> Sources:
        """Return the sources of a model as this energy's own network encodes them."""
        if not isinstance(model, ConditionalModel) or model.sources is None:
            raise no_sources(self, model)
        if self._checked is not model:
            self._check_tokens(model)
            self._checked = model
        if self._sources is None or self._sources.texts != model.sources.texts:
            self._sources = self._twin.read(model.sources.texts)
        return self._sources

    def _check_tokens(self, model: ConditionalModel) -> None:
        if self._twin.tokenizer.get_vocab() != model.tokenizer.get_vocab():
            raise InputError(
                f"'{self.name}' and '{model.name}' have different tokens: the energy '{self}' "
                "needs a model with the same vocabulary."
            )

    def models(self) -> dict[str, str]:
        """Name the model and its fingerprint."""
        return {self.name: self._twin.fingerprint()}

    def __str__(self) -> str:
        return f"autoregressive({self.name})"


def no_sources(energy: Energy, model: MaskedModel) -> InputError:
    """Return the refusal of a model that has no sources."""
    return InputError(
        f"the energy '{energy}' scores translations, and '{model.name}' has no sources here: use "
        "it with `maskov translate`, or with `model.given(texts)` of a translation model."
    )
