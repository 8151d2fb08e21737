"""Runs that pages start: small ones, each by `maskov sample --out` in its own process.

Its progress is read from the run folder, which stays as a run like any other.
"""

import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryFile
from threading import Lock
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from maskov.config import check_name
from maskov.errors import InputError, MaskovError
from maskov.models import DEFAULT_MODEL
from maskov.parts import written
from maskov.runs import Run
from maskov.shipped import listed
from maskov.ui.detokenise import spelled
from maskov.ui.report.formats import json_safe
from maskov.ui.viewer.runs import id_of

# Runs that one server starts in all, so that a page cannot fill the disk.
MOST_STARTED = 50
_LONGEST_SAID = 1 << 20
MOST_CHAINS, MOST_EPOCHS, MOST_TOKENS = 16, 200, 64
LONGEST_TEXT, LONGEST_RULE, LONGEST_NAME = 500, 200, 100
# What is seen of a run before its first epoch has ended.
_NOTHING: dict[str, Any] = {
    "epoch": 0, "passes": 0, "chains": [], "accepted": None, "novel": None, "energy_raw": [],
    "energy_norm": [],
}  # fmt: skip
METHODS = {
    "mh": "Metropolis–Hastings: exact",
    "gibbs": "degenerate Gibbs: accepts everything, has no target",
    "mask-predict": "mask-predict: greedy, has no target",
}


class RunRequest(BaseModel):
    """The settings of a run, validated strictly; unknown fields are refused.

    With a `text`, chains start from it and have its length; `freeze` names those of its tokens that
    stay. `prefix` is a text that the model reads before every sequence.
    """

    model_config = ConfigDict(strict=True, extra="forbid", allow_inf_nan=False)

    model: str = Field(default=DEFAULT_MODEL, max_length=100)
    method: Literal["mh", "gibbs", "mask-predict"] = "mh"
    energy: Literal["raw", "norm"] = "raw"
    chains: int = Field(default=6, ge=1, le=MOST_CHAINS)
    length: int = Field(default=16, ge=1, le=MOST_TOKENS)
    epochs: int = Field(default=30, ge=1, le=MOST_EPOCHS)
    temperature: float = Field(default=1.0, ge=0.1, le=5.0)
    seed: int = Field(default=0, ge=0, le=2**32 - 1)
    name: str = Field(default="", max_length=LONGEST_NAME)
    text: str = Field(default="", max_length=LONGEST_TEXT)
    freeze: str = Field(default="", max_length=LONGEST_RULE)
    prefix: str = Field(default="", max_length=LONGEST_RULE)

    def check(self) -> None:
        """Refuse what the fields alone cannot tell."""
        check_name(self.name)
        lines = self.text + self.freeze + self.prefix
        refusals = {
            "give the text, frozen tokens and prefix as one line each.": any(
                ord(sign) < 32 for sign in lines
            ),
            "no such model on this server.": self.model not in known_models(),
            "frozen tokens are those of a text: give one to start from.": self.freeze
            and not self.text,
            # The command would read it: a page must not name files of this machine.
            "frozen tokens are positions, words or re:PATTERN, not a file.": os.path.isfile(
                self.freeze
            ),
            "mask-predict starts from all masked: leave the text empty.": self.text
            and self.method == "mask-predict",
        }
        for sentence, holds in refusals.items():
            if holds:
                raise InputError(sentence)

    def arguments(self, out: Path, device: str) -> list[str]:
        """Return the arguments of `maskov sample`; a starting text is its standard input."""
        # Every epoch is a sample, so that the page can show the chains after each.
        model = f"{self.model}(prefix={written(self.prefix)})" if self.prefix else self.model
        given: dict[str, Any] = {
            "model": model, "kernel": self.method, "chains": self.chains, "thin": 1,
            "epochs": self.epochs, "seed": self.seed, "name": self.name, "freeze": self.freeze,
            "out": out, "device": device, "burn-in": 0,
        }  # fmt: skip
        given |= {"start-text": "-"} if self.text else {"length": self.length}
        if self.method == "mh":
            given |= {"energy": self.energy, "moves": "site"}
        if self.method != "mask-predict":
            given["proposal"] = f"temperature={self.temperature}"
        # One word for each option: a value that begins with a dash is not an option.
        return ["sample", *(f"--{name}={one}" for name, one in given.items() if one != "")]


