"""Energies of a second model: another masked one, for a product of both, or one that translates."""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property
from pathlib import Path

import torch

from maskov.constraints.base import per_model
from maskov.energies.base import Energy, Norm, Raw
from maskov.energies.networks import Loading, check_lengths, refuse_nan, same_tokens
from maskov.errors import InputError, refuse, required
from maskov.models import load
from maskov.models.autoregressive import AutoregressiveTranslator
from maskov.models.base import MaskedModel, coarse
from maskov.models.checkpoint import translation_folder
from maskov.models.conditional import ConditionalModel, Sources
from maskov.models.scorer import Scorer
from maskov.parts import quoted
from maskov.types import Float, Sequences, Tensor


class OtherModel(Energy):
    """E_raw or E_norm of a model other than the one that proposes; each costs T of its passes.

    Each token that may be sampled must be one of the other model's, too, whatever its number there,
    so that a product of their distributions has a meaning.
    """

    cost = 32.0

    def __init__(self, energy: Raw | Norm, name: str, loading: Loading | None = None) -> None:
        self._loading = loading or Loading()
        self.energy, self.name = energy, self._loading.find(name)

    @cached_property
    def _scorer(self) -> Scorer:
        chosen = self._loading
        model = load(
            self.name,
            str(chosen.device),
            trust_remote_code=chosen.trust_remote_code,
            allow_download=chosen.allow_download,
        )
        return Scorer(model, chosen.budget)

    def __call__(self, model: MaskedModel, sequences: Sequences) -> Float[Tensor, " n"]:
        """Run the other model's masked passes."""
        check_lengths(sequences.lengths.tolist(), self._scorer.model.max_length, self.name)
        plain = replace(
            sequences, tokens=self._translated(model, sequences), pass_cache=None, reference=None
        )
        cache = self._scorer.cache(plain, self.energy.normalised, groups=self.energy.groups)
        values = self.energy(self._scorer.model, replace(plain, pass_cache=cache))
        self._scorer.check()
        return values

    def _translated(self, model: MaskedModel, sequences: Sequences) -> Tensor:
        """Return the sequences in the other model's numbers of tokens."""
        numbers = _numbers(self._scorer.model, model, self.name)
        found = numbers[sequences.tokens].masked_fill(~sequences.inside, 0)
        if bool((found < 0).any()):
            (spelled,) = model.token_strings(sequences.tokens[found < 0][:1].tolist())
            raise InputError(f"'{self.name}' has no token '{spelled}', so it cannot score it.")
        return found

    def models(self) -> dict[str, str]:
        """Name the model and its fingerprint."""
        return {self.name: self._scorer.model.fingerprint()}

    def __str__(self) -> str:
        kind = "raw" if isinstance(self.energy, Raw) else "norm"
        groups = "" if self.energy.groups is None else f", groups={self.energy.groups}"
        return f"{kind}({quoted(self.name)}{groups})"


@per_model
def _numbers(other: MaskedModel, model: MaskedModel, name: str) -> Tensor:
    """Return the number that the other model, so called, has for each token; −1: none."""
    known = {
        token: number
        for number, token in enumerate(other.token_strings(range(other.vocabulary_size)))
        if other.may_stand(number)
    }
    spelled = model.token_strings(range(model.vocabulary_size))
    numbers = torch.tensor([known.get(token, -1) for token in spelled], device=model.device)
    missing = ((numbers < 0) & ~model.forbidden).nonzero().flatten().tolist()
    if missing:
        some = ", ".join(f"'{spelled[number]}'" for number in missing[:3])
        raise InputError(
            f"'{name}' and '{model.name}' have different tokens: a product of two models "
            f"needs all tokens of the second in the first, which lacks {some}"
            f"{f' and {len(missing) - 3} more' if len(missing) > 3 else ''}."
        )
    return numbers


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

    @cached_property
    def _model(self) -> AutoregressiveTranslator:
        folder = translation_folder(self.name) or Path(self.name)
        return AutoregressiveTranslator.load(
            folder, torch.device(self._loading.device), self.name, self._dtype
        )

    def __call__(self, model: MaskedModel, sequences: Sequences) -> Float[Tensor, " n"]:
        """Return −log p of each translation, its end included."""
        return self.terms(model, sequences).sum(1)

    def terms(self, model: MaskedModel, sequences: Sequences) -> Float[Tensor, "n length"]:
        """Return the term of each position; the last one's includes the end."""
        sources, reader = self._read(model), self._model
        read = required(sequences.source, no_sources(self, model))
        source, tokens, lengths = (
            one.to(reader.device) for one in (read, sequences.tokens, sequences.lengths)
        )
        # What is too long is read in part, and is impossible whatever that gives.
        kept = lengths.clamp(max=reader.max_length)
        with coarse(isinstance(model, ConditionalModel) and model.coarse_products):
            found = reader.token_terms(sources, source, tokens[:, : reader.max_length], kept)
        refuse_nan(found, self.name)
        last = kept[:, None]
        ends = found.gather(1, last)
        terms = found.scatter(1, last, 0.0)[:, :-1].scatter_add(1, last - 1, ends)
        terms[:, 0] = terms[:, 0].masked_fill(lengths > reader.max_length, torch.inf)
        padded = torch.nn.functional.pad(terms, (0, tokens.shape[1] - terms.shape[1]))
        return padded.to(sequences.tokens.device)

    def _read(self, model: MaskedModel) -> Sources:
        """Return the sources of a model as this energy's own network encodes them."""
        if not isinstance(model, ConditionalModel) or model.sources is None:
            raise InputError(no_sources(self, model))
        refuse(
            (
                not same_tokens(model, self._model.tokenizer),
                f"'{self.name}' and '{model.name}' have different tokens: the energy '{self}' "
                "needs a model with the same vocabulary.",
            )
        )
        if self._sources is None or self._sources.texts != model.sources.texts:
            self._sources = self._model.read(model.sources.texts)
        return self._sources

    def models(self) -> dict[str, str]:
        """Name the model and its fingerprint."""
        return {self.name: self._model.fingerprint()}

    def __str__(self) -> str:
        return f"autoregressive({self.name})"


def no_sources(energy: Energy, model: MaskedModel) -> str:
    """Return why a model is refused that has no sources."""
    return (
        f"the energy '{energy}' scores translations, and '{model.name}' has no sources here: use "
        "it with `maskov translate`, or with `model.given(texts)` of a translation model."
    )
