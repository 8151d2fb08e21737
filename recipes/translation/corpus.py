"""Tokenised sentence pairs on the device, in batches of few shapes.

Some examples concatenate two pairs, because the training text has only short sentences and the
model must see long ones.
"""

from __future__ import annotations

import lzma
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from maskov.types import inside
from recipes.translation.cells import choose, table

MOST_TOKENS = 100
MOST_SHAPES = 60
_CHUNK = 20_000
_UNIT = 8  # padded lengths and rows are multiples of it, which is fast on GPUs
# The source's end token and the network's extra first position.
_SOURCE_ROOM = 2


@dataclass(frozen=True)
class Side:
    """The sentences of one language: concatenated tokens, and where each sentence starts."""

    ids: Tensor
    starts: Tensor
    sizes: Tensor
    lengths: Tensor  # `sizes` on the host, where batches are planned

    @classmethod
    def of(
        cls, ids: NDArray[np.int32], starts: Tensor, lengths: Tensor, device: torch.device
    ) -> Side:
        """Put sentences on the device."""
        # One extra token, read by indices beyond the last sentence.
        flat = torch.from_numpy(np.append(ids, np.int32(0)))
        return cls(flat.to(device), starts.to(device), lengths.to(device), lengths)


@dataclass(frozen=True)
class Batch:
    """Padded sources and targets with their masks, without special tokens.

    There is room for the end token after each source, and after each target if requested.
    """

    source: Tensor
    source_inside: Tensor
    target: Tensor
    target_inside: Tensor
    tokens: int  # without padding
    noisy: bool = False  # whether some visible target tokens are drawn from the model

    @property
    def tensors(self) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """The inputs of the loss."""
        return self.source, self.source_inside, self.target, self.target_inside

    def with_tensors(self, tensors: Sequence[Tensor]) -> Batch:
        """Return a batch of the same kind with other tensors."""
        return Batch(*tensors, self.tokens, self.noisy)

    @property
    def key(self) -> tuple[Any, ...]:
        """Identifies batches that need the same computation."""
        return self.source.shape, self.target.shape, self.noisy


@dataclass(frozen=True)
class _Shapes:
    """The shapes of batches, in units, and the shape of each cell."""

    sizes: NDArray[np.int64]
    of_cell: NDArray[np.int64]


