"""Compile the layers and the loss of a translation model with torch.compile."""

from __future__ import annotations

from collections.abc import Callable

import torch

from maskov.models.network import TranslationNetwork
from recipes.translation.losses import WordLoss, word_loss


def compiled(network: TranslationNetwork) -> WordLoss:
    """Compile each layer of a network in place; return the compiled loss of words.

    The layers of each side share code, so each side is compiled once. Sizes are dynamic from the
    start, because compiling for every batch shape would take most of the time.
    """
    from torch import _dynamo
    from torch.fx.experimental import _config as symbols

    # Two sizes that happen to be equal at first must stay separate symbols.
    symbols.use_duck_shape = False
    # Above this limit torch would silently stop compiling.
    _dynamo.config.recompile_limit = 32
    # The smoothing is constant.
    _dynamo.config.specialize_float = True
    for layer in (*network.encoder, *network.decoder):
        layer.compile(dynamic=True)
    loss: WordLoss = torch.compile(word_loss, dynamic=True)
    return loss


def tolerate_failures() -> None:
    """Run code uncompiled if a later compilation fails."""
    from torch import _dynamo

    _dynamo.config.suppress_errors = True


def uncompile(network: TranslationNetwork) -> None:
    """Undo `compiled`."""
    for layer in (*network.encoder, *network.decoder):
        layer._compiled_call_impl = None


def succeeds(attempt: Callable[[], None]) -> bool:
    """Whether a function runs without an error; print the error otherwise."""
    try:
        attempt()
    except Exception as error:  # compilers raise many kinds of errors
        reason = (str(error).strip() or "?").splitlines()[0]
        print(f"not compiled: {type(error).__name__}: {reason[:200]}", flush=True)
        return False
    return True
