"""The cells that several results share: each is declared once, and so computed once."""

from __future__ import annotations

from typing import Any

from experiments.chains import TextChains, Translations, spacing
from experiments.settings import Setting

# "At the start of the Markov chain, we make large changes": the paper gives no sizes. Ours begin at
# eight positions and fall evenly, so that single positions are reached after most of the epochs.
BLOCK, FALLING = 8, 0.85
# The appendix on Table 5: proposals at 0.8, two epochs that accept everything.
PROPOSAL, FORCED = 0.8, 2
# What `maskov translate` does unless told otherwise: a chain that still has far to go when it
# begins to reject stays where it is.
LONG_FORCED = 8
ANNEAL = 0.02
EPSILON = 0.05


def text(setting: Setting, sampler: str, **changes: Any) -> TextChains:
    """Return unconditional chains, by default at temperature 1, single positions."""
    size = setting.text
    return TextChains(
        sampler, size.chains, size.epochs, size.burn_in, length=size.length, **changes
    )


def translations(setting: Setting, sampler: str, **changes: Any) -> Translations:
    """Return chains on the study set, by default at temperature 1, single positions."""
    size = setting.translation
    kept = size.epochs - changes.get("burn_in", size.burn_in)
    base: dict[str, Any] = {
        "burn_in": size.burn_in,
        "data": setting.study,
        "sentences": size.sentences,
        "longest": size.longest,
        "every": spacing(kept, size.points),
    }
    return Translations(sampler, size.chains, size.epochs, **(base | changes))


def settled_after(setting: Setting, forced: int = FORCED) -> int:
    """Return how many epochs of mode-seeking chains are initialisation: the forced, and one."""
    return min(forced + 1, setting.translation.epochs - 1)


def annealed(
    setting: Setting, sampler: str, anneal: float, forced: int = FORCED, **changes: Any
) -> Translations:
    """Return chains that seek the mode: the target cools by `anneal` an epoch."""
    burn_in = settled_after(setting, forced)
    forced = min(forced, burn_in)
    return translations(
        setting,
        sampler,
        temperature=PROPOSAL,
        forced=forced,
        anneal=anneal,
        burn_in=burn_in,
        **changes,
    )


def shrink(epochs: int, block: int = BLOCK) -> float:
    """Return how much a block loses each epoch."""
    return round((block - 1) / (FALLING * epochs), 3)


def blocks(setting: Setting, sampler: str) -> Translations:
    """Return chains whose blocks shrink."""
    epochs = setting.translation.epochs
    return translations(setting, sampler, block=BLOCK, shrink=shrink(epochs))


def text_blocks(setting: Setting, sampler: str) -> TextChains:
    """Return unconditional chains whose blocks shrink; none is longer than the shortest text."""
    block = min(BLOCK, setting.text.length[0])
    return text(setting, sampler, block=block, shrink=shrink(setting.text.epochs, block))
