"""Concatenate masked sequences without padding, with the model's special tokens around each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch

from maskov.types import Bool, Int, Tensor

# A place that no sequence has.
_NOWHERE = 2**30


@dataclass(frozen=True)
class Frame:
    """The special tokens before and after a text, and the mask token."""

    before: Int[Tensor, " before"]
    after: Int[Tensor, " after"]
    mask_id: int

    @classmethod
    def of(
        cls, before: Sequence[int], after: Sequence[int], mask_id: int, device: torch.device
    ) -> Frame:
        """Return the frame of these tokens on a device."""
        first = torch.tensor(before, dtype=torch.long, device=device)
        return cls(first, torch.tensor(after, dtype=torch.long, device=device), mask_id)

    @property
    def size(self) -> int:
        """Number of tokens added to each sequence."""
        return len(self.before) + len(self.after)


@dataclass(frozen=True)
class PackedPasses:
    """Concatenated masked passes: `starts` is where each begins, `query` where its masks are."""

    ids: Int[Tensor, " tokens"]
    position: Int[Tensor, " tokens"]
    starts: Int[Tensor, " bounds"]
    query: Int[Tensor, " queries"]


def pack_masked(
    tokens: Int[Tensor, "passes length"],
    lengths: Int[Tensor, " passes"],
    masked: Bool[Tensor, "passes length"],
    frame: Frame,
) -> PackedPasses:
    """Mask any places of each sequence and concatenate them; `query` is in row-major order."""
    total = int(lengths.sum()) + len(tokens) * frame.size
    content = tokens.masked_fill(masked, frame.mask_id)
    packed = pack(content, lengths, torch.full_like(lengths, _NOWHERE), frame, total)
    row, place = masked.nonzero(as_tuple=True)
    return replace(packed, query=packed.starts.long()[row] + len(frame.before) + place)


def pack(
    tokens: Int[Tensor, "passes length"],
    lengths: Int[Tensor, " passes"],
    place: Int[Tensor, " passes"],
    frame: Frame,
    total: int,
) -> PackedPasses:
    """Mask one place of each sequence and concatenate them into a row of `total` tokens.

    A sequence of length zero takes no room. Nothing synchronises with the device.
    """
    count, width = tokens.shape
    device = tokens.device
    full = torch.where(lengths > 0, lengths + frame.size, 0)
    ends = full.cumsum(0)
    starts = torch.cat([ends.new_zeros(1), ends])
    token = torch.arange(total, device=device)
    owner = torch.searchsorted(ends, token, right=True).clamp(max=count - 1)
    offset = token - starts[owner]
    inner = offset - len(frame.before)
    ids = tokens[owner, inner.clamp(0, width - 1)]
    ids = torch.where(inner == place[owner], frame.mask_id, ids)
    if len(frame.before):
        ids = torch.where(inner < 0, frame.before[offset.clamp(0, len(frame.before) - 1)], ids)
    if len(frame.after):
        past = inner - lengths[owner]
        ids = torch.where(past >= 0, frame.after[past.clamp(0, len(frame.after) - 1)], ids)
    query = (starts[:-1] + len(frame.before) + place).clamp(0, total - 1)
    return PackedPasses(ids, offset, starts.int(), query)
