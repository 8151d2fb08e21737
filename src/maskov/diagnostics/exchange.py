"""How well replicas are exchanged: swap rates between neighbours, and round trips.

A state that goes from the lowest temperature to the highest and back has made a round trip: only
such states bring something new to the chain.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from maskov.config import Manifest
from maskov.types import Traces

# A lower rate between two neighbours keeps states from passing them.
_LEAST_RATE = 0.1


@dataclass(frozen=True)
class ExchangeFigures:
    """Swaps of the epochs after burn-in, over all chains.

    `ladder` are the inverse temperatures. `swap_rates` has the accepted share of the swaps that
    were tested, for each pair of neighbours from the coldest on, None where none was tested.
    `round_trips` are those of all replicas, and `round_trips_per_1000_epochs` those of one chain.
    """

    ladder: list[float]
    swap_rates: list[float | None]
    round_trips: int
    round_trips_per_1000_epochs: float | None

    def slow_pairs(self) -> list[str]:
        """Return the pairs of neighbours that hardly ever swap."""
        pairs = zip(self.ladder, self.ladder[1:], self.swap_rates, strict=False)
        return [
            f"{one:g} and {other:g}"
            for one, other, rate in pairs
            if rate is not None and rate < _LEAST_RATE
        ]


def exchange_figures(manifest: Manifest, traces: Traces, kept: slice) -> ExchangeFigures:
    """Count swaps and round trips of the kept epochs."""
    tested = traces["swap_tested"][kept].sum((0, 1)).tolist()
    accepted = traces["swap_accepted"][kept].sum((0, 1)).tolist()
    replicas = traces["rung_replica"][kept]
    trips = round_trips(replicas)
    epochs = replicas.shape[0] * replicas.shape[1]
    return ExchangeFigures(
        list(manifest.ladder or ()),
        [part / whole if whole else None for part, whole in zip(accepted, tested, strict=True)],
        trips,
        1000 * trips / epochs if epochs else None,
    )


def round_trips(replicas: npt.NDArray[Any]) -> int:
    """Count the trips from the first temperature to the last and back.

    `replicas` says which state is at each temperature, epochs × chains × temperatures.
    """
    hottest, count = replicas.shape[2] - 1, 0
    # The temperature of each state.
    place = np.argsort(replicas, axis=2, kind="stable")
    # States that have been at the first temperature, and those that have then been at the last.
    left = np.zeros(place.shape[1:], dtype=np.bool_)
    turned = np.zeros_like(left)
    for now in place:
        back = turned & (now == 0)
        count += int(back.sum())
        turned &= ~back
        left |= now == 0
        turned |= left & (now == hottest)
    return count
