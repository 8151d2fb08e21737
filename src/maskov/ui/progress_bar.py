"""A progress bar for Python: one line on a terminal or in a notebook, nothing elsewhere."""

from __future__ import annotations

import sys
import time
from html import escape
from types import TracebackType
from typing import Any

from rich.console import Console
from rich.live import Live
from rich.text import Text

from maskov.models.base import MaskedModel
from maskov.runs.eta import Pace
from maskov.types import Chains, Traces
from maskov.ui.escaping import PrintableConsole, printable
from maskov.ui.terminal import paced, rates

_FRAMES_PER_SECOND = 8
_WIDTH = 24


class ProgressBar:
    """Shows how far a run has come; subclasses draw the line."""

    def __init__(self, epochs: int, most: bool = False) -> None:
        self._epochs, self._most = epochs, most
        self._pace = Pace(epochs)
        self._drawn = 0.0
        self._rates = ""

    def begun(self, model: MaskedModel) -> None:
        """Start the clock and show an empty bar, and the model's caution if it has one."""
        self._pace.begin()
        if model.caution:
            self.noted(model.caution)
        self._draw(0.0)

    def noted(self, text: str) -> None:
        """Print a note."""
        print(printable(f"note: {text}"), file=sys.stderr, flush=True)

    def moved(self, state: Chains, epoch: int, passes: int) -> None:
        """Draw anew, unless the last frame is too recent."""
        if time.monotonic() - self._drawn >= 1 / _FRAMES_PER_SECOND:
            self._draw(epoch + 0.5, passes)

    def epoch_ended(self, epoch: int, values: Traces, passes: int) -> None:
        """Keep the rates of the epoch; draw anew, unless the last frame is too recent."""
        self._rates = rates(values)
        done = epoch + 1
        if done == self._epochs or time.monotonic() - self._drawn >= 1 / _FRAMES_PER_SECOND:
            self._draw(done, passes)

    def _draw(self, done: float, passes: int | None = None) -> None:
        done = self._pace.reached(done)
        text = f"epoch {int(done)}/{self._epochs}"
        if passes is not None:
            self._drawn = time.monotonic()
            speed = paced(self._pace, done, self._epochs, passes, self._most)
            text += f"  {speed}  {self._rates}"
        self.draw(done / self._epochs, text)

    def draw(self, share: float, text: str) -> None:
        """Draw the line."""
        raise NotImplementedError

    def close(self) -> None:
        """Take the line away."""

    def __enter__(self) -> ProgressBar:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


class TerminalBar(ProgressBar):
    """A line of a terminal, which goes when the run has ended."""

    def __init__(self, epochs: int, most: bool = False, console: Console | None = None) -> None:
        super().__init__(epochs, most)
        self._live = Live(
            console=console or PrintableConsole(stderr=True),
            auto_refresh=False,
            transient=True,
            # What the user's own code prints goes above the bar, but stays where it is sent.
            redirect_stdout=sys.stdout.isatty(),
        )

    def draw(self, share: float, text: str) -> None:
        """Draw the line."""
        if not self._live.is_started:
            self._live.start()
        full = round(share * _WIDTH)
        line = Text("━" * full, style="cyan") + Text("━" * (_WIDTH - full), style="dim")
        self._live.update(line + Text(f"  {text}", style="default"), refresh=True)

    def close(self) -> None:
        """Take the line away."""
        self._live.stop()


class NotebookBar(ProgressBar):
    """A line below the cell of a notebook, which goes when the run has ended."""

    def __init__(self, epochs: int, most: bool = False) -> None:
        super().__init__(epochs, most)
        self._shown: Any = None

    def draw(self, share: float, text: str) -> None:
        """Draw the line."""
        self._show(f'<progress value="{share:.3f}" max="1"></progress> {escape(printable(text))}')

    def close(self) -> None:
        """Take the line away."""
        if self._shown is not None:
            self._show("")

    def _show(self, markup: str) -> None:
        from IPython import display

        if self._shown is None:
            self._shown = display.display(display.HTML(markup), display_id=True)
        else:
            self._shown.update(display.HTML(markup))


class NoBar:
    """Shows nothing."""

    def __enter__(self) -> None:
        return None

    def __exit__(self, *_: object) -> None:
        """Nothing to clean up."""


def in_notebook() -> bool:
    """Whether this is the kernel of a notebook."""
    # Whoever has not imported IPython is not in a notebook.
    shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    return shell is not None and hasattr(shell, "kernel")


def progress_bar(epochs: int, most: bool = False, *, shown: bool = True) -> ProgressBar | NoBar:
    """Return the bar of a run: for a notebook, for a terminal, or none.

    With `most`, the run may end before its last epoch.
    """
    if shown and in_notebook():
        return NotebookBar(epochs, most)
    if shown and sys.stderr.isatty():
        return TerminalBar(epochs, most)
    return NoBar()
