"""The training losses of the autoregressive and the masked translation model."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from maskov.models.network import SpecialTokens, TranslationNetwork
from recipes.translation.corpus import Batch

_IGNORED = -100

# Takes states, the embedding table, the targets and the label smoothing; returns the mean loss.
WordLoss = Callable[[Tensor, Tensor, Tensor, float], Tensor]


def word_loss(states: Tensor, table: Tensor, targets: Tensor, smoothing: float) -> Tensor:
    """Return the mean cross-entropy of the targets, in float32."""
    scores = F.linear(states.flatten(0, 1), table).float()
    return F.cross_entropy(
        scores, targets.flatten(), ignore_index=_IGNORED, label_smoothing=smoothing
    )


@dataclass(frozen=True)
class Masking:
    """How much of a target is masked.

    Mask-Predict masks a uniformly drawn number of tokens, from one to all. A sampler that changes
    one token at a time masks almost nothing, so a share `few` of the targets has at most `few_most`
    of its tokens masked. In a share `noisy` of the batches, up to `noise` of the visible tokens are
    drawn from the model itself, because the context of a sampler is never as good as a reference.
    For a share `foreign` of those targets they come from another target: fluent English unrelated
    to the source, so that only the source tells what is masked.
    """

    few: float = 0.3
    few_most: float = 0.15
    noisy: float = 0.0
    noise: float = 0.3
    foreign: float = 0.0


def with_end(ids: Tensor, inside: Tensor, end: int) -> tuple[Tensor, Tensor]:
    """Append the end token to each sentence; there must be room for it."""
    last = inside.sum(1, keepdim=True)
    place = torch.arange(ids.shape[1], device=ids.device)
    return torch.where(place == last, end, ids), place <= last


def causal_loss(
    network: TranslationNetwork,
    special: SpecialTokens,
    smoothing: float,
    batch: Batch,
    words: WordLoss = word_loss,
) -> Tensor:
    """Return the loss of every token given the previous ones, end token included."""
    source, inside = with_end(batch.source, batch.source_inside, special.end)
    target, within = with_end(batch.target, batch.target_inside, special.end)
    begin = torch.full_like(target[:, :1], special.begin)
    memory, mask, _ = network.read(source, inside)
    shown = torch.cat([begin, target[:, :-1]], dim=1)
    states = network.decode(shown, network.cross_key_values(memory), mask)
    targets = target.masked_fill(~within, _IGNORED)
    return words(states, network.words.weight, targets, smoothing)


def masked_loss(
    network: TranslationNetwork,
    special: SpecialTokens,
    masking: Masking,
    smoothing: float,
    batch: Batch,
    generator: torch.Generator,
    words: WordLoss = word_loss,
) -> Tensor:
    """Return the loss of the masked tokens, plus a tenth of that of the length."""
    source, inside = with_end(batch.source, batch.source_inside, special.end)
    target, within = batch.target, batch.target_inside
    memory, mask, length_scores = network.read(source, inside)
    kept = network.cross_key_values(memory)
    hidden = choose_hidden(within, masking, generator)
    shown = target.masked_fill(hidden, special.mask)
    if batch.noisy:
        shown = _with_noise(network, shown, target, within, hidden, kept, mask, special, masking,
                            generator)  # fmt: skip
    states = network.decode(shown, kept, mask, within)
    targets = target.masked_fill(~hidden, _IGNORED)
    of_words = words(states, network.words.weight, targets, smoothing)
    return of_words + 0.1 * F.cross_entropy(length_scores.float(), within.sum(1))


def choose_hidden(within: Tensor, masking: Masking, generator: torch.Generator) -> Tensor:
    """Choose the masked tokens of each target."""
    count, device = len(within), within.device

    def uniform(*shape: int) -> Tensor:
        return torch.rand(shape, device=device, generator=generator)

    most = torch.where(uniform(count) < masking.few, masking.few_most, 1.0)
    length = within.sum(1)
    number = (length * most * uniform(count)).ceil().clamp(min=1)
    keys = uniform(*within.shape).masked_fill(~within, 2.0)
    rank = keys.argsort(dim=1).argsort(dim=1)
    return (rank < number[:, None]) & within


def _with_noise(
    network: TranslationNetwork,
    shown: Tensor,
    target: Tensor,
    within: Tensor,
    hidden: Tensor,
    kept: list[tuple[Tensor, Tensor]],
    mask: Tensor,
    special: SpecialTokens,
    masking: Masking,
    generator: torch.Generator,
) -> Tensor:
    """Replace some visible tokens by draws from the model, or by those of another target."""

    def uniform(*shape: int) -> Tensor:
        return torch.rand(shape, device=shown.device, generator=generator)

    share = masking.noise * uniform(len(shown), 1)
    wrong = within & ~hidden & (uniform(*shown.shape) < share)
    with torch.no_grad():
        blank = shown.masked_fill(wrong, special.mask)
        states = network.decode(blank, kept, mask, within)
        scores = network.scores(states).float()
        # The largest of scores with Gumbel noise is a draw from their softmax.
        chance = uniform(*scores.shape).clamp(min=1e-9)
        drawn = (scores - (-chance.log()).log()).argmax(-1)
    if masking.foreign:
        strange = uniform(len(shown), 1) < masking.foreign
        drawn = torch.where(strange, target.roll(1, 0), drawn)
        wrong &= ~strange | within.roll(1, 0)
    return torch.where(wrong, drawn, shown)
