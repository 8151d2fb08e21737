"""The energy of another masked model that knows the same tokens, for a product of two models."""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property

import torch

from maskov.energies.base import Energy
from maskov.energies.masked import Norm, Raw
from maskov.energies.networks import Loading, check_lengths
from maskov.errors import InputError
from maskov.models import load
from maskov.models.base import MaskedModel
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
        self._matched: tuple[MaskedModel, Tensor] | None = None

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
        tokens = self._translated(model, sequences)
        plain = replace(sequences, tokens=tokens, pass_cache=None, reference=None)
        sites = self._scorer.cache(plain, self.energy.normalised, groups=self.energy.groups)
        values = self.energy(self._scorer.model, replace(plain, pass_cache=sites))
        self._scorer.check()
        return values

    def _translated(self, model: MaskedModel, sequences: Sequences) -> Tensor:
        """Return the sequences in the other model's numbers of tokens."""
        if self._matched is None or self._matched[0] is not model:
            self._matched = model, self._numbers(model)
        found = self._matched[1][sequences.tokens].masked_fill(~sequences.inside, 0)
        if bool((found < 0).any()):
            token = int(sequences.tokens[found < 0][0])
            (spelled,) = model.token_strings([token])
            raise InputError(f"'{self.name}' has no token '{spelled}', so it cannot score it.")
        return found

    def _numbers(self, model: MaskedModel) -> Tensor:
        """Return the other model's number of each token, -1 for those it lacks."""
        mine = self._scorer.model
        known = {
            token: number
            for number, token in enumerate(mine.token_strings(range(mine.vocabulary_size)))
            if mine.may_stand(number)
        }
        spelled = model.token_strings(range(model.vocabulary_size))
        numbers = torch.tensor([known.get(token, -1) for token in spelled], device=model.device)
        missing = ((numbers < 0) & ~model.forbidden).nonzero().flatten().tolist()
        if missing:
            some = ", ".join(f"'{spelled[number]}'" for number in missing[:3])
            raise InputError(
                f"'{self.name}' and '{model.name}' have different tokens: a product of two models "
                f"needs all tokens of the second in the first, which lacks {some}"
                f"{f' and {len(missing) - 3} more' if len(missing) > 3 else ''}."
            )
        return numbers

    def models(self) -> dict[str, str]:
        """Name the model and its fingerprint."""
        return {self.name: self._scorer.model.fingerprint()}

    def __str__(self) -> str:
        kind = "raw" if isinstance(self.energy, Raw) else "norm"
        groups = "" if self.energy.groups is None else f", groups={self.energy.groups}"
        return f"{kind}({quoted(self.name)}{groups})"
