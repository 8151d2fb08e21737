"""Answers masked queries in full batches and counts what they cost.

The cost of sampling is masked passes: one copy of one sequence through the model. Everything that
needs passes comes through here, whichever chain and step it belongs to. Batches have a token
budget, which is halved if memory runs out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial

import torch

from maskov.errors import LOG, Interrupted, ModelError
from maskov.models.base import MaskedModel, Queries
from maskov.random import triton_function
from maskov.types import (
    Bool,
    Chains,
    Float,
    Int,
    PassCache,
    Sequences,
    Tensor,
    groups_with,
    joined,
    masked_with,
)

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


def batch_bounds(
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
        self.budget, self._stop, self._padded_share = budget, stop, padded_share

    def raise_if_stopped(self) -> None:
        """Stop here, if that was asked for."""
        if self._stop is not None and self._stop():
            raise Interrupted("asked to stop")

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
        for begin, end, width in batch_bounds(lengths, self.budget, self._padded_share):
            self.raise_if_stopped()
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
                LOG.warning("out of memory: from now on %d tokens in a batch", self.budget)
                if torch.cuda.is_available():
                    torch.cuda.empty_cache()
                return begin
        return order.numel()


def is_out_of_memory(error: BaseException) -> bool:
    """Whether an error means out of memory, on CPU or GPU."""
    if isinstance(error, MemoryError | torch.OutOfMemoryError):
        return True
    signs = ("out of memory", "can't allocate memory", "cannot allocate memory")
    return any(sign in str(error).lower() for sign in signs)


@contextmanager
def refuse_out_of_memory() -> Iterator[None]:
    """Refuse in one sentence what is out of memory and cannot be cut into smaller batches."""
    try:
        yield
    except RuntimeError as error:
        if not is_out_of_memory(error):
            raise
        raise ModelError(
            "the GPU ran out of memory in the middle of a round; run again with a smaller "
            "--token-budget or --resident."
        ) from error


# Bytes that the vectors of resident chains and of their proposals may take.
_CPU_CHAINS, _GPU_CHAINS = 2**30, 2**33
# Passes that a chain usually waits for in a round, and in a step of all chains; with early tests,
# as rounds of a GPU show, one.
_CPU_PASSES, _LOCK_STEP_PASSES, _GPU_PASSES = 4, 2, 1
# Fewer tokens than this leave a GPU idle. Few chains have more proposals under test than many.
BUSY_TOKENS = 2**13
_SLOTS, MOST_SLOTS = 6, 8


# What passes gave, one row a pass: vectors, scores and log-sum-exps, as in a `PassCache`.
PassOutputs = tuple[Tensor, Tensor, Tensor]


class Scorer:
    """A model with a token budget, a pass counter and a check for not-a-number scores."""

    def __init__(
        self,
        model: MaskedModel,
        budget: int | None = None,
        stop: Callable[[], bool] | None = None,
    ) -> None:
        self.model = model
        self.batcher = Batcher(
            budget or token_budget(model.bytes_per_token, model.device), stop, _padded_share(model)
        )
        self.passes = 0  # run so far
        self._last: tuple[Queries, Tensor] | None = None  # of `hidden_once`
        self._broken = torch.zeros((), dtype=torch.bool, device=model.device)

    def resident(self, length: int, mean: int | None = None, lock_step: bool = False) -> int:
        """Return how many chains of at most a length, and of a `mean` length, make a group.

        Those whose passes fill a model call, so that more would gain little, but never more than
        the device can hold. Chains in `lock_step` have one or two passes each in a call. Groups
        decide which passes share a batch, and so how sums are rounded.
        """
        kept = length * self.model.hidden_width * self.model.dtype.itemsize
        share = _GPU_CHAINS if self.model.device.type == "cuda" else _CPU_CHAINS
        filling = token_budget(self.model.bytes_per_token, self.model.device)
        if self.model.device.type == "cuda":
            # Nothing is padded there, and every group ends with rounds of a few long chains.
            fitting = filling // (_GPU_PASSES * (mean or length))
        else:
            passes = _LOCK_STEP_PASSES if lock_step else _CPU_PASSES
            fitting = filling // (passes * length)
        return max(1, min(share // (2 * kept), fitting))

    def slots_for(self, chains: Chains) -> int:
        """Return how many proposals of each chain may be under test at once.

        A CPU is busy with one. On a GPU rounds decide how many of these are used.
        """
        if self.model.device.type != "cuda":
            return 1
        tokens = int((chains.lengths * chains.lengths).sum())
        vectors = chains.tokens.numel() * self.model.hidden_width * self.model.dtype.itemsize
        wanted = max(_SLOTS, BUSY_TOKENS // max(tokens, 1))
        return max(1, min(MOST_SLOTS, wanted, _GPU_CHAINS // vectors - 1))

    def hidden(self, queries: Queries) -> Float[Tensor, "masked hidden"]:
        """Answer queries that mask any number of positions each, in row-major order."""
        counts = queries.masked.sum(1)
        alone = bool((counts == 1).all())
        starts = counts.cumsum(0) - counts

        def run(rows: Tensor, width: int) -> tuple[Tensor, Tensor]:
            part = queries.rows(rows, width)
            within = part.masked.cumsum(1) - 1
            target = (starts[rows][:, None] + within)[part.masked]
            if not alone:
                return self.model.hidden(part), target
            place = part.masked.int().argmax(1)
            return self.model.hidden_at(part.tokens, part.lengths, place, part.source), target

        found = self._run_passes(queries.lengths, int(counts.sum()), run)
        self.track_nan(found)
        return found

    def forget(self) -> None:
        """Forget the last queries: what a step costs must not depend on the step before."""
        self._last = None

    def hidden_once(self, queries: Queries) -> Float[Tensor, "masked hidden"]:
        """Answer queries, at no pass if they are those of the last such call since `forget`.

        Parts of one energy that differ in what they make of the same passes ask one after another.
        """
        if self._last is None or not self._last[0].same_as(queries):
            self._last = queries, self.hidden(queries)
        return self._last[1]

    def answers(
        self,
        sequences: Sequences,
        row: Int[Tensor, " passes"],
        place: Int[Tensor, " passes"],
        normaliser: bool,
    ) -> PassOutputs:
        """Mask each (row, place) alone; return its vector and the score of the token there."""
        tokens, lengths, source = sequences.tokens, sequences.lengths, sequences.source
        logit = torch.zeros(len(row), dtype=torch.float64, device=tokens.device)
        log_normaliser = torch.full_like(logit, torch.nan)

        def run(index: Tensor, width: int) -> tuple[Tensor, Tensor]:
            rows, places = row[index], place[index]
            read = None if source is None else source[rows]
            hidden = self.model.hidden_at(tokens[rows, :width], lengths[rows], places, read)
            scores = self.scores(hidden, tokens[rows, places], normaliser)
            logit[index], log_normaliser[index] = scores
            return hidden, index

        return self._run_passes(lengths[row], len(row), run), logit, log_normaliser

    def _run_passes(
        self,
        lengths: Int[Tensor, " passes"],
        count: int,
        run: Callable[[Tensor, int], tuple[Tensor, Tensor]],
    ) -> Float[Tensor, "count hidden"]:
        """Run passes in batches; `run` returns the vectors of a batch and their places."""
        found: Tensor | None = None

        def work(rows: Tensor, width: int) -> None:
            nonlocal found
            hidden, target = run(rows, width)
            if found is None:
                found = hidden.new_empty((count, hidden.shape[1]))
            found[target] = hidden
            self.passes += len(rows)

        self.batcher.each(lengths, work)
        if found is None:
            raise ModelError("no position was masked: there is nothing to ask the model.")
        return found

    def scores(
        self,
        hidden: Float[Tensor, "passes hidden"],
        current: Int[Tensor, " passes"],
        normaliser: bool,
        valid: Bool[Tensor, " passes"] | None = None,
    ) -> tuple[Float[Tensor, " passes"], Float[Tensor, " passes"]]:
        """Return the score of the token at each mask, and the log-sum-exp if it is asked for.

        Only `valid` passes are watched; others may hold anything.
        """
        if not normaliser:
            logit = self.model.logit_of(hidden, current).double()
            self.track_nan(logit, valid)
            return logit, torch.full_like(logit, torch.nan)
        read = self.read(hidden, current, valid=valid)
        if read is not None:
            *_, log_normaliser, logit = read
            return logit, log_normaliser

        def both(scores: Tensor, token: Tensor) -> tuple[Tensor, ...]:
            own = scores.gather(1, token[:, None]).squeeze(1)
            return own.double(), scores.logsumexp(1).double()

        logit, log_normaliser = self._in_portions(both, hidden, current)
        self.track_nan(log_normaliser, valid)
        return logit, log_normaliser

    def log_shares(
        self,
        hidden: Float[Tensor, "passes hidden"],
        tokens: Int[Tensor, " passes"],
        temperature: float,
        valid: Bool[Tensor, " passes"],
    ) -> Float[Tensor, " passes"]:
        """Return log p of a token at each mask among those that may be sampled; see `scores`."""
        read = self.read(hidden, tokens, temperature, valid=valid)
        if read is not None:
            _, _, log_share, *_ = read
            return log_share

        def share(scores: Tensor, token: Tensor) -> tuple[Tensor, ...]:
            allowed = scores.masked_fill(self.model.forbidden, -torch.inf) / temperature
            own = allowed.gather(1, token[:, None]).squeeze(1)
            return (own.double() - allowed.logsumexp(1).double(),)

        (log_share,) = self._in_portions(share, hidden, tokens)
        self.track_nan(log_share, valid)
        return log_share

    def cache(
        self,
        sequences: Sequences,
        normaliser: bool = True,
        needed: Bool[Tensor, "n length"] | None = None,
        groups: int | None = None,
    ) -> PassCache:
        """Return the sites of whole sequences: all of them, or those `needed` besides the known.

        Each position is masked alone, or with `groups` together with the others of its group: one
        pass for each group that holds a needed position.
        """
        tokens, known = sequences.tokens, None if needed is None else sequences.pass_cache
        if needed is None:
            needed = sequences.inside
        row, place = needed.nonzero(as_tuple=True)
        if known is not None and not row.numel():
            return known
        if groups is None:
            found = self.answers(sequences, row, place, normaliser)
        else:
            row, place, found = self._group_answers(sequences, needed, normaliser, groups)
        if known is None:
            hidden, logit, _ = found
            known = PassCache(
                hidden.new_zeros((*tokens.shape, hidden.shape[1])),
                logit.new_zeros(tokens.shape),
                logit.new_zeros(tokens.shape),
                groups,
            )
        return known.put_at(row, place, *found)

    def _group_answers(
        self,
        sequences: Sequences,
        needed: Bool[Tensor, "n length"],
        normaliser: bool,
        groups: int,
    ) -> tuple[Int[Tensor, " masked"], Int[Tensor, " masked"], PassOutputs]:
        """Mask each group that holds a needed position; return where, and what its pass gave."""
        tokens, source = sequences.tokens, sequences.source
        row, first = groups_with(needed, groups).nonzero(as_tuple=True)
        # The first position of a group has the group's own number.
        masked = masked_with(first, sequences.inside[row], groups)
        read = None if source is None else source[row]
        hidden = self.hidden(Queries(tokens[row], sequences.lengths[row], masked, read))
        query, place = masked.nonzero(as_tuple=True)
        row = row[query]
        return row, place, (hidden, *self.scores(hidden, tokens[row, place], normaliser))

    def with_normaliser(self, sites: PassCache, inside: Bool[Tensor, "n length"]) -> PassCache:
        """Return sites with the log-sum-exp of every position, from vectors already at hand."""
        if not bool(sites.log_normaliser[inside].isnan().any()):
            return sites
        found = self.log_normalisers(sites.hidden[inside])
        return replace(sites, log_normaliser=sites.log_normaliser.masked_scatter(inside, found))

    def log_normalisers(self, hidden: Float[Tensor, "n hidden"]) -> Float[Tensor, " n"]:
        """Return the log-sum-exp of the scores of each vector."""
        tokens = torch.zeros(len(hidden), dtype=torch.long, device=hidden.device)
        return self.scores(hidden, tokens, normaliser=True)[1]

    def read(
        self,
        hidden: Float[Tensor, "n hidden"],
        tokens: Int[Tensor, " n"],
        temperature: float = 1.0,
        uniform: Float[Tensor, " n"] | None = None,
        valid: Bool[Tensor, " n"] | None = None,
    ) -> list[Tensor] | None:
        """Return what `triton_draws.read` says of these tokens; None where there is no Triton.

        Tokens are drawn by `uniform` numbers, if there are some. For `valid`, see `scores`.
        """
        kernel = triton_function("maskov.triton_draws", "read") if hidden.is_cuda else None
        if kernel is None:
            return None
        kernel = partial(kernel, self.model.forbidden, temperature)
        read = self._in_portions(kernel, hidden, tokens, *(() if uniform is None else (uniform,)))
        self.track_nan(read[4], valid)  # the log-sum-exp: not a number if any score is not
        return read

    def _in_portions(
        self, read: Callable[..., tuple[Tensor, ...]], hidden: Tensor, *columns: Tensor
    ) -> list[Tensor]:
        """Let `read` have the scores of so few rows at a time that they fit in memory."""
        every = (torch.split(one, self.model.head_rows) for one in (hidden, *columns))
        found = [read(self.model.logits(part), *more) for part, *more in zip(*every, strict=True)]
        return [joined(column) for column in zip(*found, strict=True)]

    def track_nan(self, values: Tensor, valid: Bool[Tensor, " n"] | None = None) -> None:
        """Remember whether any value is not a number, without waiting for the device."""
        broken = values.isnan()
        self._broken |= (broken if valid is None else broken & valid).any()

    def check(self) -> None:
        """Raise if the model has given anything that is not a number."""
        if bool(self._broken):
            raise ModelError(
                f"the model '{self.model.name}' gave not-a-number scores (NaN); its weights are "
                "damaged or its precision is too low. Nothing of this epoch was kept."
            )


def _padded_share(model: MaskedModel) -> float:
    """Return how much of a batch may be filled up with longer sequences."""
    if model.device.type == "cpu":
        # Our own encoder pads for attention alone, which costs less than small batches do.
        return 0.0 if getattr(model, "encoder", None) is None else PADDED_SHARE
    return 1.0 if model.packs else PADDED_SHARE if getattr(model, "pads", True) else 0.0
