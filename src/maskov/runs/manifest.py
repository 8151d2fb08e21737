"""Read a manifest as what it is: a file that anybody may have written.

Whatever passes here can be worked with; nothing in it makes a program run, allocate without bounds
or write outside its folder.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from maskov.errors import InputError, RunError
from maskov.execution.pilot import CHOICES
from maskov.models.precision import PRECISIONS
from maskov.runs.describe import build_schedule
from maskov.starts import STARTS

# Epochs × chains of one run: its traces are kept in full.
MOST_TRACED = 10**8
# Tokens of a sequence, and anything else that is counted on the way; far beyond what is of use.
_MOST = 10**7

# What a manifest must say for a run to be read.
_NEEDED = {
    "budget", "causal_models", "chains", "chains_each", "kernel", "leaves_invariant", "model",
    "notes", "origin", "schedule", "seed", "signature", "start", "thin", "versions",
}  # fmt: skip

# Whole numbers and what they must lie between, where they are given.
_NUMBERS = {
    "chains": (1, MOST_TRACED),
    "chains_each": (1, MOST_TRACED),
    "seed": (0, 2**64 - 1),
    "thin": (0, MOST_TRACED),
    "budget": (1, 2**40),
    "width": (1, _MOST),
    "shortest": (1, _MOST),
    "resident": (1, 2**40),
    "lanes": (0, _MOST),
    "threads": (1, 1024),
}
_KINDS = {
    "model": dict, "kernel": dict, "schedule": dict, "origin": dict, "causal_models": dict,
    "versions": dict, "notes": list, "signature": str, "start": str, "leaves_invariant": bool,
    "asynchronous": bool, "trace": str,
}  # fmt: skip
_CHOICES = {"start": STARTS, "trace": ("every", "kept")}
_SOURCE = {"name": str, "tokenizer": (str, type(None)), "trust_remote_code": bool}


def read(folder: Path) -> dict[str, Any]:
    """Return the manifest of a run folder, checked."""
    try:
        manifest = json.loads((folder / "manifest.json").read_text(encoding="utf-8"))
        format_ = manifest["format"]
        missing = sorted(_NEEDED - manifest.keys())
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise RunError(f"'{folder}' is no run folder: it has no readable manifest.") from error
    if format_ != 1:
        raise RunError(
            f"'{folder}' was written by another version of maskov ({str(format_)[:20]})."
        )
    if missing:
        raise RunError(f"the manifest of '{folder}' is damaged: it lacks '{missing[0]}'.")
    wrong = _wrong(manifest)
    if wrong is not None:
        raise RunError(f"the manifest of '{folder}' is damaged: its '{wrong}' cannot be.")
    return dict(manifest)


def _wrong(manifest: dict[str, Any]) -> str | None:
    """Name the first entry that cannot be, if any."""
    for name, kind in _KINDS.items():
        if name in manifest and type(manifest[name]) is not kind:
            return name
    for name, bounds in _NUMBERS.items():
        if name in manifest and not _is_number(manifest[name], *bounds):
            return name
    for name, choices in _CHOICES.items():
        if name in manifest and manifest[name] not in choices:
            return name
    if not all(isinstance(note, str) for note in manifest["notes"]):
        return "notes"
    if not _is_schedule(manifest):
        return "schedule"
    if not _is_model(manifest["model"]):
        return "model"
    if "pilot" in manifest and not _is_pilot(manifest["pilot"]):
        return "pilot"
    if not isinstance(manifest["kernel"].get("name"), str):
        return "kernel"
    return None if _is_origin(manifest) else "origin"


def _is_number(value: Any, least: int, most: int) -> bool:
    return type(value) is int and least <= value <= most


def _is_schedule(manifest: dict[str, Any]) -> bool:
    schedule = manifest["schedule"]
    counts = ("epochs", "burn_in", "forced_epochs")
    if not all(_is_number(schedule.get(name), 0, MOST_TRACED) for name in counts):
        return False
    try:
        build_schedule(schedule)
    except (InputError, KeyError, TypeError, ValueError, OverflowError):
        return False
    return bool(schedule["epochs"] * manifest["chains"] <= MOST_TRACED)


def _is_pilot(found: Any) -> bool:
    """Whether this can be what the pilots chose; older runs do not say since when."""
    if not isinstance(found, dict):
        return False
    promised = found.get("moves_per_pass")
    return (
        type(found.get("nearest")) is int
        and found["nearest"] in CHOICES
        and isinstance(promised, int | float)
        and abs(promised) < _MOST
        and _is_number(found.get("since", 0), 0, MOST_TRACED)
    )


def _is_model(model: dict[str, Any]) -> bool:
    source = model.get("source")
    named = ("name", "fingerprint", "device")
    return (
        all(isinstance(model.get(name), str) for name in named if name in model)
        and isinstance(model.get("name"), str)
        and isinstance(source, dict)
        and isinstance(source.get("name"), str)
        and all(
            key in _SOURCE and isinstance(value, _SOURCE[key])  # type: ignore[arg-type]
            for key, value in source.items()
        )
        and model.get("precision", "float32") in PRECISIONS
    )


def _is_origin(manifest: dict[str, Any]) -> bool:
    """Whether the sequences are described, as many as there are chains."""
    origin, each, chains = manifest["origin"], manifest["chains_each"], manifest["chains"]
    if origin.keys() == {"length"}:
        span = origin["length"]
        return (
            isinstance(span, list)
            and len(span) == 2
            and all(_is_number(length, 1, _MOST) for length in span)
            and bool(each == chains)
        )
    if origin.keys() == {"texts"}:
        return _are_texts(origin["texts"]) and bool(each == chains)
    if origin.keys() == {"templates"}:
        return _are_texts(origin["templates"]) and bool(each * len(origin["templates"]) == chains)
    if not {"sources", "lengths"} <= origin.keys() or not _are_texts(origin["sources"]):
        return False
    chosen = origin.get("chosen", [[1] * each for _ in origin["sources"]])
    return (
        isinstance(chosen, list)
        and len(chosen) == len(origin["sources"])
        and all(isinstance(row, list) for row in chosen)
        and all(_is_number(length, 1, _MOST) for row in chosen for length in row)
        and bool(sum(map(len, chosen)) == chains)
    )


def _are_texts(found: Any) -> bool:
    return isinstance(found, list) and bool(found) and all(isinstance(one, str) for one in found)
