"""A run that was started from the page: in a thread of its own, watched and stopped from outside.

It is written by the same function as any other run, so that in the end it is one.
"""

from __future__ import annotations

import math
import sys
import time
import traceback
from datetime import UTC, datetime
from pathlib import Path
from threading import Event, Lock, Thread
from typing import Any

from maskov.config import ModelSource
from maskov.errors import InputError, Interrupted, MaskovError
from maskov.models import load
from maskov.models.base import MaskedModel
from maskov.runs.eta import Pace
from maskov.sampling import sample
from maskov.types import Chains, Traces
from maskov.ui.report.json_data import plain
from maskov.ui.viewer.run_list import id_of
from maskov.ui.viewer.run_request import WantedRun

_FRAME_SECONDS = 1 / 8
_CHECKPOINT_SECONDS = 10.0
_KEPT_SAMPLES = 10  # of each chain, evenly over the epochs
# How many runs a server starts in all: a page must not fill a disk.
MOST_STARTED = 50


class Live:
    """One run: what a listener heard of it last, for any number of pages to read."""

    def __init__(self, wanted: WantedRun, path: Path, device: str) -> None:
        self._wanted, self._path, self._device = wanted, path, device
        self._lock, self._asked_to_stop = Lock(), Event()
        self._pace = Pace(wanted.epochs)
        self._model: MaskedModel | None = None
        self._drawn = 0.0
        # Of kernels that know none on the way: those of the last epoch that ended.
        self._energies: dict[int, float] = {}
        self._seen: dict[str, Any] = {
            "status": "loading the model", "message": "", "running": True, "epoch": 0, "chains": [],
            "passes": 0, "per_second": None, "seconds_left": None, "accepted": None, "novel": None,
            "energy_raw": [], "energy_norm": [], "notes": [],
        }  # fmt: skip
        self._version = 0
        self._thread = Thread(target=self._work, name="live run", daemon=True)

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def stop(self, patience: float | None = 0.0) -> None:
        """Ask the run to end at its next batch, saved; wait for it so many seconds."""
        self._asked_to_stop.set()
        self._thread.join(patience)

    @property
    def running(self) -> bool:
        """Whether the run is still under way."""
        return self._thread.is_alive()

    def seen(self, after: int = -1) -> dict[str, Any]:
        """Return what is known now; only the version where nothing has changed since `after`."""
        with self._lock:
            if self._version == after:
                return {"version": self._version}
            return {
                "version": self._version,
                "id": id_of(self._path),
                "name": self._path.name,
                "wanted": self._wanted.model_dump(),
                "saved": (self._path / "manifest.json").is_file(),
                **plain(self._seen),
            }

    def _note(self, **changes: Any) -> None:
        with self._lock:
            self._seen |= changes
            self._version += 1

    def _work(self) -> None:
        try:
            self._run()
            self._note(status="finished", running=False, seconds_left=None)
        except Interrupted:
            self._note(status="stopped", running=False, seconds_left=None)
        except (MaskovError, OSError) as error:
            self._note(status="failed", message=str(error), running=False)
        except Exception:
            # Whatever it was must not leave a page waiting for a run that is no more.
            traceback.print_exc(file=sys.stderr)
            self._note(status="failed", message="an error of maskov's own", running=False)

    def _run(self) -> None:
        wanted = self._wanted
        model = load(wanted.model, self._device)
        if self._asked_to_stop.is_set():
            raise Interrupted("asked to stop")
        run = sample(
            model,
            wanted.kernel(),
            wanted.schedule(),
            chains=wanted.chains,
            length=wanted.length,
            seed=wanted.seed,
            thin=max(1, wanted.epochs // _KEPT_SAMPLES),
            out=self._path,
            checkpoint_seconds=_CHECKPOINT_SECONDS,
            listener=self,
            stop=self._asked_to_stop.is_set,
            source=ModelSource(wanted.model),
        )
        # On the way chains may be further than the epoch that is written; here all have ended.
        self._note(chains=self._ended(run.traces["tokens"][-1].tolist()))

    # What a listener hears.

    def begun(self, model: MaskedModel) -> None:
        """Hear that the first step is next."""
        self._model = model
        self._pace.begin()
        notes = [*self._seen["notes"], *([model.caution] if model.caution else [])]
        self._note(status="sampling", notes=notes)

    def noted(self, text: str) -> None:
        """Keep it for the page."""
        self._note(notes=[*self._seen["notes"], text])

    def moved(self, state: Chains, epoch: int, passes: int) -> None:
        """Keep what the chains hold, a few times a second."""
        now = time.monotonic()
        if now - self._drawn < _FRAME_SECONDS:
            return
        self._drawn = now
        assert self._model is not None
        energies = self._energies_of(state)
        chains = [
            {"chain": int(state.chain[row]), "energy": energy, "words": self._words(state, row)}
            for row, energy in enumerate(energies)
        ]
        self._note(
            chains=chains,
            epoch=epoch,
            passes=passes,
            per_second=self._pace.passes_per_second(passes),
            seconds_left=self._pace.seconds_left(epoch + 0.5),
        )

    def epoch_ended(self, epoch: int, values: Traces, passes: int) -> None:
        """Keep the rates and the mean energies of the epoch."""
        steps = max(int(values["steps"].sum()), 1)
        means = {name: float(values[name].mean()) for name in ("energy_raw", "energy_norm")}
        self._energies = dict(enumerate(values[f"energy_{self._wanted.energy}"].tolist()))
        self._note(
            epoch=epoch + 1,
            passes=passes,
            per_second=self._pace.passes_per_second(passes),
            seconds_left=self._pace.seconds_left(epoch + 1),
            accepted=values["accepted"].sum() / steps,
            novel=values["novel"].sum() / steps,
            **{name: [*self._seen[name], mean] for name, mean in means.items()},
        )

    def _ended(self, tokens: list[list[int]]) -> list[dict[str, Any]]:
        """Return the chains as the last epoch left them: what the run came to."""
        assert self._model is not None
        return [
            {
                "chain": chain,
                "energy": self._energies[chain],
                "words": self._model.token_strings(ids),
            }
            for chain, ids in enumerate(tokens)
        ]

    def _energies_of(self, state: Chains) -> list[float]:
        """Return the energies of some chains, as of the last epoch where they know none."""
        if state.energy is not None:
            return list(state.energy.tolist())
        return [self._energies.get(chain, math.nan) for chain in state.chain.tolist()]

    def _words(self, state: Chains, row: int) -> list[str]:
        assert self._model is not None
        return self._model.token_strings(state.tokens[row, : int(state.lengths[row])].tolist())


class LiveRuns:
    """The runs that pages start: one at a time, and not too many in all."""

    def __init__(self, home: Path, device: str = "auto") -> None:
        self._home, self._device = home, device
        self._lock = Lock()
        self._started = 0
        self.current: Live | None = None

    def start(self, wanted: WantedRun) -> Live:
        """Begin a run, unless one is under way or enough were begun."""
        with self._lock:
            if self.current is not None and self.current.running:
                raise InputError("a run is under way: stop it, or wait for it to end.")
            if self._started >= MOST_STARTED:
                raise InputError(
                    f"this server has started {MOST_STARTED} runs, which is all it will; start it "
                    "again, or use `maskov sample`."
                )
            self._started += 1
            when = datetime.now(UTC).strftime("%Y%m%d-%H%M%S")
            path = self._home / f"page-{when}-{self._started:02d}"
            self.current = Live(wanted, path, self._device)
            self.current.start()
            return self.current

    def close(self, patience: float) -> None:
        """End what is under way, saved."""
        if self.current is not None:
            self.current.stop(patience)
