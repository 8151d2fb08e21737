"""Rows of a benchmark: rates, ratios and shares from counts."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any


@dataclass(frozen=True)
class Row:
    """The speed of one sampler.

    `novel_seen` counts the novel moves in the measured time. Plain rows see too few, so their
    `novel_per_step` and `effective_per_step` are those of the row `rates_from`, which samples the
    same Markov chain over far more steps. All per-second and per-pass values follow from these.
    """

    name: str
    what: str
    rates_from: str
    seconds: float
    steps: int
    passes: int
    novel_seen: int
    steps_per_second: float
    passes_per_step: float
    passes_per_second: float
    tokens_per_second: float
    novel_per_step: float
    novel_per_pass: float | None
    novel_per_second: float
    effective_per_step: float | None
    effective_per_pass: float | None
    effective_per_second: float | None
    peak_memory_mib: float | None
    peak_device_memory_mib: float | None
    teraflops: float | None
    share_of_ceiling: float | None
    passes_by_engine: int | None = None
    seconds_of_run: float | None = None
    signature: str | None = None
    ratios: dict[str, dict[str, float | None]] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)

    def to_dict(self) -> dict[str, Any]:
        """Return plain data."""
        return asdict(self)


# Passes outside steps (such as those of slots that a move made void) are noted above this share.
_UNCOUNTED_SHARE = 0.05


def make_row(
    name: str,
    what: str,
    counted: dict[str, Any],
    rates: dict[str, Any],
    rates_from: str,
    ceiling: float | None,
) -> Row:
    """Compute the rates of a row; novel moves and effective size per step come from `rates`."""
    seconds, steps, passes = counted["seconds"], counted["steps"], counted["passes"]
    per_second = steps / seconds
    novel = rates["novel_seen"] / rates["steps"]
    effective = divide(rates["effective"], rates["steps"])
    teraflops = divide(counted["flops"], seconds * 1e12)
    by_engine = counted.get("passes_by_engine")
    notes = [note for note in counted.get("notes", []) if note != counted["model"]["caution"]]
    if by_engine is not None and abs(by_engine - passes) > _UNCOUNTED_SHARE * passes:
        notes.append(f"the engine ran {by_engine} passes, its steps counted {passes}")
    return Row(
        name=name,
        what=what,
        rates_from=rates_from,
        seconds=seconds,
        steps=steps,
        passes=passes,
        novel_seen=counted["novel_seen"],
        steps_per_second=per_second,
        passes_per_step=passes / steps,
        passes_per_second=passes / seconds,
        tokens_per_second=counted["tokens"] / seconds,
        novel_per_step=novel,
        novel_per_pass=divide(novel * steps, passes),
        novel_per_second=novel * per_second,
        effective_per_step=effective,
        effective_per_pass=None if effective is None else divide(effective * steps, passes),
        effective_per_second=None if effective is None else effective * per_second,
        peak_memory_mib=counted["peak_memory_mib"],
        peak_device_memory_mib=counted["peak_device_memory_mib"],
        teraflops=teraflops,
        share_of_ceiling=divide(teraflops, ceiling),
        passes_by_engine=by_engine,
        seconds_of_run=counted.get("seconds_of_run"),
        signature=counted.get("signature"),
        notes=notes,
    )


def ratios(row: Row, plain: dict[str, Row]) -> dict[str, dict[str, float | None]]:
    """Return the novel moves of a row as a multiple of each plain row's."""
    return {
        letter: {
            "novel_per_second": divide(row.novel_per_second, other.novel_per_second),
            "novel_per_pass": divide(row.novel_per_pass, other.novel_per_pass),
        }
        for letter, other in plain.items()
    }


def divide(part: float | None, whole: float | None) -> float | None:
    """Return part / whole, or None if either is missing or `whole` is 0."""
    return None if part is None or not whole else part / whole
