"""Keep third-party logs and progress bars off the terminal while a model loads."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from logging import CRITICAL

# transformers imports tqdm, which in a notebook without ipywidgets warns when it is first imported,
# about bars that are never shown here.
with warnings.catch_warnings():
    warnings.filterwarnings("ignore", message="IProgress not found")
    import_module("tqdm.auto")


@contextmanager
def silence_transformers() -> Iterator[None]:
    """Silence the logs and progress bars of transformers and huggingface_hub, then restore them."""
    from huggingface_hub.utils import logging as hub
    from transformers.utils import logging

    level, bars = logging.get_verbosity(), logging.is_progress_bar_enabled()
    hub_level = hub.get_verbosity()
    logging.set_verbosity_error()
    hub.set_verbosity(CRITICAL)  # if its retries fail, our own error says so
    logging.disable_progress_bar()
    try:
        yield
    finally:
        logging.set_verbosity(level)
        hub.set_verbosity(hub_level)
        if bars:
            logging.enable_progress_bar()
