"""Cells that several results share."""

from __future__ import annotations

from typing import Any

from experiments.lib.chains import TextChains, Translations, spacing
from experiments.lib.settings import Setting

# "At the start of the Markov chain, we make large changes": the paper gives no sizes. Our blocks
# start at eight positions and shrink evenly to one after this share of the epochs.
FIRST_BLOCK, SHRINK_SHARE = 8, 0.85
# From the appendix on Table 5: proposal temperature 0.8, two forced epochs.
PROPOSAL_TEMPERATURE, FORCED_EPOCHS = 0.8, 2
# The default of `maskov translate`: a chain that starts to reject far from a good translation
# stays there.
LONG_FORCED_EPOCHS = 8
ANNEAL_RATE = 0.02
EPSILON = 0.05


def text(setting: Setting, sampler: str, **changes: Any) -> TextChains:
    """Return unconditional chains (default: temperature 1, single positions)."""
    size = setting.text
    return TextChains(
        sampler, size.chains, size.epochs, size.burn_in, length=size.length, **changes
    )


def translations(setting: Setting, sampler: str, **changes: Any) -> Translations:
    """Return chains on the study set (default: temperature 1, single positions)."""
    size = setting.translation
    kept = size.epochs - changes.get("burn_in", size.burn_in)
    defaults: dict[str, Any] = {
        "burn_in": size.burn_in,
        "data": setting.study,
        "sentences": size.sentences,
        "longest": size.longest,
        "every": spacing(kept, size.points),
        "chains": size.chains,
    }
    return Translations(sampler, epochs=size.epochs, **(defaults | changes))


def initial_epochs(setting: Setting, forced: int = FORCED_EPOCHS) -> int:
    """Return the initial epochs of annealed chains: the forced ones and one more."""
    return min(forced + 1, setting.translation.epochs - 1)


def annealed(
    setting: Setting, sampler: str, anneal: float, forced: int = FORCED_EPOCHS, **changes: Any
) -> Translations:
    """Return annealed chains: the target temperature falls by `anneal` each epoch."""
    burn_in = initial_epochs(setting, forced)
    forced = min(forced, burn_in)
    return translations(
        setting,
        sampler,
        temperature=PROPOSAL_TEMPERATURE,
        forced=forced,
        anneal=anneal,
        burn_in=burn_in,
        **changes,
    )


def shrink(epochs: int, block: int = FIRST_BLOCK) -> float:
    """Return by how much a block shrinks each epoch."""
    return round((block - 1) / (SHRINK_SHARE * epochs), 3)


def blocks(setting: Setting, sampler: str) -> Translations:
    """Return translation chains with shrinking blocks."""
    epochs = setting.translation.epochs
    return translations(setting, sampler, block=FIRST_BLOCK, shrink=shrink(epochs))


def text_blocks(setting: Setting, sampler: str) -> TextChains:
    """Return unconditional chains with shrinking blocks, none longer than the shortest text."""
    block = min(FIRST_BLOCK, setting.text.length[0])
    return text(setting, sampler, block=block, shrink=shrink(setting.text.epochs, block))
