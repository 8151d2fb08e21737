"""Chains to be played: what the page asks for while somebody steps through a run."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import asdict
from threading import Lock
from typing import Any

from maskov.errors import InputError, RunError
from maskov.kernels.registry import imported_parts
from maskov.models.base import MaskedModel
from maskov.replay import Replay, Replayer
from maskov.replay.replayer import why_not
from maskov.runs.rebuild import LoadedModels
from maskov.ui.report.json_data import plain
from maskov.ui.viewer.run_list import Opened

# Tokens of one chain that are sent at once: a few megabytes.
MOST_TOKENS = 1_000_000
_KEPT_REPLAYERS, _KEPT_EPOCHS = 4, 256


class Player:
    """Replays epochs, one at a time, and remembers the latest.

    Models that come with code of their own are loaded only if `trust` says so: a run folder may be
    anybody's.
    """

    def __init__(
        self, device: str | None = None, trust: bool = False, trust_parts: bool = False
    ) -> None:
        self._models = LoadedModels(device, trust=trust)
        self._trust, self._trust_parts = trust, trust_parts
        self._lock = Lock()
        self._replayers: dict[tuple[str, int], tuple[Replayer, MaskedModel]] = {}
        self._played: dict[tuple[str, int, int, int], dict[str, Any]] = {}

    def why_not(self, opened: Opened) -> str | None:
        """Say what keeps the chains of a run from being played, as far as that is known."""
        reason = why_not(opened.run)
        config = opened.run.manifest.config
        if reason is None and config.model.source.trust_remote_code and not self._trust:
            return (
                "its model brings code of its own: start the server with --trust-remote-code to "
                "let it run"
            )
        if reason is None and imported_parts(config.kernel) and not self._trust_parts:
            return (
                f"it uses '{imported_parts(config.kernel)[0]}', a part that is not maskov's: start "
                "the server with --trust-parts to let it run"
            )
        return reason

    def chain(self, opened: Opened, chain: int) -> dict[str, Any]:
        """Return a chain as recorded: its tokens and energies at the end of each epoch."""
        with self._lock:
            replayer, model = self._replayer(opened)
            rows = replayer.tokens(chain)
            if sum(map(len, rows)) > MOST_TOKENS:
                raise InputError("this chain is too long to be sent to a page.")
            traces, sources = opened.run.traces, opened.run.manifest.inputs.sources
            return {
                "chain": chain,
                "tokens": rows,
                "words": _words(model, (token for row in rows for token in row)),
                "free": replayer.free(chain),
                "source": None if sources is None else sources[replayer.source(chain)],
                **{
                    name: plain(traces[name][: replayer.epochs, chain].tolist())
                    for name in ("energy_raw", "energy_norm", "energy_target", "accepted", "steps")
                },
            }

    def epoch(self, opened: Opened, chain: int, epoch: int) -> dict[str, Any]:
        """Return one epoch of a chain step by step."""
        key = (opened.id, opened.stamp, chain, epoch)
        with self._lock:
            if key not in self._played:
                replayer, model = self._replayer(opened)
                self._played[key] = _told(replayer.epoch(chain, epoch), model)
                _drop(self._played, _KEPT_EPOCHS)
            return self._played[key]

    def _replayer(self, opened: Opened) -> tuple[Replayer, MaskedModel]:
        key = (opened.id, opened.stamp)
        if key not in self._replayers:
            reason = self.why_not(opened)
            if reason is not None:
                raise RunError(f"this run cannot be played: {reason}.")
            model = self._models.of(opened.run.manifest)
            self._replayers[key] = (
                Replayer(opened.run, model, self._trust_parts),
                model,
            )
            _drop(self._replayers, _KEPT_REPLAYERS)
        return self._replayers[key]


def _told(replay: Replay, model: MaskedModel) -> dict[str, Any]:
    tokens = {*replay.before, *(token for step in replay.steps for token in step.new)}
    return {
        **numbers(asdict(replay)),
        "steps": [
            {**numbers(asdict(step)), "repeated": step.repeated} for step in replay.steps
        ],
        "words": _words(model, tokens),
    }  # fmt: skip


def _words(model: MaskedModel, tokens: Iterable[int]) -> dict[int, str]:
    """Return how the vocabulary spells some tokens."""
    known = sorted(set(tokens))
    return dict(zip(known, model.token_strings(known), strict=True))


def numbers(value: Any) -> Any:
    """Return plain data in which infinities, which JSON lacks, are words; a rejection may be one.

    A step whose way back is impossible has a log q of −inf, and that is the whole reason.
    """
    if isinstance(value, dict):
        return {name: numbers(part) for name, part in value.items()}
    if isinstance(value, list):
        return [numbers(part) for part in value]
    if isinstance(value, float) and math.isinf(value):
        return "inf" if value > 0 else "-inf"
    return plain(value)


def _drop(kept: dict[Any, Any], most: int) -> None:
    while len(kept) > most:
        del kept[next(iter(kept))]
