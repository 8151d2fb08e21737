"""Progress of a run: chains on a terminal, plain lines, a bar for Python, or nothing."""

import math
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import zip_longest

from rich.console import Console, Group
from rich.live import Live
from rich.table import Column, Table
from rich.text import Text

from maskov.models.base import MaskedModel
from maskov.models.tokens import import_quietly
from maskov.types import Chains, Traces
from maskov.ui.detokenise import spelled
from maskov.ui.escaping import printable

_FRAMES_PER_SECOND = 12
_SHOWN_CHAINS = 8
_PLAIN_LINES = 10
# Plain output is silent for so many seconds, or for this share of the run so far.
_SILENCE, _SILENT_SHARE = 5.0, 0.25


def in_words(seconds: float) -> str:
    """Say a time as people do, no finer than it is known."""
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min" + (f" {whole % 60} s" if whole < 600 and whole % 60 else "")
    hours, minutes = divmod(round(whole / 60), 60)
    return f"{hours} h {minutes:02d} min"


class PlainProgress:
    """About ten lines per run, for logs and pipes, and one where nothing was said for a while.

    With `most`, the run may end before its last epoch. `unit` is what an epoch is called.
    """

    def __init__(self, epochs: int, most: bool = False, unit: str = "epoch") -> None:
        self._epochs, self._unit = epochs, unit
        self._about = "at most" if most else "about"
        self._started = self._shown = self._begun = time.monotonic()
        self._first, self._reached = math.inf, 0.0
        self._status = "starting"

    def begun(self, model: MaskedModel) -> None:
        """Start the clock and print the model's caution, if it has one."""
        self._begun = time.monotonic()
        self._status = "computing the first energies"
        if model.caution:
            self.noted(model.caution)

    def worked(self) -> None:
        """Print how far the run is, unless that was said a moment ago."""
        since = time.monotonic() - self._started
        if self._due(max(_SILENCE, _SILENT_SHARE * since)):
            self._print(f"{self._status}  ({in_words(since)})")

    def noted(self, text: str) -> None:
        """Print a note."""
        self._print(f"note: {text}")

    def moved(self, state: Chains, epoch: int, passes: int) -> None:
        """Keep the steps of the epoch for `worked`."""
        step = int(state.epoch_step.max()) if len(state.chain) else 0
        self._status = self._progress(epoch + 0.5, passes, f"step {step:,}")

    def epoch_ended(self, epoch: int, values: Traces, passes: int) -> None:
        """Print the rates of the epoch."""
        line = self._progress(epoch + 1, passes, rates(values))
        if not (epoch + 1) % max(1, self._epochs // _PLAIN_LINES) or epoch + 1 >= self._epochs:
            self._shown = time.monotonic()
            self._print(line)

    def _due(self, seconds: float) -> bool:
        """Whether nothing was shown for so long; what is shown next then begins."""
        now = time.monotonic()
        due = now - self._shown >= seconds
        self._shown = now if due else self._shown
        return due

    def _progress(self, done: float, passes: int, between: str = "") -> str:
        """Return the epoch, the speed and, once it can be estimated, the time left.

        `done` counts epochs, half an epoch where one is under way. Some chains may be behind
        others, so the most that was ever done counts. A run that continues has epochs behind it
        that took no time here: the pace is that since the epoch that was heard of first.
        """
        self._first = min(self._first, math.ceil(done) - 1)
        self._reached = done = min(max(self._reached, done), self._epochs)
        since, seen = max(time.monotonic() - self._begun, 1e-9), done - self._first
        parts = [f"{self._unit} {math.ceil(done)}/{self._epochs}", between]
        parts.append(f"{passes / since:,.0f} passes/s")
        if seen >= 1 and done < self._epochs:
            left = in_words(since * (self._epochs - done) / seen)
            parts.append(f"{self._about} {left} left")
        return "  ".join(filter(None, parts))

    def _print(self, text: str) -> None:
        print(printable(text), file=sys.stderr, flush=True)


class LiveView(PlainProgress):
    """A few chains, redrawn several times per second; changed tokens are highlighted."""

    def __init__(
        self, model: MaskedModel, live: Live, epochs: int, most: bool = False, unit: str = "epoch"
    ) -> None:
        super().__init__(epochs, most, unit)
        self._model, self._live = model, live
        self._before: list[list[str]] = []
        self._footer = ""

    def worked(self) -> None:
        """Show that the run is at work before there are chains to show."""
        if not self._before and self._due(1.0):
            text = f"computing the first energies  ({in_words(self._shown - self._started)})"
            self._live.update(Text(text, style="dim"), refresh=True)

    def _print(self, text: str) -> None:  # above the chains
        self._live.console.print(printable(text), style="yellow", highlight=False)

    def moved(self, state: Chains, epoch: int, passes: int) -> None:
        """Redraw, unless the last frame is too recent."""
        if self._due(1 / _FRAMES_PER_SECOND):
            status = f"{self._progress(epoch + 0.5, passes)}  {self._footer}"
            self._live.update(Group(self._table(state), Text(status, style="dim")), refresh=True)

    def epoch_ended(self, epoch: int, values: Traces, passes: int) -> None:
        """Keep the rates for the line below the chains."""
        self._footer = rates(values)

    def _table(self, state: Chains) -> Table:
        right = Column(justify="right", style="dim"), Column(justify="right", style="cyan")
        table = Table(*right, Column(overflow="fold"), box=None, show_header=False, padding=(0, 1))
        rows = range(min(_SHOWN_CHAINS, len(state.chain)))
        words = [
            spelled(self._model.token_strings(state.tokens[row, : state.lengths[row]].tolist()))
            for row in rows
        ]
        for row, old in zip_longest(rows, self._before[: len(words)]):
            energy = "" if state.energy is None else f"{float(state.energy[row]):.1f}"
            table.add_row(str(int(state.chain[row])), energy, _changed(words[row], old))
        self._before = words
        return table


def _changed(words: list[str], before: list[str] | None) -> Text:
    """Join spelled tokens; those that differ from the previous frame, if any, are bold."""
    line = Text()
    for word, old in zip_longest(words, words if before is None else before[: len(words)]):
        same = old is not None and old.strip() == word.strip()
        line.append(printable(word), style="" if same else "bold yellow")
    return line


def rates(values: Traces) -> str:
    """Return the mean energies and the rates of an epoch."""
    steps = max(int(values["steps"].sum()), 1)
    # Energies that were not traced in this epoch are NaN.
    means = {name: float(values[f"energy_{name}"].mean()) for name in ("raw", "norm")}
    if all(map(math.isnan, means.values())):
        means = {"target": float(values["energy_target"].mean())}
    parts = [f"E_{name} {mean:.2f}" for name, mean in means.items() if not math.isnan(mean)]
    parts += [f"{name} {values[name].sum() / steps:.2f}" for name in ("accepted", "novel")]
    return "  ".join(parts)


@contextmanager
def progress_for(
    model: MaskedModel, epochs: int, quiet: bool, most: bool = False, unit: str = "epoch"
) -> Iterator[PlainProgress | None]:
    """Yield the view: live on a terminal, plain lines elsewhere, nothing when quiet."""
    if quiet or not sys.stderr.isatty():
        yield None if quiet else PlainProgress(epochs, most, unit)
        return
    with Live(console=Console(stderr=True), auto_refresh=False, transient=True) as live:
        yield LiveView(model, live, epochs, most, unit)


class ProgressBar(PlainProgress):
    """A bar by tqdm, for Python; with `most`, a run may end before its last epoch."""

    def __init__(self, epochs: int, most: bool = False, unit: str = "epoch") -> None:
        tqdm = import_quietly("tqdm.auto")
        super().__init__(epochs, most, unit)
        self.bar = tqdm.tqdm(total=epochs, unit=unit, leave=False, desc="at most" if most else None)

    def moved(self, state: Chains, epoch: int, passes: int) -> None:
        """Show the epochs before this one, unless the last frame is too recent."""
        self._advance(epoch)

    def epoch_ended(self, epoch: int, values: Traces, passes: int) -> None:
        """Show the epochs and their rates."""
        speed = passes / max(self.bar.format_dict["elapsed"], 1e-9)
        self.bar.set_postfix_str(f"{speed:,.0f} passes/s  {rates(values)}", refresh=False)
        self._advance(epoch + 1)
        if self.bar.n == self.bar.total:
            self.bar.refresh()  # a short run may have drawn nothing since its first frame

    def _advance(self, done: int) -> None:
        # Groups of chains end their epochs in any order: the bar never goes back.
        self.bar.update(max(done - self.bar.n, 0))

    def _print(self, text: str) -> None:
        self.bar.write(printable(text), file=sys.stderr)


@contextmanager
def progress_bar(
    epochs: int, most: bool = False, unit: str = "epoch", *, shown: bool = True
) -> Iterator[PlainProgress | None]:
    """Yield the bar of a run: for a notebook, for a terminal, or none."""
    # Whoever has not imported IPython is not in a notebook.
    shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    if not shown or not (hasattr(shell, "kernel") or sys.stderr.isatty()):
        yield None
        return
    view = ProgressBar(epochs, most, unit)
    with view.bar:
        yield view
