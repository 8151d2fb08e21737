"""The runs that the viewer shows, under ids that only the server maps to folders.

For each: a summary, a verdict, its report, and its chains, replayed step by step.
"""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache, partial
from pathlib import Path
from threading import Lock
from typing import Any

from maskov.errors import MaskovError, refuse
from maskov.models.base import MaskedModel
from maskov.replay import Replayer, why_not
from maskov.runs import Run
from maskov.runs.manifest import load_model
from maskov.ui.detokenise import changed_parts, spelled
from maskov.ui.report import PAGE_DIGITS, build, json_safe, with_error

_ID_DIGITS = 12
# Only the newest are listed.
_MOST_RUNS = 1000
# Samples of a run that its page lists, evenly chosen if there are more.
MOST_SAMPLES = 5000
# Maximum tokens of a chain in one response, a few megabytes.
MOST_TOKENS = 1_000_000
_KEPT_MODELS, _KEPT_REPLAYERS, _KEPT_EPOCHS = 4, 4, 256
_TOLD = ("energy_raw", "energy_norm", "energy_target", "accepted", "novel", "steps")
# Of a step, whole sequences are told as `texts`.
_WHOLE = ("before", "proposed")
# When the latest epoch was written.
Stamp = tuple[int, int]


@dataclass(frozen=True)
class OpenedRun:
    """A run; `stamp` changes whenever it progresses."""

    path: Path
    stamp: Stamp
    run: Run = field(compare=False)

    @property
    def title(self) -> str:
        """What its user called the run, or else its folder."""
        return self.run.manifest.name or self.path.name


class RunList:
    """Run folders, and folders of run folders, scanned on every request.

    New runs are created in `home`, which need not exist yet.
    """

    def __init__(self, places: Sequence[Path], home: Path) -> None:
        self.home = home.resolve()
        self._places = [place.resolve() for place in places]
        for given, place in zip(places, self._places, strict=True):
            refuse(
                (
                    not place.is_dir(),
                    f"'{given}' is not a folder; give run folders or folders of runs.",
                ),
                (
                    not _runs_of(place),
                    f"'{given}' has no runs: give a folder written by `maskov sample --out`, or a "
                    "folder of such folders.",
                ),
            )

    def paths(self) -> dict[str, Path]:
        """Return the folders by their ids, the newest first."""
        runs = {path for place in (*self._places, self.home) for path in _runs_of(place)}
        newest = sorted(runs, key=lambda path: (-_changed(path / "manifest.json"), str(path)))
        return {id_of(path): path for path in newest[:_MOST_RUNS]}

    def summaries(self) -> list[dict[str, Any]]:
        """Return a summary of each run; one that cannot be read has an `error`."""
        lines = []
        for run_id, path in self.paths().items():
            line = {
                "id": run_id, "name": path.name, "title": path.name, "folder": path.parent.name
            }  # fmt: skip
            try:
                lines.append(line | _summary(path, stamp_of(path)))
            except MaskovError as error:
                lines.append(line | {"error": str(error)})
        return lines


@lru_cache(_MOST_RUNS)
def _summary(path: Path, stamp: Stamp) -> dict[str, Any]:
    run = Run.open(path)
    told = vars(run.summary()) | {
        "created": run.manifest.created,
        "title": run.manifest.name or path.name,
        "particles": run.manifest.particles,
    }
    return json_safe(told, PAGE_DIGITS)  # type: ignore[no-any-return]


@lru_cache(_MOST_RUNS)
def verdict(path: Path, stamp: Stamp) -> dict[str, Any]:
    """Return the verdict of a run with its headline and tone."""
    return Run.open(path).diagnose().verdict.to_dict()


def overview(opened: OpenedRun) -> dict[str, Any]:
    """Return the run's report, and what its traces lack for its chains to be replayed."""
    report = build([opened.run], samples=MOST_SAMPLES)["runs"][0]
    del report["diagnosis"]  # what the page shows of it has its own fields
    return json_safe(report, PAGE_DIGITS) | {  # type: ignore[no-any-return]
        "id": id_of(opened.path),
        "name": opened.path.name,
        "title": opened.title,
        "why_not_played": why_not(opened.run),
        "numbers": {number["name"]: with_error(number) for number in report["numbers"]},
    }


