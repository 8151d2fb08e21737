"""What a replay holds: steps as plain data, whichever way the chains moved."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Test:
    """One test of a proposal: it passes if log u < log R − log R of the test before it.

    The last test of a proposal is by the ratio itself, earlier ones by approximations of it: over
    the `nearest` positions (None: all), and by the `experts` of the energy that are known by then.
    """

    nearest: int | None
    log_ratio: float
    log_threshold: float
    uniform: float
    passed: bool
    experts: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Share:
    """A part's share of a decision: `fall` is its weight times E(x) − E(x′).

    All masked passes together are one part. `tested` says whether some test of the run had it;
    otherwise it was computed later, for the reader alone.
    """

    name: str
    weight: float
    fall: float
    tested: bool


@dataclass(frozen=True)
class Step:
    """One step of a chain: what was masked, what was proposed, and why it was accepted or not.

    `number` counts from 0 within the epoch. `old` and `new` are the tokens at `positions` before
    and as proposed. A step that changes the length has the `start` of its window: `old` tokens give
    way to `new` ones there, in whatever number. Energies are those of the kernel's target, None for
    kernels that have none; `log_ratio` is the Metropolis-Hastings ratio, None where nothing had to
    be decided. A proposal that an early test rejected had no energy in the run: it is then
    `computed_later`, for the reader alone. If the energy has experts, `shares` are those of all
    its parts; they add up to E(x) − E(x′).
    """

    number: int
    positions: list[int]
    old: list[int]
    new: list[int]
    log_q_forward: float
    log_q_reverse: float
    energy_old: float | None
    energy_new: float | None
    log_ratio: float | None
    tests: list[Test]
    accepted: bool
    computed_later: bool = False
    start: int | None = None
    shares: list[Share] = field(default_factory=list)

    @property
    def repeated(self) -> bool:
        """Whether the proposal was the sequence as it stood."""
        return self.old == self.new

    def proposed(self, tokens: Sequence[int]) -> list[int]:
        """Return what this step proposes to a sequence."""
        after = list(tokens)
        if self.start is not None:
            after[self.start : self.start + len(self.old)] = self.new
            return after
        for place, token in zip(self.positions, self.new, strict=True):
            after[place] = token
        return after


@dataclass(frozen=True)
class Replay:
    """One epoch of one chain again.

    `before` are its tokens as the epoch began, `after` as it ended. `agrees` says whether `after`,
    and the places that turned a proposal down, are those that the run recorded. On another machine
    or in other batches rounding can turn a near tie, and the replay is then not the run. `swapped`
    says that the chain then exchanged its sequence for that of a replica; `after` is its own, and
    only the places can be compared.
    """

    chain: int
    epoch: int
    kernel: str
    energy: str | None
    temperature: float | None
    before: list[int]
    steps: list[Step]
    after: list[int]
    agrees: bool
    swapped: bool = False