class Pairs:
    """Line-aligned sentences of two languages."""

    def __init__(self, source: Side, target: Side, device: torch.device) -> None:
        self.source, self.target, self.device = source, target, device

    def __len__(self) -> int:
        return len(self.source.lengths)

    @classmethod
    def of(
        cls, sources: Sequence[str], targets: Sequence[str], tokenizer: Any, device: torch.device
    ) -> tuple[Pairs, Tensor]:
        """Tokenise; return the pairs without unknown tokens that are not too long, and which."""
        both = [flat_tokens_of(lines, tokenizer) for lines in (sources, targets)]
        (_, source_sizes), (target_ids, target_sizes) = both
        strange = np.append(0, np.cumsum(target_ids == tokenizer.unk_token_id))
        ends = np.cumsum(target_sizes)
        fit = strange[ends] == strange[ends - target_sizes]
        for sizes in (source_sizes, target_sizes):
            fit &= (sizes > 0) & (sizes <= MOST_TOKENS)
        kept = torch.from_numpy(np.flatnonzero(fit))
        sides = []
        for ids, sizes in both:
            lengths = torch.from_numpy(sizes)
            sides.append(Side.of(ids, (lengths.cumsum(0) - lengths)[kept], lengths[kept], device))
        return cls(*sides, device), kept

    def batches(
        self,
        tokens: int,
        generator: torch.Generator,
        joined: float = 0.0,
        times: Tensor | None = None,
        target_end: bool = True,
    ) -> Iterator[Batch]:
        """Yield batches of about `tokens` tokens of both languages, endlessly, in random order.

        A share `joined` of the pairs is concatenated in twos; `times` is how often each pair occurs
        in an epoch. All batches of a shape have the same size: the last is filled up with repeated
        examples.
        """
        room = (_SOURCE_ROOM, int(target_end))
        every = torch.arange(len(self))
        if times is not None:
            every = every.repeat_interleave(times)
        shapes = None
        while True:
            order = every[torch.randperm(len(every), generator=generator)]
            twos = int(joined * len(order)) // 2
            first = torch.cat([order[:twos], order[2 * twos :]])
            second = torch.full_like(first, -1)
            second[:twos] = order[twos : 2 * twos]
            both = (self.source, self.target)
            sizes = np.stack([self._sizes(side, first, second) for side in both], 1)
            cells = -(-(sizes + room) // _UNIT)
            # The same shapes for all epochs, although their joined pairs differ.
            shapes = shapes or self._shapes(cells, tokens, room, joined > 0)
            yield from self._epoch(first, second, sizes, cells, shapes, tokens, generator)

    @staticmethod
    def _sizes(side: Side, first: Tensor, second: Tensor) -> NDArray[np.int64]:
        other = torch.where(second >= 0, side.lengths[second.clamp(min=0)], 0)
        sizes: NDArray[np.int64] = (side.lengths[first] + other).numpy()
        return sizes

    def _shapes(
        self, cells: NDArray[np.int64], tokens: int, room: tuple[int, int], joins: bool
    ) -> _Shapes:
        sizes = choose(cells, MOST_SHAPES, tokens / _UNIT)
        longest = np.array([int(side.lengths.max()) for side in (self.source, self.target)])
        corner = -(-((2 if joins else 1) * longest + room) // _UNIT)
        # The largest possible shape, for pairs that a later epoch may join.
        if not (sizes >= corner).all(1).any():
            sizes = np.concatenate([sizes, corner[None]])
        return _Shapes(sizes, table(sizes, (int(corner[0]), int(corner[1]))))

    def _epoch(
        self,
        first: Tensor,
        second: Tensor,
        sizes: NDArray[np.int64],
        cells: NDArray[np.int64],
        shapes: _Shapes,
        tokens: int,
        generator: torch.Generator,
    ) -> Iterator[Batch]:
        number = shapes.of_cell[cells[:, 0], cells[:, 1]]
        # The examples are in random order; a stable sort keeps that within a shape.
        order = torch.from_numpy(np.argsort(number, kind="stable"))
        plan: list[tuple[tuple[int, int], Tensor]] = []
        counts = np.bincount(number, minlength=len(shapes.sizes)).tolist()
        for shape, members in zip(shapes.sizes.tolist(), order.split(counts), strict=True):
            if not len(members):
                continue
            widths = (shape[0] * _UNIT, shape[1] * _UNIT)
            rows = max(1, tokens // sum(widths) // _UNIT) * _UNIT
            lacking = -len(members) % rows
            again = torch.randint(len(members), (lacking,), generator=generator)
            full = torch.cat([members, members[again]])
            plan += [(widths, part) for part in full.split(rows)]
        shuffled = [plan[index] for index in torch.randperm(len(plan), generator=generator)]
        chosen = torch.cat([part for _, part in shuffled])
        within = torch.from_numpy(sizes)[chosen]
        # A whole epoch at once: a copy within a step would synchronise with the device.
        one, two = first[chosen].to(self.device), second[chosen].to(self.device)
        lengths = within.to(self.device)
        begin = 0
        for (source, target), part in shuffled:
            rows = slice(begin, begin + len(part))
            begin += len(part)
            ours, theirs = lengths[rows, 0], lengths[rows, 1]
            yield Batch(
                # The network adds one position to the source.
                *self._padded(self.source, one[rows], two[rows], source - 1, ours),
                *self._padded(self.target, one[rows], two[rows], target, theirs),
                int(within[rows].sum()),
            )

    def _padded(
        self, side: Side, one: Tensor, two: Tensor, width: int, lengths: Tensor
    ) -> tuple[Tensor, Tensor]:
        place = torch.arange(width, device=self.device)
        before = side.sizes[one][:, None]
        start = torch.where(place < before, side.starts[one][:, None],
                            side.starts[two.clamp(min=0)][:, None] - before)  # fmt: skip
        within = inside(lengths, width)
        index = torch.where(within, start + place, len(side.ids) - 1)
        return side.ids[index].long(), within


def tokens_of(lines: Sequence[str], tokenizer: Any) -> list[list[int]]:
    """Tokenise many lines at once."""
    encodings = tokenizer.backend_tokenizer.encode_batch_fast(list(lines), add_special_tokens=False)
    return [encoding.ids for encoding in encodings]


def flat_tokens_of(
    lines: Sequence[str], tokenizer: Any
) -> tuple[NDArray[np.int32], NDArray[np.int64]]:
    """Tokenise many lines; return the concatenated tokens, and the number in each line."""

    def part(begin: int) -> tuple[NDArray[np.int32], NDArray[np.int64]]:
        tokens = tokens_of(lines[begin : begin + _CHUNK], tokenizer)
        flat = np.concatenate([np.array(ids, dtype=np.int32) for ids in tokens])
        return flat, np.array([len(ids) for ids in tokens], dtype=np.int64)

    # Tokenising releases the GIL, so chunks overlap.
    with ThreadPoolExecutor(3) as pool:
        parts = list(pool.map(part, range(0, len(lines), _CHUNK)))
    return np.concatenate([ids for ids, _ in parts]), np.concatenate([sizes for _, sizes in parts])


def read_lines(path: Path) -> list[str]:
    """Read the lines of a file, which may be .xz."""
    content = path.read_bytes()
    text = (lzma.decompress(content) if path.suffix == ".xz" else content).decode()
    # Split at newlines only: other line separators may occur within a line.
    return text.removesuffix("\n").split("\n")
