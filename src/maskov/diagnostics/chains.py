"""The epochs of a run that count, its groups of chains with the same target, and both for ArviZ.

Chains are compared only if they sample from the same distribution: sequences of the same length
and, if there are templates or sources, of the same line of the input. Texts are only starting
points: chains that start from different texts share a target, unless it compares with these texts
or some of their tokens are frozen. Chains that change their lengths share a target, too.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from maskov.config import Manifest
from maskov.types import Traces

# What `tokens` of ArviZ have beyond the end of a chain.
PADDING = -1
_POSTERIOR = ("energy_raw", "energy_norm", "tokens", "expert_energy")


@dataclass(frozen=True)
class Group:
    """Indices of chains with the same target, their line of the input, their length if fixed."""

    template: int
    length: int | None
    chains: npt.NDArray[np.int64]


def kept_epochs(manifest: Manifest, traces: Traces) -> slice:
    """Return the completed epochs after burn-in."""
    done = int((traces["steps"] > 0).all(1).sum())
    return slice(min(manifest.burn_in(done), done), done)


def chain_groups(manifest: Manifest, traces: Traces) -> list[Group]:
    """Return the groups of chains with the same target."""
    lines, lengths = chain_templates(manifest), chain_lengths(manifest, traces)
    keys = np.zeros_like(lines) if lengths is None else lengths
    return [
        Group(
            line,
            None if lengths is None else length,
            np.flatnonzero((lines == line) & (keys == length)),
        )
        for line, length in np.unique(np.stack([lines, keys], axis=1), axis=0).tolist()
    ]


def chain_templates(manifest: Manifest) -> npt.NDArray[np.int64]:
    """Return the line of the input that each chain's target depends on, 0 if there is none."""
    chains = np.arange(manifest.chains)
    if manifest.inputs.holds_tokens or manifest.inputs.sources is not None or manifest.compares:
        return chains // manifest.config.chains
    return np.zeros_like(chains)


def chain_lengths(manifest: Manifest, traces: Traces) -> npt.NDArray[np.int64] | None:
    """Return the length of each chain, or None if lengths change; 0 before the first epoch."""
    return None if manifest.inputs.sampled else np.array(traces["lengths"][0], dtype=np.int64)


def knows_visits(manifest: Manifest, traces: Traces) -> bool:
    """Whether each epoch after burn-in visits every free position once, one at a time.

    The tokens before the first epoch are not traced, so its changes are unknown.
    """
    kept = kept_epochs(manifest, traces)
    first = max(kept.start, 1)
    if manifest.order is None or manifest.particles or kept.stop <= first:
        return False
    # Blocks only shrink.
    block = manifest.schedule.block
    return (manifest.block if block is None else manifest.schedule.block_at(first)) == 1


def to_arviz(manifest: Manifest, traces: Traces, *, warmup: bool = False) -> Any:
    """Return the epochs after burn-in, and with `warmup` also those before, as a DataTree.

    Group `posterior` has the energies, those of experts, and the tokens if they were traced;
    `sample_stats` the rates and passes of each epoch; `constant_data` the length and the template
    of each chain.
    """
    from arviz_base import from_dict  # slow to import

    kept = kept_epochs(manifest, traces)
    lengths = chain_lengths(manifest, traces)
    parts = {"": kept} | ({"warmup_": slice(0, kept.start)} if warmup else {})
    data: dict[str, dict[str, Any]] = {}
    for prefix, epochs in parts.items():
        chains = {name: values[epochs].swapaxes(0, 1) for name, values in traces.items()}
        if lengths is not None and "tokens" in chains:
            inside = np.arange(manifest.width) < lengths[:, None, None]
            chains["tokens"] = np.where(inside, chains["tokens"], PADDING)
        stats = {
            "acceptance_rate": chains["accepted"] / chains["steps"],
            "novel_rate": chains["novel"] / chains["steps"],
            "passes": chains["passes"],
        }
        # Kernels that accept everything have no target energy.
        if not np.isnan(chains["energy_target"]).all():
            stats["energy"] = chains["energy_target"]
        data[f"{prefix}posterior"] = {name: chains[name] for name in _POSTERIOR if name in chains}
        data[f"{prefix}sample_stats"] = stats
    data["constant_data"] = {"template": chain_templates(manifest)}
    if lengths is not None:
        data["constant_data"]["length"] = lengths
    about = {
        "signature": manifest.signature,
        "inference_library": "maskov",
        "inference_library_version": manifest.versions.get("maskov", ""),
        # Some file formats have no booleans.
        "leaves_invariant": int(manifest.leaves_invariant),
        "burn_in": kept.start,
    }
    return from_dict(
        data,
        save_warmup=warmup,
        dims={
            "tokens": ["position"],
            "expert_energy": ["expert"],
            "template": ["chain"],
            "length": ["chain"],
        },
        coords={"expert": list(manifest.experts)} if manifest.experts else None,
        attrs={"/": about} | {group: dict(about) for group in data},
        # Otherwise ArviZ warns of fewer draws than chains.
        check_conventions=False,
    )
