"""Replay chains for the page that steps through a run."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import asdict
from functools import lru_cache
from threading import Lock
from typing import Any

from maskov.errors import InputError, RunError
from maskov.models.base import MaskedModel
from maskov.replay import Replayer, why_not
from maskov.runs.rebuild import LoadedModels, own_parts
from maskov.ui.report.formats import json_safe
from maskov.ui.viewer.runs import OpenedRun

# Maximum tokens of a chain in one response, a few megabytes.
MOST_TOKENS = 1_000_000
_KEPT_REPLAYERS, _KEPT_EPOCHS = 4, 256
_TOLD = ("energy_raw", "energy_norm", "energy_target", "accepted", "novel", "steps")


class Player:
    """Replays epochs, one at a time, and caches the latest.

    Models with remote code are loaded only with `trust`, and downloaded only with
    `allow_download`, because a run folder may be anybody's.
    """

    def __init__(
        self,
        device: str | None = None,
        trust: bool = False,
        trust_parts: bool = False,
        allow_download: bool = False,
    ) -> None:
        self._models = LoadedModels(device, trust=trust, allow_download=allow_download)
        self._trust, self._trust_parts = trust, trust_parts
        self._allow_download = allow_download
        self._lock = Lock()
        self._replayer = lru_cache(_KEPT_REPLAYERS)(self._load)
        self._epoch = lru_cache(_KEPT_EPOCHS)(self._replay)

    def why_not(self, opened: OpenedRun) -> str | None:
        """Return why the chains of a run cannot be replayed, or None."""
        reason = why_not(opened.run)
        config = opened.run.manifest.config
        if reason is None and config.model.source.trust_remote_code and not self._trust:
            return (
                "its model has remote code: start the server with --trust-remote-code to allow it"
            )
        if reason is None and own_parts(config) and not self._trust_parts:
            return (
                f"it uses '{own_parts(config)[0]}', a part that is not maskov's: start "
                "the server with --trust-parts to let it run"
            )
        return reason

    def chain(self, opened: OpenedRun, chain: int) -> dict[str, Any]:
        """Return a chain as recorded: its tokens and energies at the end of each epoch."""
        with self._lock:
            replayer, model = self._replayer(opened)
            rows = replayer.tokens(chain)
            if sum(map(len, rows)) > MOST_TOKENS:
                raise InputError("this chain is too long to show.")
            traces, manifest, done = opened.run.traces, opened.run.manifest, replayer.epochs
            sources = manifest.inputs.sources
            return {
                "chain": chain,
                "tokens": rows,
                "words": _words(model, (token for row in rows for token in row)),
                "free": replayer.free(chain),
                "source": None if sources is None else sources[replayer.source(chain)],
                "experts": {
                    name: json_safe(traces["expert_energy"][:done, chain, column].tolist())
                    for column, name in enumerate(manifest.experts)
                },
                **{name: json_safe(traces[name][:done, chain].tolist()) for name in _TOLD},
            }

    def epoch(self, opened: OpenedRun, chain: int, epoch: int) -> dict[str, Any]:
        """Return the steps of one epoch of a chain."""
        with self._lock:
            return self._epoch(opened, chain, epoch)

    def _replay(self, opened: OpenedRun, chain: int, epoch: int) -> dict[str, Any]:
        replayer, model = self._replayer(opened)
        replay = replayer.epoch(chain, epoch)
        told = (token for step in replay.steps for token in (*step.old, *step.new))
        steps = [numbers(asdict(step)) | {"repeated": step.repeated} for step in replay.steps]
        words = _words(model, {*replay.before, *told})
        return {**numbers(asdict(replay)), "steps": steps, "words": words}

    def _load(self, opened: OpenedRun) -> tuple[Replayer, MaskedModel]:
        reason = self.why_not(opened)
        if reason is not None:
            raise RunError(f"this run cannot be replayed: {reason}.")
        model = self._models.of(opened.run.manifest)
        return Replayer(opened.run, model, self._trust_parts, self._allow_download), model


def _words(model: MaskedModel, tokens: Iterable[int]) -> dict[int, str]:
    """Return the spelling of some tokens."""
    distinct = sorted(set(tokens))
    return dict(zip(distinct, model.token_strings(distinct), strict=True))


def numbers(value: Any) -> Any:
    """Return JSON data with infinities as the strings "inf" and "-inf".

    They matter: a step whose reverse is impossible is rejected because its log q is −inf.
    """
    if isinstance(value, dict):
        return {name: numbers(part) for name, part in value.items()}
    if isinstance(value, list):
        return [numbers(part) for part in value]
    if isinstance(value, float) and math.isinf(value):
        return "inf" if value > 0 else "-inf"
    return json_safe(value)