def id_of(path: Path) -> str:
    """Return the id of a folder: a hash of its path."""
    return hashlib.sha256(str(path.resolve()).encode()).hexdigest()[:_ID_DIGITS]


def stamp_of(path: Path) -> Stamp:
    """Return when the latest epoch and the latest samples were written."""
    return _changed(path / "traces.npy"), _changed(path / "samples.jsonl")


def _runs_of(place: Path) -> list[Path]:
    """Return a run folder, or those in a folder."""
    own = (place / "manifest.json").is_file()
    files = place.glob("manifest.json" if own else "*/manifest.json")
    return [file.parent for file in files if file.is_file()]


def _changed(path: Path) -> int:
    try:
        return path.stat().st_mtime_ns
    except OSError:
        return 0


class Player:
    """Replays epochs, one at a time, and caches the latest.

    Models with remote code are loaded only with `trust`, and downloaded only with
    `allow_download`, because a run folder may be anybody's.
    """

    def __init__(
        self,
        device: str | None = None,
        trust: bool = False,
        trust_parts: bool = False,
        allow_download: bool = False,
    ) -> None:
        self._model = lru_cache(_KEPT_MODELS)(partial(
            load_model, device=device, trust_remote_code=trust, allow_download=allow_download
        ))  # fmt: skip
        self._trust_parts, self._allow_download = trust_parts, allow_download
        self._lock = Lock()
        self._replayer = lru_cache(_KEPT_REPLAYERS)(self._load)
        self._epoch = lru_cache(_KEPT_EPOCHS)(self._replay)

    def chain(self, opened: OpenedRun, chain: int) -> dict[str, Any]:
        """Return a chain as recorded: its tokens and energies at the end of each epoch."""
        with self._lock:
            replayer, model = self._replayer(opened)
            rows = replayer.tokens(chain)
            refuse((sum(map(len, rows)) > MOST_TOKENS, "this chain is too long to show."))
            traces, manifest, done = opened.run.traces, opened.run.manifest, replayer.epochs
            sources, start = manifest.inputs.sources, replayer.layout.starts[chain]
            return {
                "chain": chain,
                "texts": [spelled(model.token_strings(row)) for row in rows],
                "free": [] if replayer.layout.resizable else start.free,
                "source": None if sources is None else sources[start.template],
                "experts": {
                    name: json_safe(traces["expert_energy"][:done, chain, column].tolist())
                    for column, name in enumerate(manifest.experts)
                },
                **{name: json_safe(traces[name][:done, chain].tolist()) for name in _TOLD},
            }

    def epoch(self, opened: OpenedRun, chain: int, epoch: int) -> dict[str, Any]:
        """Return the steps of one epoch of a chain."""
        with self._lock:
            return self._epoch(opened, chain, epoch)

    def _replay(self, opened: OpenedRun, chain: int, epoch: int) -> dict[str, Any]:
        """Return an epoch with its `texts`: the tokens at first and after each accepted change."""
        replayer, model = self._replayer(opened)
        replay = replayer.epoch(chain, epoch)
        texts, steps = [spelled(model.token_strings(replay.before))], []
        for step in replay.steps:
            places = (
                [(place, 1, 1) for place in step.positions]
                if step.start is None
                else [(step.start, len(step.old), len(step.new))]
            )
            words = model.token_strings(step.before), model.token_strings(step.proposed)
            told = {name: one for name, one in vars(step).items() if name not in _WHOLE}
            steps.append(
                json_safe(told, infinities=True)
                | {"repeated": step.repeated, "parts": changed_parts(*words, places)}
            )
            if step.accepted and not step.repeated:
                texts.append(spelled(words[1]))
        return vars(replay) | {"steps": steps, "texts": texts}

    def _load(self, opened: OpenedRun) -> tuple[Replayer, MaskedModel]:
        manifest = opened.run.manifest
        model = self._model(manifest.config.model, manifest.inputs.sources)
        return Replayer(opened.run, model, self._trust_parts, self._allow_download), model
