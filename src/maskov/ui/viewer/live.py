"""Runs that pages start: each in its own thread, with its progress readable at any time.

They use the same `run_chains` as the commands, and end up as ordinary run folders.
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
from maskov.sampling import run_chains
from maskov.types import Chains, Traces
from maskov.ui.report.formats import json_safe
from maskov.ui.viewer.run_list import id_of
from maskov.ui.viewer.run_request import RunRequest

_FRAME_SECONDS = 1 / 8
_CHECKPOINT_SECONDS = 10.0
_KEPT_SAMPLES = 10  # per chain, evenly over the epochs
# Runs that one server starts in all, so that a page cannot fill the disk.
MOST_STARTED = 50


class LiveRun:
    """A run and its latest progress, for any number of pages to read."""

    def __init__(self, request: RunRequest, path: Path, device: str) -> None:
        self._request, self._path, self._device = request, path, device
        self._lock, self._asked_to_stop = Lock(), Event()
        self._pace = Pace(request.epochs)
        self._model: MaskedModel | None = None
        self._drawn = 0.0
        # Chains move in groups; those that rest stay in sight.
        self._chains: dict[int, dict[str, Any]] = {}
        # The energies after the last epoch, for kernels that do not track them.
        self._energies: dict[int, float] = {}
        self._progress: dict[str, Any] = {
            "status": "loading the model", "message": "", "running": True, "epoch": 0, "chains": [],
            "passes": 0, "per_second": None, "seconds_left": None, "accepted": None, "novel": None,
            "energy_raw": [], "energy_norm": [], "notes": [],
        }  # fmt: skip
        self._version = 0
        self._thread = Thread(target=self._work, name="live run", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def stop(self, patience: float | None = 0.0) -> None:
        """Ask the run to save and stop at its next batch; wait up to `patience` seconds."""
        self._asked_to_stop.set()
        self._thread.join(patience)

    @property
    def running(self) -> bool:
        """Whether the run is still going."""
        return self._thread.is_alive()

    def progress(self, after: int = -1) -> dict[str, Any]:
        """Return the progress, or only its version if that is still `after`."""
        with self._lock:
            if self._version == after:
                return {"version": self._version}
            return {
                "version": self._version,
                "id": id_of(self._path),
                "name": self._path.name,
                "title": self._request.name or self._path.name,
                "request": self._request.model_dump(),
                "saved": (self._path / "manifest.json").is_file(),
                **json_safe(self._progress),
            }

    def _note(self, **changes: Any) -> None:
        with self._lock:
            self._progress |= changes
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
            # Without this, pages would wait for ever.
            traceback.print_exc(file=sys.stderr)
            self._note(status="failed", message="internal error", running=False)

    def _run(self) -> None:
        request = self._request
        model = load(request.model, self._device, prefix=request.prefix)
        if self._asked_to_stop.is_set():
            raise Interrupted("asked to stop")
        run = run_chains(
            model,
            request.kernel(),
            request.schedule(),
            chains=request.chains,
            **request.start(model),
            seed=request.seed,
            thin=max(1, request.epochs // _KEPT_SAMPLES),
            out=self._path,
            name=request.name,
            checkpoint_every=_CHECKPOINT_SECONDS,
            listener=self,
            stop=self._asked_to_stop.is_set,
            source=ModelSource(request.model, prefix=request.prefix),
        )
        # Chains may have been shown ahead of the last written epoch; show their final state.
        self._note(chains=self._final_chains(run.traces["tokens"][-1].tolist()))

    # The listener interface.

    def begun(self, model: MaskedModel) -> None:
        """Note that sampling starts."""
        self._model = model
        self._pace.begin()
        notes = [*self._progress["notes"], *([model.caution] if model.caution else [])]
        self._note(status="sampling", notes=notes)

    def noted(self, text: str) -> None:
        """Keep a note for the page."""
        self._note(notes=[*self._progress["notes"], text])

    def moved(self, state: Chains, epoch: int, passes: int) -> None:
        """Keep the current tokens of the chains, a few times a second."""
        now = time.monotonic()
        if now - self._drawn < _FRAME_SECONDS:
            return
        self._drawn = now
        assert self._model is not None
        energies = self._energies_of(state)
        for row, energy in enumerate(energies):
            chain = int(state.chain[row])
            words = self._words(state, row)
            self._chains[chain] = {"chain": chain, "energy": energy, "words": words}
        self._note(
            chains=[self._chains[chain] for chain in sorted(self._chains)],
            epoch=epoch,
            passes=passes,
            per_second=self._pace.passes_per_second(passes),
            seconds_left=self._pace.seconds_left(epoch + 0.5),
        )

    def epoch_ended(self, epoch: int, values: Traces, passes: int) -> None:
        """Keep the rates and the mean energies of the epoch."""
        steps = max(int(values["steps"].sum()), 1)
        means = {name: float(values[name].mean()) for name in ("energy_raw", "energy_norm")}
        self._energies = dict(enumerate(values[f"energy_{self._request.energy}"].tolist()))
        self._note(
            epoch=epoch + 1,
            passes=passes,
            per_second=self._pace.passes_per_second(passes),
            seconds_left=self._pace.seconds_left(epoch + 1),
            accepted=values["accepted"].sum() / steps,
            novel=values["novel"].sum() / steps,
            **{name: [*self._progress[name], mean] for name, mean in means.items()},
        )

    def _final_chains(self, tokens: list[list[int]]) -> list[dict[str, Any]]:
        """Return the chains after the last epoch."""
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
        """Return the energies of some chains, or those of the last epoch if not tracked."""
        if state.energy is not None:
            return list(state.energy.tolist())
        return [self._energies.get(chain, math.nan) for chain in state.chain.tolist()]

    def _words(self, state: Chains, row: int) -> list[str]:
        assert self._model is not None
        return self._model.token_strings(state.tokens[row, : int(state.lengths[row])].tolist())


class LiveRuns:
    """The runs that pages start: one at a time, up to MOST_STARTED in all."""

    def __init__(self, home: Path, device: str = "auto") -> None:
        self._home, self._device = home, device
        self._lock = Lock()
        self._started = 0
        self.current: LiveRun | None = None

    def start(self, request: RunRequest) -> LiveRun:
        """Start a run, unless one is going or too many were started."""
        with self._lock:
            if self.current is not None and self.current.running:
                raise InputError("another run is going: stop it, or wait for it to end.")
            if self._started >= MOST_STARTED:
                raise InputError(
                    f"this server has started {MOST_STARTED} runs, its maximum; restart it, or use "
                    "`maskov sample`."
                )
            self._started += 1
            when = datetime.now(UTC).strftime("%Y%m%d-%H%M%S")
            path = self._home / f"page-{when}-{self._started:02d}"
            self.current = LiveRun(request, path, self._device)
            self.current.start()
            return self.current

    def close(self, patience: float) -> None:
        """Save and stop the current run."""
        if self.current is not None:
            self.current.stop(patience)
