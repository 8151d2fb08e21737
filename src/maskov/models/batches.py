"""Split work into batches under a token budget, which is halved if memory runs out."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch

from maskov.errors import Interrupted, ModelError
from maskov.types import Int, Tensor

# On a CPU a batch should fit the caches; on a GPU it should fill the device.
_CPU_BYTES = 64 * 2**20
_GPU_SHARE = 0.25
_GPU_TOKENS = 2**17
# A batch of one length takes longer sequences only while it fills less than this share.
PADDED_SHARE = 0.25


def token_budget(bytes_per_token: int, device: torch.device) -> int:
    """Return the maximum number of tokens per batch.

    It depends only on the model and the machine, never on timings, so that runs are reproducible.
    """
    if device.type == "cuda":
        total = torch.cuda.get_device_properties(device).total_memory
        tokens = min(int(total * _GPU_SHARE) // bytes_per_token, _GPU_TOKENS)
    else:
        tokens = _CPU_BYTES // bytes_per_token
    return int(2 ** max(6, tokens.bit_length() - 1))


def cut_evenly(lengths: Int[Tensor, " n"], budget: int) -> Iterator[tuple[int, int, int]]:
    """Split sequences sorted by length into batches of one length and nearly equal size.

    Nothing is padded. Small batches are cheap on a CPU, but very small remainders would not be.
    """
    values, counts = torch.unique_consecutive(lengths, return_counts=True)
    begin = 0
    for value, count in zip(values.tolist(), counts.tolist(), strict=True):
        batches = -(-count // max(1, budget // max(value, 1)))
        for batch in range(batches):
            end = begin + count // batches + (batch < count % batches)
            yield begin, end, value
            begin = end


def pack(
    lengths: Int[Tensor, " n"], budget: int, padded_share: float = PADDED_SHARE
) -> Iterator[tuple[int, int, int]]:
    """Split sequences sorted by length into (begin, end, width) under the budget.

    Sequences of one length stay together, so most batches need no padding; only small batches are
    filled up with longer sequences. The loop is over distinct lengths, not over sequences.
    """
    if padded_share == 0:
        yield from cut_evenly(lengths, budget)
        return
    values, counts = torch.unique_consecutive(lengths, return_counts=True)
    begin = end = width = 0
    for value, count in zip(values.tolist(), counts.tolist(), strict=True):
        while count:
            held = end - begin
            room = max(1, budget // max(value, 1)) - held
            if held and (room <= 0 or (value > width and held * width >= padded_share * budget)):
                yield begin, end, width
                begin = end
                continue
            added = min(room, count)
            end, width, count = end + added, value, count - added
    if end > begin:
        yield begin, end, width


class Batcher:
    """Runs work batch by batch; halves the budget when memory runs out, and continues."""

    def __init__(
        self,
        budget: int,
        stop: Callable[[], bool] | None = None,
        padded_share: float = PADDED_SHARE,
    ) -> None:
        self.budget = budget
        self._stop = stop
        self._padded_share = padded_share

    def each(
        self, lengths: Int[Tensor, " n"], work: Callable[[Int[Tensor, " rows"], int], None]
    ) -> None:
        """Call `work(rows, width)` for batches that cover every row once."""
        order = torch.argsort(lengths, stable=True)
        while order.numel():
            order = order[self._until_memory_ends(order, lengths[order], work) :]

    def _until_memory_ends(
        self, order: Tensor, lengths: Tensor, work: Callable[[Tensor, int], None]
    ) -> int:
        """Process rows; return how many were done before memory ran out."""
        for begin, end, width in pack(lengths, self.budget, self._padded_share):
            if self._stop is not None and self._stop():
                raise Interrupted("asked to stop")
            try:
                work(order[begin:end], width)
            except (RuntimeError, MemoryError) as error:
                if not is_out_of_memory(error):
                    raise
                if end - begin == 1:
                    raise ModelError(
                        f"out of memory on a single sequence of {width} tokens; "
                        "use shorter sequences, a smaller model or another --device."
                    ) from error
                self.budget = max(1, min(self.budget, (end - begin) * width) // 2)
                if torch.cuda.is_available():
                    torch.cuda.empty_cache()
                return begin
        return order.numel()


def is_out_of_memory(error: BaseException) -> bool:
    """Whether an error means out of memory, on CPU or GPU."""
    if isinstance(error, MemoryError | torch.OutOfMemoryError):
        return True
    text = str(error).lower()
    signs = ("out of memory", "can't allocate memory", "cannot allocate memory")
    return any(sign in text for sign in signs)


@contextmanager
def refuse_out_of_memory() -> Iterator[None]:
    """Refuse in one sentence what is out of memory and cannot be cut into smaller batches."""
    try:
        yield
    except torch.OutOfMemoryError as error:
        raise ModelError(
            "the GPU ran out of memory in the middle of a round; run again with a smaller "
            "--token-budget or --resident."
        ) from error
