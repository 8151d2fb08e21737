"""The energy of another masked model with the same tokens, for a product of two models."""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property

from maskov.energies.base import Energy
from maskov.energies.loading import Loading
from maskov.energies.masked import Norm, Raw
from maskov.errors import InputError
from maskov.models import load
from maskov.models.base import MaskedModel
from maskov.models.scorer import Scorer
from maskov.parts import quoted
from maskov.types import Float, Sequences, Tensor


class OtherModel(Energy):
    """E_raw or E_norm of a masked model beside the one that proposes; each costs T of its passes.

    Both models must have the same tokens, so that a product of their distributions has a meaning.
    """

    cost = 32.0

    def __init__(self, energy: Raw | Norm, name: str, loading: Loading | None = None) -> None:
        self._loading = loading or Loading()
        self.energy, self.name = energy, self._loading.find(name)
        self._compared: MaskedModel | None = None

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
        self._check_tokens(model)
        plain = replace(sequences, sites=None, reference=None)
        sites = self._scorer.sites(plain, self.energy.normalised, groups=self.energy.groups)
        values = self.energy(self._scorer.model, replace(plain, sites=sites))
        self._scorer.check()
        return values

    def _check_tokens(self, model: MaskedModel) -> None:
        """Refuse a model with other tokens; only the first time."""
        if model is self._compared:
            return
        mine = self._scorer.model
        ids = list(range(model.vocabulary_size))
        if mine.vocabulary_size != len(ids) or mine.token_strings(ids) != model.token_strings(ids):
            raise InputError(
                f"'{self.name}' and '{model.name}' have different tokens: a product of two models "
                "needs the same vocabulary in both."
            )
        self._compared = model

    def models(self) -> dict[str, str]:
        """Name the model and its fingerprint."""
        return {self.name: self._scorer.model.fingerprint()}

    def __str__(self) -> str:
        kind = "raw" if isinstance(self.energy, Raw) else "norm"
        groups = "" if self.energy.groups is None else f", groups={self.energy.groups}"
        return f"{kind}({quoted(self.name)}{groups})"
