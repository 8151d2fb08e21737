"""A run's signature: everything that decides its numbers, in one line and in full."""

from __future__ import annotations

import hashlib
import platform
from importlib.metadata import version
from pathlib import Path
from typing import Any

import maskov
from maskov.energies.stages import Delayed

_SHORT = 12


def versions() -> dict[str, str]:
    """Return the versions that a number depends on."""
    # Asked of the installation, since importing transformers only for this takes a while.
    others = {name: version(name) for name in ("torch", "transformers", "numpy")}
    return {"maskov": maskov.__version__, **others, "python": platform.python_version()}


def signature(manifest: dict[str, Any]) -> str:
    """Return one line that says how a number came about."""
    model, kernel, schedule = manifest["model"], manifest["kernel"], manifest["schedule"]
    parts = [
        f"model:{_named(model['name'])}#{model['fingerprint'][:_SHORT]}",
        f"precision:{model['precision']}",
        f"kernel:{kernel['name']}",
    ]
    if "energy" in kernel:
        parts.append(f"energy:{kernel['energy']}")
    parts += [f"causal:#{hash_[:_SHORT]}" for hash_ in manifest["causal_models"].values()]
    if "proposal" in kernel:
        given = {key: value for key, value in kernel["proposal"].items() if value is not None}
        parts.append("proposal:" + ",".join(f"{key}={value}" for key, value in given.items()))
    if "order" in kernel:
        parts.append(f"order:{kernel['order']}")
    if "delayed" in kernel:
        parts.append(f"delayed:{Delayed(**kernel['delayed'])}")
    parts += [
        f"block:{_value(schedule['block'], kernel.get('block', 1))}",
        f"T:{_value(schedule['target_temperature'], kernel.get('target_temperature', 1.0))}",
        f"epochs:{schedule['epochs']}-{schedule['burn_in']}",
        f"forced:{schedule['forced_epochs']}",
        f"start:{manifest['start']}",
        f"{_origin(manifest['origin'])}",
        f"thin:{manifest['thin']}",
        f"chains:{manifest['chains']}",
        f"seed:{manifest['seed']}",
        f"version:{manifest['versions']['maskov']}",
    ]
    return "|".join(parts)


def _named(model: str) -> str:
    """Name a model; of a whole path its end, since the rest is of one machine."""
    return Path(model).name if Path(model).is_absolute() else model


def _origin(origin: dict[str, Any]) -> str:
    """Name the length, or hash the texts that the chains begin from."""
    if "length" in origin:
        shortest, longest = origin["length"]
        return f"length:{shortest}" if shortest == longest else f"length:{shortest}-{longest}"
    if "sources" in origin:
        return f"lengths:{origin['lengths']}|sources:#{_hash(origin['sources'])}"
    [(kind, lines)] = origin.items()
    return f"{kind}:#{_hash(lines)}"


def _hash(lines: list[str]) -> str:
    return hashlib.sha256(chr(10).join(lines).encode()).hexdigest()[:_SHORT]


def _value(scheduled: dict[str, float] | None, otherwise: float) -> str:
    if scheduled is None or scheduled["rate"] == 0:
        return f"{otherwise if scheduled is None else scheduled['start']:g}"
    return f"{scheduled['start']:g}-{scheduled['rate']:g}/epoch>={scheduled['floor']:g}"
