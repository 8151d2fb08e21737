"""How a run was made, in words and in order, as a table shows it."""

from __future__ import annotations

from typing import Any

from maskov.config import Manifest

# Kernels that hold the one that moves a chain.
_AROUND = ("exchange", "population")


def metadata(manifest: Manifest) -> dict[str, str]:
    """Return what a reader asks first: model, kernel, schedule, when, versions."""
    model, smoothing = manifest.config.model, manifest.config.model.source.remove_smoothing
    kernel = moving_kernel(manifest)
    ladder = ", ".join(f"{beta:g}" for beta in manifest.ladder or ())
    temperature = manifest.schedule.target_temperature or f"{kernel.get('target_temperature', 1):g}"
    entries = {
        "model": f"{model.name} #{model.fingerprint[:12]}",
        "prefix": model.source.prefix,
        "label smoothing removed": "" if not smoothing else f"{smoothing:g}",
        "letters besides the amino acids": model.source.extra_letters,
        "precision": f"{model.precision} on {model.device}",
        "kernel": manifest.kernel,
        "energy": manifest.energy or "",
        "proposal": ", ".join(
            f"{name.replace('_', '-')} {value:g}" if isinstance(value, float) else f"{name} {value}"
            for name, value in part_of(kernel, "move", "conditional").items()
            if value is not None and name not in ("part", "constraints")
        ),
        "positions": _positions(manifest, part_of(kernel, "move", "positions")),
        "target temperature": str(temperature) if manifest.kernel == "mh" else "",
        "schedule": _schedule(manifest),
        "chains": "" if manifest.particles else f"{manifest.chains:,}",
        "populations": _populations(manifest),
        "replicas": (
            f"{manifest.replicas} of each chain" + f", at β = {ladder}" * bool(ladder)
            if manifest.replicas > 1
            else ""
        ),
        "sequences": _inputs(manifest),
        "seed": str(manifest.config.seed),
        "when": manifest.created.replace("T", " ").replace("+00:00", " UTC"),
        "versions": ", ".join(f"{name} {value}" for name, value in manifest.versions.items()),
    }
    return {name: value for name, value in entries.items() if value}


def temperatures(manifest: Manifest, epochs: int) -> list[float] | None:
    """Return the target temperature of each epoch, or nothing where it does not move."""
    moving = manifest.schedule.target_temperature
    if moving is None or manifest.kernel != "mh":
        return None
    values = [moving.at(epoch) for epoch in range(epochs)]
    return values if len(set(values)) > 1 else None


def moving_kernel(manifest: Manifest) -> dict[str, Any]:
    """Return the kernel that moves each chain, as it is described."""
    kernel = manifest.config.kernel
    return part_of(kernel, "kernel") if kernel["part"] in _AROUND else kernel


def part_of(description: Any, *names: str) -> dict[str, Any]:
    """Return a part of a part, if there is one of that name."""
    for name in names:
        description = description.get(name) if isinstance(description, dict) else None
    return description if isinstance(description, dict) else {}


def _positions(manifest: Manifest, positions: dict[str, Any]) -> str:
    if positions.get("iterations") is not None:
        return f"least confident first, {positions['iterations']} iterations"
    if manifest.order is None:
        return ""
    size = str(manifest.schedule.block or manifest.block)
    return f"{manifest.order}, {'one at a time' if size == '1' else f'blocks of {size}'}"


def _populations(manifest: Manifest) -> str:
    if not manifest.particles:
        return ""
    count, start = manifest.chains // manifest.particles, manifest.config.kernel["start"]
    return f"{count:,} of {manifest.particles:,} particles each, drawn from {start}"


def _schedule(manifest: Manifest) -> str:
    if manifest.particles:
        moves = manifest.config.kernel["moves"]
        return f"a path of {manifest.epochs:,} points, {moves} moves of each particle at each"
    schedule, until = manifest.schedule, manifest.config.until
    parts = [f"{schedule.epochs:,} epochs"]
    if until is not None:
        parts = [f"until converged ({until.effective:,} effective draws)"]
        stopped = f"stopped at epoch {manifest.stopped_at or 0:,} of " * bool(manifest.stopped_at)
        parts.append(f"{stopped}at most {schedule.epochs:,} epochs")
    burn_in = manifest.burn_in(manifest.epochs)
    if burn_in:
        energy = schedule.burn_in_energy
        parts.append(f"the first {burn_in:,} burn-in" + f" with the energy {energy}" * bool(energy))
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
