"""How a run was made, in words and in order, as a table shows it."""

from __future__ import annotations

from typing import Any

from maskov.config import Manifest


def metadata(manifest: Manifest) -> dict[str, str]:
    """Return what a reader asks first: model, kernel, schedule, when, versions."""
    model = manifest.config.model
    entries = {
        "model": f"{model.name} #{model.fingerprint[:12]}",
        "prefix": model.source.prefix,
        "label smoothing removed": _number(model.source.remove_smoothing),
        "letters besides the amino acids": model.source.extra_letters,
        "precision": f"{model.precision} on {model.device}",
        "kernel": manifest.kernel,
        "energy": manifest.energy or "",
        "proposal": ", ".join(
            f"{name.replace('_', '-')} {value:g}" if isinstance(value, float) else f"{name} {value}"
            for name, value in _inside(manifest, "move", "conditional").items()
            if value is not None and name not in ("part", "constraints")
        ),
        "positions": _positions(manifest),
        "target temperature": _temperature(manifest),
        "schedule": _schedule(manifest),
        "chains": f"{manifest.chains:,}",
        "replicas": _replicas(manifest),
        "sequences": _inputs(manifest),
        "seed": str(manifest.config.seed),
        "when": manifest.created.replace("T", " ").replace("+00:00", " UTC"),
        "versions": ", ".join(f"{name} {value}" for name, value in manifest.versions.items()),
    }
    return {name: value for name, value in entries.items() if value}


def _number(value: float) -> str:
    return f"{value:g}" if value else ""


def temperatures(manifest: Manifest, epochs: int) -> list[float] | None:
    """Return the target temperature of each epoch, or nothing where it does not move."""
    moving = manifest.schedule.target_temperature
    if moving is None or manifest.kernel != "mh":
        return None
    values = [moving.at(epoch) for epoch in range(epochs)]
    return values if len(set(values)) > 1 else None


def _inside(manifest: Manifest, *names: str) -> dict[str, Any]:
    """Return a part of the kernel, if it has one of that name."""
    part = _moving(manifest)
    for name in names:
        part = part.get(name) if isinstance(part, dict) else None
    return part if isinstance(part, dict) else {}


def _positions(manifest: Manifest) -> str:
    iterations = _inside(manifest, "move", "positions").get("iterations")
    if iterations is not None:
        return f"least confident first, {iterations} iterations"
    if manifest.order is None:
        return ""
    block = manifest.schedule.block
    size = str(manifest.block if block is None else block)
    return f"{manifest.order}, {'one at a time' if size == '1' else f'blocks of {size}'}"


def _temperature(manifest: Manifest) -> str:
    if manifest.kernel != "mh":
        return ""
    moving = manifest.schedule.target_temperature
    own = _moving(manifest).get("target_temperature", 1.0)
    return f"{own:g}" if moving is None else str(moving)


def _moving(manifest: Manifest) -> Any:
    """Return the kernel that moves each chain."""
    kernel = manifest.config.kernel
    inner = kernel.get("kernel") if kernel["part"] == "exchange" else kernel
    return inner if isinstance(inner, dict) else {}


def _replicas(manifest: Manifest) -> str:
    if manifest.replicas == 1:
        return ""
    ladder = ", ".join(f"{beta:g}" for beta in manifest.ladder or ())
    return f"{manifest.replicas} of each chain" + (f", at β = {ladder}" if ladder else "")


def _schedule(manifest: Manifest) -> str:
    schedule, until = manifest.schedule, manifest.config.until
    parts = [f"{schedule.epochs:,} epochs"]
    if until is not None:
        parts = [f"until converged ({until.effective:,} effective draws)"]
        stopped = manifest.stopped_at
        parts.append(
            f"at most {schedule.epochs:,} epochs"
            if stopped is None
            else f"stopped at epoch {stopped:,} of at most {schedule.epochs:,}"
        )
    burn_in = manifest.burn_in(manifest.epochs)
    if burn_in:
        energy = schedule.burn_in_energy
        target = "" if energy is None else f" with the energy {energy}"
        parts.append(f"the first {burn_in:,} burn-in{target}")
    if schedule.force_accept:
        parts.append(f"the first {schedule.force_accept:,} accept everything")
    return ", ".join(parts)


def _inputs(manifest: Manifest) -> str:
    inputs, start = manifest.inputs, manifest.config.start
    if inputs.length is not None:
        shortest, longest = inputs.length
        length = f"{shortest}" if shortest == longest else f"{shortest} to {longest}"
        return f"{length} tokens, start {start}"
    for name in ("sources", "templates", "texts"):
        lines = getattr(inputs, name)
        if lines is not None:
            held = sum(map(len, inputs.frozen or ()))
            frozen = f", {held:,} of their tokens frozen" if held else ""
            sampled = ", lengths sampled" if inputs.bounds is not None else ""
            begin = f", start {start}"
            if inputs.texts is not None:
                begin = ", start drafts" if name == "sources" else ""
            return f"{len(lines):,} {name}{frozen}{sampled}{begin}"
    return ""
