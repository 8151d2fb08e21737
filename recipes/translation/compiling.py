"""Compile the layers and the loss of a translation model: fewer and larger steps for a GPU."""

from __future__ import annotations

from collections.abc import Callable

import torch

from maskov.models.conditional.network import TranslationNetwork
from recipes.translation.losses import WordLoss, word_loss


def compiled(network: TranslationNetwork) -> WordLoss:
    """Compile each layer of a network in place; return the compiled loss of words.

    All layers of a side have the same code, so each side is compiled once. Sizes are symbols from
    the start: with one compilation for each shape of a batch, most of the time would go there.
    """
    from torch import _dynamo
    from torch.fx.experimental import _config as symbols

    # Two sizes that happen to be equal at first must not be taken for one.
    symbols.use_duck_shape = False
    # Weights as inputs make layers share code; still, a limit too low would give up silently.
    _dynamo.config.recompile_limit = 32
    # The smoothing is one number for ever, no symbol.
    _dynamo.config.specialize_float = True
    for layer in (*network.encoder, *network.decoder):
        layer.compile(dynamic=True)
    loss: WordLoss = torch.compile(word_loss, dynamic=True)
    return loss


def forgive() -> None:
    """Let what has to be compiled again later run as it is where that fails."""
    from torch import _dynamo

    _dynamo.config.suppress_errors = True


def plain(network: TranslationNetwork) -> None:
    """Take back what `compiled` did to a network."""
    for layer in (*network.encoder, *network.decoder):
        layer._compiled_call_impl = None


def succeeds(attempt: Callable[[], None]) -> bool:
    """Whether an attempt at compiled code runs through; if not, say so in one line."""
    try:
        attempt()
    except Exception as error:  # a compiler fails in any way it likes
        reason = (str(error).strip() or "?").splitlines()[0]
        print(f"not compiled: {type(error).__name__}: {reason[:200]}", flush=True)
        return False
    return True
