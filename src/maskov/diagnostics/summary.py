"""Acceptance rates, passes and mean energies of a run."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from maskov.config import Manifest
from maskov.types import Traces


@dataclass(frozen=True)
class Summary:
    """Acceptance rates, passes and mean energies of a run.

    Rates and energies are over the epochs after burn-in; `steps` and `passes_per_step` are over
    all completed epochs. Standard errors are over the chains' means; None for a single chain.
    """

    signature: str
    model: str
    kernel: str
    energy: str | None
    leaves_invariant: bool
    notes: list[str]
    chains: int
    epochs: int
    epochs_done: int
    burn_in: int
    steps: int
    acceptance_rate: float | None
    novel_rate: float | None
    proposed_novel_rate: float | None
    passes_per_step: float | None
    energy_raw_mean: float | None
    energy_raw_standard_error: float | None
    energy_norm_mean: float | None
    energy_norm_standard_error: float | None

    def to_dict(self) -> dict[str, Any]:
        """Return plain data."""
        return asdict(self)


def summarise(manifest: Manifest, traces: Traces) -> Summary:
    """Summarise the completed epochs."""
    done = int((traces["steps"] > 0).all(1).sum())
    burn_in = manifest.burn_in(done)
    kept = {name: values[burn_in:done] for name, values in traces.items()}
    steps = int(traces["steps"][:done].sum())
    notes = list(manifest.notes)
    until, epochs = manifest.config.until, manifest.epochs
    if done < epochs:
        most = "" if until is None else "at most "
        notes.append(f"the run is not finished: {done} of {most}{epochs} epochs")
    elif manifest.stopped_at is not None and until is not None:
        judged = "energy and token statistic" if "tokens" in traces else "energy"
        notes.append(
            f"stopped at epoch {epochs}: nested R-hat below its limit and {until.effective} "
            f"effective draws of every {judged}"
        )
    elif until is not None:
        notes.append(f"the limit of {epochs} epochs was reached before the chains had converged")
    raw, norm = _mean(kept["energy_raw"]), _mean(kept["energy_norm"])
    return Summary(
        signature=manifest.signature,
        model=manifest.config.model.name,
        kernel=manifest.kernel,
        energy=manifest.energy,
        leaves_invariant=manifest.leaves_invariant,
        notes=notes,
        chains=manifest.chains,
        epochs=epochs,
        epochs_done=done,
        burn_in=burn_in,
        steps=steps,
        acceptance_rate=_share(kept["accepted"], kept["steps"]),
        novel_rate=_share(kept["novel"], kept["steps"]),
        proposed_novel_rate=_share(kept["proposed_novel"], kept["steps"]),
        passes_per_step=_share(traces["passes"][:done], traces["steps"][:done]),
        energy_raw_mean=raw[0],
        energy_raw_standard_error=raw[1],
        energy_norm_mean=norm[0],
        energy_norm_standard_error=norm[1],
    )


def _share(part: npt.NDArray[Any], whole: npt.NDArray[Any]) -> float | None:
    total = int(whole.sum())
    return float(part.sum() / total) if total else None


def _mean(values: npt.NDArray[Any]) -> tuple[float | None, float | None]:
    """Return the mean over traced epochs and chains, and its standard error over chains."""
    values = values[~np.isnan(values).any(1)]
    if not len(values):
        return None, None
    chains = values.mean(0)
    # A sequence of probability zero has infinite energy: no standard error.
    if len(chains) < 2 or not np.isfinite(chains).all():
        return float(chains.mean()), None
    return float(chains.mean()), float(chains.std(ddof=1) / np.sqrt(len(chains)))
