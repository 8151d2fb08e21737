"""Progress of a run on the terminal: a live view of its chains, plain lines, or nothing."""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from maskov.runs.eta import Pace, in_words
from maskov.ui.escaping import PrintableConsole, printable

if TYPE_CHECKING:
    from maskov.models.base import MaskedModel
    from maskov.types import Chains, Traces

_FRAMES_PER_SECOND = 12
_SHOWN_CHAINS = 8
_PLAIN_LINES = 10
# Plain output is silent for so many seconds, or for this share of the run so far.
_SILENCE, _SILENT_SHARE = 5.0, 0.25


class PlainProgress:
    """About ten lines per run, for logs and pipes, and one where nothing was said for a while."""

    def __init__(self, epochs: int, most: bool = False) -> None:
        self._epochs = epochs
        self._most = most
        self._every = max(1, epochs // _PLAIN_LINES)
        self._pace = Pace(epochs)
        self._started = self._said = time.monotonic()
        self._status = "starting"

    def begun(self, model: MaskedModel) -> None:
        """Start the clock and print the model's caution, if it has one."""
        self._pace.begin()
        self._status = "computing the first energies"
        if model.caution:
            self.noted(model.caution)

    def worked(self) -> None:
        """Print how far the run is, unless that was said a moment ago."""
        now = time.monotonic()
        since = now - self._started
        if now - self._said < max(_SILENCE, _SILENT_SHARE * since):
            return
        self._said = now
        print(f"{self._status}  ({in_words(since)})", file=sys.stderr, flush=True)

    def noted(self, text: str) -> None:
        """Print a note."""
        print(printable(f"note: {text}"), file=sys.stderr, flush=True)

    def moved(self, state: Chains, epoch: int, passes: int) -> None:
        """Keep the steps of the epoch for `worked`."""
        step = int(state.epoch_step.max()) if len(state.chain) else 0
        done = self._pace.reached(epoch + 0.5)
        speed = paced(self._pace, done, self._epochs, passes, self._most)
        self._status = f"epoch {math.ceil(done)}/{self._epochs}  step {step:,}  {speed}"

    def epoch_ended(self, epoch: int, values: Traces, passes: int) -> None:
        """Print the rates of the epoch."""
        done = self._pace.reached(epoch + 1)
        speed = paced(self._pace, done, self._epochs, passes, self._most)
        if (epoch + 1) % self._every and epoch + 1 < self._epochs:
            return
        self._said = time.monotonic()
        line = f"epoch {math.ceil(done)}/{self._epochs}  {rates(values)}  {speed}"
        print(line, file=sys.stderr, flush=True)

    def __enter__(self) -> PlainProgress:
        return self

    def __exit__(self, *_: object) -> None:
        """Nothing to clean up."""


class LiveView:
    """A few chains, redrawn several times per second; changed tokens are highlighted."""

    def __init__(
        self, model: MaskedModel, epochs: int, console: Console, most: bool = False
    ) -> None:
        self._model = model
        self._epochs = epochs
        self._most = most
        self._live = Live(console=console, auto_refresh=False, transient=True)
        self._pace = Pace(epochs)
        self._started = self._drawn = time.monotonic()
        self._before: list[list[str]] = []
        self._footer = ""
        self._shown = False

    def begun(self, model: MaskedModel) -> None:
        """Start the clock and print the model's caution, if it has one."""
        self._pace.begin()
        if model.caution:
            self.noted(model.caution)

    def worked(self) -> None:
        """Show that the run is at work before there are chains to show."""
        now = time.monotonic()
        if self._shown or now - self._drawn < 1:
            return
        self._drawn = now
        text = f"computing the first energies  ({in_words(now - self._started)})"
        self._live.update(Text(text, style="dim"), refresh=True)

    def noted(self, text: str) -> None:
        """Print a note above the chains."""
        self._live.console.print(f"note: {text}", style="yellow", highlight=False)

    def moved(self, state: Chains, epoch: int, passes: int) -> None:
        """Redraw, unless the last frame is too recent."""
        now = time.monotonic()
        if now - self._drawn < 1 / _FRAMES_PER_SECOND:
            return
        self._drawn, self._shown = now, True
        done = self._pace.reached(epoch + 0.5)
        speed = paced(self._pace, done, self._epochs, passes, self._most)
        status = f"epoch {math.ceil(done)}/{self._epochs}  {speed}"
        self._live.update(
            Group(self._table(state), Text(f"{status}  {self._footer}", style="dim")), refresh=True
        )

    def epoch_ended(self, epoch: int, values: Traces, passes: int) -> None:
        """Keep the rates for the line below the chains."""
        self._footer = rates(values)

    def _table(self, state: Chains) -> Table:
        table = Table(box=None, show_header=False, padding=(0, 1))
        table.add_column(justify="right", style="dim")
        table.add_column(justify="right", style="cyan")
        table.add_column(overflow="fold")
        shown = min(_SHOWN_CHAINS, len(state.chain))
        words = []
        for row in range(shown):
            ids = state.tokens[row, : int(state.lengths[row])].tolist()
            words.append(self._model.token_strings(ids))
            energy = "" if state.energy is None else f"{float(state.energy[row]):.1f}"
            old = self._before[row] if row < len(self._before) else words[row]
            table.add_row(str(int(state.chain[row])), energy, _changed(words[row], old))
        self._before = words
        return table

    def __enter__(self) -> LiveView:
        self._live.__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        self._live.__exit__(*error)


def _changed(words: list[str], before: list[str]) -> Text:
    """Join tokens into text; those that differ from the previous frame are bold."""
    line = Text()
    for position, word in enumerate(words):
        changed = position >= len(before) or before[position] != word
        # Vocabularies mark subwords differently: ## inside a word, Ġ or ▁ at its start.
        line.append("" if word.startswith("##") or not position else " ")
        shown = word.removeprefix("##").replace("Ġ", "").replace("▁", "")
        line.append(printable(shown), style="bold yellow" if changed else "")
    return line


def rates(values: Traces) -> str:
    """Return the mean energies and the rates of an epoch."""
    steps = max(int(values["steps"].sum()), 1)
    names = ["raw", "norm"]
    if all(math.isnan(values[f"energy_{name}"].mean()) for name in names):
        names = ["target"]
    means = {name: float(values[f"energy_{name}"].mean()) for name in names}
    # Energies that were not traced in this epoch are NaN.
    parts = [f"E_{name} {mean:.2f}" for name, mean in means.items() if not math.isnan(mean)]
    parts += [f"{name} {values[name].sum() / steps:.2f}" for name in ("accepted", "novel")]
    return "  ".join(parts)


def paced(pace: Pace, done: float, epochs: int, passes: int, most: bool) -> str:
    """Return the speed and, once it can be estimated, the time left, or the `most` it can be."""
    left = pace.seconds_left(done)
    about = "at most" if most else "about"
    eta = "" if left is None or done >= epochs else f"  {about} {in_words(left)} left"
    return f"{pace.passes_per_second(passes):,.0f} passes/s{eta}"


Progress = PlainProgress | LiveView


def watched_stop(stop: Callable[[], bool], view: Progress | None) -> Callable[[], bool]:
    """Return `stop`, which a run asks between batches, with the view told that it is at work."""
    if view is None:
        return stop

    def asked() -> bool:
        view.worked()
        return stop()

    return asked


def progress_for(
    model: MaskedModel, epochs: int, quiet: bool, most: bool = False
) -> Progress | None:
    """Choose the view: live on a terminal, plain lines elsewhere, nothing when quiet.

    With `most`, the run may end before its last epoch.
    """
    if quiet:
        return None
    if not sys.stderr.isatty():
        return PlainProgress(epochs, most)
    return LiveView(model, epochs, PrintableConsole(stderr=True), most)
