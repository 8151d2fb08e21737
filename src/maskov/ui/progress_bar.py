"""A progress bar for Python, by tqdm: on a terminal or in a notebook, nothing elsewhere."""

from __future__ import annotations

import sys
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from maskov.models.base import MaskedModel
from maskov.types import Chains, Traces
from maskov.ui.escaping import printable
from maskov.ui.terminal import rates


class ProgressBar:
    """Shows how far a run has come; with `most`, it may end before its last epoch."""

    def __init__(self, epochs: int, most: bool = False) -> None:
        from tqdm.auto import tqdm

        self._passes = 0
        self._bar = tqdm(total=epochs, unit="epoch", leave=False, desc="at most" if most else None)

    def begun(self, model: MaskedModel) -> None:
        """Print the model's caution if it has one."""
        if model.caution:
            self.noted(model.caution)

    def noted(self, text: str) -> None:
        """Print a note."""
        self._bar.write(printable(f"note: {text}"), file=sys.stderr)

    def moved(self, state: Chains, epoch: int, passes: int) -> None:
        """Show the passes so far, unless the last frame is too recent."""
        self._passes = max(self._passes, passes)
        self._advance(epoch)

    def epoch_ended(self, epoch: int, values: Traces, passes: int) -> None:
        """Show the epochs and their rates."""
        self._passes = max(self._passes, passes)
        speed = self._passes / max(self._bar.format_dict["elapsed"], 1e-9)
        self._bar.set_postfix_str(f"{speed:,.0f} passes/s  {rates(values)}", refresh=False)
        self._advance(epoch + 1)
        if self._bar.n == self._bar.total:
            self._bar.refresh()  # a short run may have drawn nothing since its first frame

    def _advance(self, done: int) -> None:
        # Groups of chains end their epochs in any order: the bar never goes back.
        self._bar.update(max(done - self._bar.n, 0))

    def __enter__(self) -> ProgressBar:
        return self

    def __exit__(self, *_: Any) -> None:
        self._bar.close()


def in_notebook() -> bool:
    """Whether this is the kernel of a notebook."""
    # Whoever has not imported IPython is not in a notebook.
    shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    return shell is not None and hasattr(shell, "kernel")


def progress_bar(
    epochs: int, most: bool = False, *, shown: bool = True
) -> AbstractContextManager[ProgressBar | None]:
    """Return the bar of a run: for a notebook, for a terminal, or none."""
    if shown and (in_notebook() or sys.stderr.isatty()):
        return ProgressBar(epochs, most)
    return nullcontext()
