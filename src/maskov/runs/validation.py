"""The tensors that a checkpoint of a group must have: their names, kinds and shapes.

A hash tells damage from chance; a forged file computes it, too. So a checkpoint is read only if its
header promises the tensors of this group, and resumed only if what no step changes is unchanged. A
forged but plausible checkpoint still chooses where its chains go on from.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, fields
from functools import cached_property
from typing import Any

import torch

from maskov.execution.buffers import COUNTS, ENERGIES, WAITING, Buffers
from maskov.execution.span_buffers import FILLS, SpanBuffers
from maskov.runs.async_group import AHEAD
from maskov.runs.checkpoint_header import Sizes
from maskov.runs.group import GroupState, sizes_of
from maskov.types import Chains, PartValues, Sites, Tensor

# Epochs of samples that a group may hold while others are behind it, with room to spare.
_MOST_HELD = 64
_MOST_ENERGIES = 64
_SHAPED = re.compile(r"(Int|Float|Bool)\[Tensor, ['\"]([\w ]*)['\"]\]")
_KINDS = {"Int": torch.int64, "Float": torch.float64, "Bool": torch.bool}
# What no step of these chains changes.
_FIXED = ("chain", "source", "beta", "bounds", "reference")
_FIXED_LENGTH = ("lengths", "free", "region")


def _shapes(of: type[Any], prefix: str) -> dict[str, tuple[str, list[str]]]:
    """Return the kind and the shape that the type of each tensor of a dataclass states."""
    matches = ((field.name, _SHAPED.match(str(field.type))) for field in fields(of))
    return {f"{prefix}{name}": (m[1], m[2].split()) for name, m in matches if m is not None}


_CHAINS = _shapes(Chains, "chains.")
_SITES = _shapes(Sites, "sites.")
_BUFFERS = _shapes(Buffers, "buffers.")
_SPAN_BUFFERS = _shapes(SpanBuffers, "buffers.")
_KNOWN = _shapes(PartValues, "known.")
_ALONE = {
    "counts": ("Int", ["chains", "counts"]),
    "rejected": ("Bool", ["chains", "length"]),
}


@dataclass(frozen=True)
class GroupShape:
    """The shapes of a group's tensors.

    `slots` are the most that a chain may have; `vector` returns one that the model keeps of a
    masked position, of which only the width and the kind matter. `replicas` are the rows of each
    chain. Asynchronous chains fill `windows` or have single sites.
    """

    fresh: GroupState
    epochs: int
    slots: int
    vector: Callable[[], Tensor]
    replicas: int = 1
    windows: bool = False

    @property
    def chains(self) -> list[int]:
        """The chains of the group."""
        numbers: list[int] = self.fresh.chains.chain[:: self.replicas].tolist()
        return numbers

    def takes(self, sizes: Sizes) -> bool:
        """Whether tensors of these kinds and shapes can be of this group; nothing is read yet."""
        wanted = dict(_ALONE | _CHAINS)
        wanted |= _SITES if "sites.hidden" in sizes else {}
        if "buffers.tokens" in sizes:
            wanted |= _SPAN_BUFFERS if self.windows else _BUFFERS
        wanted |= _KNOWN if "known.values" in sizes else {}
        held = {name for name in sizes if name.startswith("held.")}
        if sizes.keys() - held != wanted.keys():
            return False
        if not self._takes_held(sizes, held):
            return False
        kinds, lengths = dict(_KINDS), dict(self._lengths)
        if "sites.hidden" in sizes or "buffers.tokens" in sizes:
            vector = self.vector()
            kinds["Vector"], lengths["hidden"] = vector.dtype, vector.shape[-1]
        for name, (kind, names) in wanted.items():
            dtype, shape = sizes[name]
            kind = "Vector" if names[-1:] == ["hidden"] else kind
            if dtype != kinds[kind] or len(shape) != len(names):
                return False
            # A length that is not known must be the same wherever its name appears.
            if any(
                lengths.setdefault(dim, length) != length
                for dim, length in zip(names, shape, strict=True)
            ):
                return False
        slotted = "buffers.tokens" in sizes and not self.windows
        return self._takes_slots(lengths) if slotted else True

    @cached_property
    def _lengths(self) -> dict[str, int]:
        chains, length = self.fresh.chains.tokens.shape
        return {
            "chains": chains, "length": length, "energies": len(ENERGIES),
            "counts": self.fresh.counts.shape[1], "ring": AHEAD, "rounds": WAITING, "2": 2, "4": 4,
            "regions": self.fresh.chains.bounds.shape[1],
            "reference": self.fresh.chains.reference.shape[1],
            "proposals": chains + 1, "columns": length + FILLS,
        }  # fmt: skip

    def _takes_held(self, sizes: Sizes, held: set[str]) -> bool:
        chains, length = len(self.chains), self.fresh.chains.tokens.shape[1]
        kinds = {
            "tokens": (torch.int32, (chains, length)),
            "energies": (torch.float64, (chains, self._kept_energies)),
            "lengths": (torch.int32, (chains,)),
        }
        epochs = {name.split(".")[1] for name in held}
        return (
            len(epochs) <= _MOST_HELD
            and held == {f"held.{epoch}.{part}" for epoch in epochs for part in kinds}
            and all(sizes[name] == kinds[name.split(".")[2]] for name in held)
            and all(epoch.isdecimal() and len(epoch) < 10 for epoch in epochs)
        )

    @property
    def _kept_energies(self) -> int:
        """The energies kept of a sample: E_raw and E_norm, and with experts the target and each."""
        experts = self.fresh.counts.shape[1] - len(COUNTS)
        return len(ENERGIES) + experts if experts else len(ENERGIES) - 1

    def _takes_slots(self, lengths: dict[str, int]) -> bool:
        slots, rest = divmod(lengths["slots"] - 1, lengths["chains"])
        return (
            rest == 0
            and 1 <= slots <= min(self.slots, lengths["length"])
            and 1 <= lengths["stages"] <= _MOST_ENERGIES
        )

    def fits(self, state: GroupState) -> bool:
        """Whether a state is one of these chains; its shapes are known to be right."""
        chains, fresh = state.chains, self.fresh.chains
        fixed = _FIXED if fresh.resizable else (*_FIXED, *_FIXED_LENGTH)
        buffered = [name for name in fixed if name in state.buffers]
        return (
            0 <= state.epoch <= self.epochs
            and 0 <= state.end <= self.epochs
            and 1 <= state.budget <= self.fresh.budget
            and all(torch.equal(getattr(chains, name), getattr(fresh, name)) for name in fixed)
            and (not fresh.resizable or _sizes_fit(chains))
            and _frozen(chains) == _frozen(fresh)
            and torch.equal(_outside(chains), _outside(fresh))
            and torch.equal(_sorted(chains, self.replicas), _sorted(fresh, self.replicas))
            and all(torch.equal(state.buffers[name], getattr(fresh, name)) for name in buffered)
        )


def _frozen(chains: Chains) -> list[list[int]]:
    """Return the tokens of each chain that no step changes, in order."""
    held = chains.inside & ~chains.free
    return [row[kept].tolist() for row, kept in zip(chains.tokens, held, strict=True)]


def _outside(chains: Chains) -> Tensor:
    """Return how many positions of each chain may change and belong to no region."""
    return (chains.free & (chains.region < 0)).sum(1)


def _sizes_fit(chains: Chains) -> bool:
    """Whether lengths and regions are possible: each region in one piece, within its bounds."""
    inside, region = chains.inside, chains.region
    held = torch.where(inside, region, -1)
    sizes = sizes_of(chains)
    pieces = (held[:, 1:] != held[:, :-1]) & (held[:, 1:] >= 0)
    begun = pieces.sum(1) + (held[:, 0] >= 0)
    return bool(
        (chains.lengths >= 1).all()
        and (chains.lengths <= chains.tokens.shape[1]).all()
        and torch.equal(held, region)
        and (sizes >= chains.bounds[..., 0]).all()
        and (sizes <= chains.bounds[..., 1]).all()
        and (begun <= (chains.bounds[..., 1] > 0).sum(1)).all()
        and not (chains.free & ~inside).any()
        and (chains.free | (region < 0)).all()
    )


def _sorted(chains: Chains, replicas: int) -> Tensor:
    """Return the replicas of each chain in order: swaps only move them."""
    return chains.replica.view(-1, replicas).sort(1).values
