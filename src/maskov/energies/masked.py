"""The paper's two energies: sums over positions of what the model says when each alone is masked.

    E_raw(x)  = −Σ_t logit_t(x_t | x without t)
    E_norm(x) = −Σ_t log softmax_t(x_t | x without t)

The softmax is the model's own, over its full vocabulary. E_raw is defined up to a shift of the
logits in each context, so its values are not comparable between checkpoints.

With `groups=B` the positions are split into B groups, t mod B, and each place is scored in the pass
that masks its whole group: e(x_t | x without group(t)). That is another energy, of B passes instead
of T; where B is T or more, it is the ordinary one.

`OtherModel` is the energy of another masked model that knows the same tokens, for a product of two
models.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import torch

from maskov.energies.base import Energy, MaskedEnergy, Sum
from maskov.energies.networks import Loading, check_lengths
from maskov.errors import InputError
from maskov.models import load
from maskov.models.base import MaskedModel
from maskov.models.scorer import Scorer
from maskov.parts import quoted
from maskov.types import Float, Sequences, Tensor


@dataclass(frozen=True)
class Raw(MaskedEnergy):
    """E_raw: minus the sum of the raw logits."""

    normalised = False

    groups: int | None = None

    def __post_init__(self) -> None:
        _check(self.groups)

    def of_scores(self, logit: Tensor, log_normaliser: Tensor) -> Tensor:
        """Return minus the logit."""
        return -logit

    def __str__(self) -> str:
        return _named("raw", self.groups)


@dataclass(frozen=True)
class Norm(MaskedEnergy):
    """E_norm: minus the pseudo-log-likelihood."""

    normalised = True

    groups: int | None = None

    def __post_init__(self) -> None:
        _check(self.groups)

    def of_scores(self, logit: Tensor, log_normaliser: Tensor) -> Tensor:
        """Return minus the log-softmax."""
        return log_normaliser - logit

    def __str__(self) -> str:
        return _named("norm", self.groups)


def grouped(energy: Energy, groups: int) -> Energy | None:
    """Return an energy with its masked passes in groups of positions; None if it has none, or is.

    It is a target of its own, which chains reach sooner.
    """
    if energy.masked is None or energy.groups is not None:
        return None
    parts = tuple(
        (weight, replace(part, groups=groups) if isinstance(part, Raw | Norm) else part)
        for weight, part in energy.parts
    )
    if any(isinstance(part, MaskedEnergy) and part.groups is None for _, part in parts):
        return None
    return parts[0][1] if len(parts) == 1 and parts[0][0] == 1 else Sum(parts)


def _check(groups: int | None) -> None:
    if groups is None:
        return
    if type(groups) is not int or groups < 1:
        raise InputError(f"an energy has 1 group of positions or more, not {groups}.")


def _named(name: str, groups: int | None) -> str:
    return name if groups is None else f"{name}(groups={groups})"


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
