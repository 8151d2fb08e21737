"""Keep third-party chatter off the user's terminal while a model loads."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from logging import CRITICAL


@contextmanager
def quiet() -> Iterator[None]:
    """Silence the logs and progress bars, then put both back as they were."""
    from huggingface_hub.utils import logging as hub
    from transformers.utils import logging

    level, bars = logging.get_verbosity(), logging.is_progress_bar_enabled()
    hub_level = hub.get_verbosity()
    logging.set_verbosity_error()
    hub.set_verbosity(CRITICAL)  # its retries are told as one sentence when they have failed
    logging.disable_progress_bar()
    try:
        yield
    finally:
        logging.set_verbosity(level)
        hub.set_verbosity(hub_level)
        if bars:
            logging.enable_progress_bar()
