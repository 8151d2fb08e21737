"""The settings of a run, as a table shows them."""

from __future__ import annotations

from typing import Any

from maskov.runs.describe import build_schedule
from maskov.schedules import Linear


def metadata(manifest: dict[str, Any]) -> dict[str, str]:
    """Return the settings in order: model, kernel, schedule, time, versions."""
    model, kernel, schedule = manifest["model"], manifest["kernel"], manifest["schedule"]
    device = model.get("device", "")
    rows = {
        "model": f"{model['name']} #{model['fingerprint'][:12]}",
        "precision": " on ".join(filter(None, (model.get("precision", ""), device))),
        "kernel": kernel["name"],
        "energy": kernel.get("energy", ""),
        "proposal": ", ".join(
            f"{name.replace('_', '-')} {value:g}" if isinstance(value, float) else f"{name} {value}"
            for name, value in kernel.get("proposal", {}).items()
            if value is not None
        ),
        "positions": _positions(manifest),
        "target temperature": _temperature(manifest),
        "schedule": _schedule(schedule),
        "chains": f"{manifest['chains']:,}",
        "sequences": _origin(manifest),
        "seed": str(manifest["seed"]),
        "when": str(manifest.get("created", "")).replace("T", " ").replace("+00:00", " UTC"),
        "versions": ", ".join(f"{name} {value}" for name, value in manifest["versions"].items()),
    }
    return {name: value for name, value in rows.items() if value}


def temperatures(manifest: dict[str, Any], epochs: int) -> list[float] | None:
    """Return the target temperature of each epoch, or None if it is constant."""
    moving = build_schedule(manifest["schedule"]).target_temperature
    if moving is None or manifest["kernel"]["name"] != "mh":
        return None
    values = [moving.at(epoch) for epoch in range(epochs)]
    return values if len(set(values)) > 1 else None


def _positions(manifest: dict[str, Any]) -> str:
    kernel, block = manifest["kernel"], manifest["schedule"]["block"]
    if "iterations" in kernel:
        return f"least confident first, {kernel['iterations']} iterations"
    if "order" not in kernel:
        return ""
    size = str(Linear(**block)) if block is not None else f"{kernel['block']}"
    return f"{kernel['order']}, {'one at a time' if size == '1' else f'blocks of {size}'}"


def _temperature(manifest: dict[str, Any]) -> str:
    moving, kernel = manifest["schedule"]["target_temperature"], manifest["kernel"]
    if kernel["name"] != "mh":
        return ""
    return f"{kernel['target_temperature']:g}" if moving is None else str(Linear(**moving))


def _schedule(schedule: dict[str, Any]) -> str:
    parts = [f"{schedule['epochs']:,} epochs"]
    if schedule["burn_in"]:
        parts.append(f"the first {schedule['burn_in']:,} burn-in")
    if schedule["forced_epochs"]:
        parts.append(f"the first {schedule['forced_epochs']:,} accept everything")
    return ", ".join(parts)


def _origin(manifest: dict[str, Any]) -> str:
    origin, start = manifest["origin"], manifest["start"]
    if "length" in origin:
        shortest, longest = origin["length"]
        length = f"{shortest}" if shortest == longest else f"{shortest} to {longest}"
        return f"{length} tokens, start {start}"
    for kind, name in (("sources", "sources"), ("templates", "templates"), ("texts", "texts")):
        if kind in origin:
            return f"{len(origin[kind]):,} {name}, start {start}"
    return ""