def known_models() -> dict[str, str]:
    """Return the names and summaries of the models that a page may run."""
    return {model.name: model.summary for model in listed() if model.kind == "masked"}


def choices() -> dict[str, Any]:
    """Return the choices, bounds and defaults of the form."""
    fields = RunRequest.model_json_schema()["properties"]
    return {"models": known_models(), "methods": METHODS, "fields": fields}


class LiveRun:
    """A process and what its run folder says of its progress."""

    def __init__(self, request: RunRequest, path: Path, device: str, number: int) -> None:
        self._request, self._path, self._number = request, path, number
        self._begun = time.monotonic()
        self._asked_to_stop = False
        self._said = TemporaryFile()  # noqa: SIM115 - kept as long as the run is shown
        self._process = subprocess.Popen(
            [sys.executable, "-m", "maskov", *request.arguments(path, device)],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=self._said,
            start_new_session=True,  # Ctrl-C of the server reaches it once, by `stop`
        )
        assert self._process.stdin is not None
        with suppress(BrokenPipeError), self._process.stdin as stdin:
            stdin.write(request.text.encode())

    def stop(self, patience: float = 0.0) -> None:
        """Ask the run to save and stop; if given patience, end it when that has passed."""
        if self.running and not self._asked_to_stop:  # a second signal would not save
            self._asked_to_stop = True
            self._process.send_signal(signal.SIGINT)
        if patience:
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(patience)
            self._process.kill()
            self._process.wait()

    @property
    def running(self) -> bool:
        """Whether the process is still going."""
        return self._process.poll() is None

    def progress(self, after: int = -1) -> dict[str, Any]:
        """Return the progress, or only its version if that is still `after`."""
        running = self.running  # before the folder is read, so that the last state is the whole
        saved = (self._path / "manifest.json").is_file()
        seen = _NOTHING
        if saved:
            with suppress(MaskovError):  # it may be read while it is being written
                seen = self._seen(Run.open(self._path))
        epoch = seen["epoch"]
        # It grows with each change, and no two runs of a server share one.
        version = self._number * 10 * MOST_EPOCHS + epoch + saved + 2 * (not running)
        if version == after:
            return {"version": version}
        lines, known = self._lines(), running and epoch > 0
        since = max(time.monotonic() - self._begun, 1e-9)
        status, message = "sampling" if saved else "loading the model", ""
        if not running:
            ended = "stopped" if self._asked_to_stop else "failed"
            status = "finished" if self._process.returncode == 0 else ended
        if status == "failed":
            message = (lines or ["the process was ended"])[-1].removeprefix("maskov: ")
        return {
            "version": version,
            "id": id_of(self._path),
            "name": self._path.name,
            "title": self._request.name or self._path.name,
            "request": self._request.model_dump(),
            "saved": saved,
            "running": running,
            "status": status,
            "message": message,
            "notes": [line[6:] for line in lines if line.startswith("note: ")],
            "per_second": seen["passes"] / since if known else None,
            "seconds_left": since / epoch * (self._request.epochs - epoch) if known else None,
            **json_safe(seen),
        }

    def _seen(self, run: Run) -> dict[str, Any]:
        """Return what the folder says after the latest epoch of which all samples are kept."""
        samples, traces, chains = run.samples, run.traces, run.manifest.chains
        done = len(samples) // chains
        if not done:
            self._begun = time.monotonic()  # loading does not count
            return _NOTHING
        steps = max(int(traces["steps"][done - 1].sum()), 1)
        energy = f"energy_{self._request.energy}"
        return {
            "epoch": done,
            "passes": int(traces["passes"][:done].sum()),
            "chains": [
                {"chain": one.chain, "energy": getattr(one, energy), "words": spelled(one.tokens)}
                for one in samples[(done - 1) * chains : done * chains]
            ],
            **{name: float(traces[name][done - 1].sum() / steps) for name in ("accepted", "novel")},
            **{
                name: traces[name][:done].mean(1).tolist() for name in ("energy_raw", "energy_norm")
            },
        }

    def _lines(self) -> list[str]:
        """Return what the process has said; the position of the file is the process's, too."""
        content = os.pread(self._said.fileno(), _LONGEST_SAID, 0)
        return content.decode(errors="replace").splitlines()


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
            self.current = LiveRun(request, path, self._device, self._started)
            return self.current

    def close(self, patience: float) -> None:
        """Save and stop the current run."""
        if self.current is not None:
            self.current.stop(patience)
