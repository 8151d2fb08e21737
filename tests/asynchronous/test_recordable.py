"""What is recorded as a CUDA graph never waits for its device: checked operation by operation.

A graph cannot hold an operation whose shape depends on contents, a number read from the device, or
one sent to it.
"""

from contextlib import contextmanager

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from maskov import LinearSchedule, MaskedConditional, Norm, Raw, Schedule, Sweep
from maskov.energies.counting import Length, PredictedLength
from maskov.energies.ordered import Ordered
from maskov.execution.recorded import RecordedSites, RecordedWindows
from maskov.moves import Resize, Site, Span
from maskov.random import CounterRng
from small import mixed, sample, tiny_bert
from tiny_translation import SOURCES, conditional

FORBIDDEN = (
    "_local_scalar_dense", "nonzero", "masked_select", "unique", "lift_fresh", "is_nonzero",
    "repeat_interleave", "bincount", "equal.default",
)  # fmt: skip
MODEL = tiny_bert("red green blue white black")
GIVEN = {"model": conditional().given(SOURCES), "chains": 2, "lengths": "top"}
CUT = MaskedConditional(0.9, top_k=3, top_p=0.9, epsilon=0.1)
RESIZES = {"length_prior": "none"}
RUNS = {
    "sites": (Raw(), [Site(CUT)], (1, 3), {}),
    "sites, norm": (Norm(), [Site()], 0, {"slots": 3}),
    "translated sites": (Norm(), [Site()], 2, GIVEN),
    "spans": (Raw(), [Span(CUT)], 2, {}),
    "groups": (Raw(groups=2), [Span(sizes=(1, 2, 3))], 1, {}),
    "blocks": (Norm(), [Site(positions=Sweep(block=2))], 2, {}),
    "mixed": (Norm(groups=3), [Site(), Site(positions=Sweep(block=3)), Span()], 0, {}),
    "resizing": (Raw() + Length(5), [Span(), Resize(), Resize(pairs=((1, 2),))], 2, RESIZES),
    "resizing in groups": (Raw(groups=3), [Site(), Resize()], 0, RESIZES),
    "ordered": (Norm() + Ordered() + 0.2 * Ordered(temperature=0.7), [Site(), Span()], 2, {}),
    "translated": (Norm() + 0.5 * PredictedLength(), [Span(), Resize()], 2, GIVEN),
}


class Recordable(TorchDispatchMode):
    """Refuses what a graph cannot hold, unless it is `off`."""

    off = False

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        name = str(function)
        if not self.off:
            assert not any(bad in name for bad in FORBIDDEN), name
            if "aten.index" in name and isinstance(args[1], list | tuple):
                kinds = [one.dtype for one in args[1] if isinstance(one, torch.Tensor)]
                assert torch.bool not in kinds, name
        return function(*args, **(kwargs or {}))


@contextmanager
def _else(mode):
    """Allow everything for a while: what has an implementation of its own on a GPU."""
    mode.off, kept = True, mode.off
    try:
        yield
    finally:
        mode.off = kept


@pytest.mark.parametrize("name", RUNS)
def test_nothing_waits_for_the_device(name, monkeypatch):
    energy, moves, nearest, settings = RUNS[name]
    kernel, mode, checked = mixed(energy, tuple(moves), nearest), Recordable(), []
    settings = {"model": MODEL, "chains": 7, "length": (3, 7)} | settings
    settings.pop("length") if "lengths" in settings else None
    kind = RecordedSites if name.split(",")[0].endswith("sites") else RecordedWindows

    def play(known, key, part, device):
        # The first time is never recorded.
        if key not in known:
            part()
            known[key] = True
            return
        checked.append(key)
        with mode:
            part()

    def allowed(function):
        def run(*arguments, **named):
            with _else(mode):
                return function(*arguments, **named)

        return run

    model = settings["model"]
    monkeypatch.setattr(type(model), "hidden_of", allowed(type(model).hidden_of))
    monkeypatch.setattr(CounterRng, "uniform", allowed(CounterRng.uniform))
    # Where sizes are told apart is computed on the host.
    monkeypatch.setattr(Span, "_chances", property(allowed(Span._chances.fget)))
    for module in ("runs.task_runner", "workers.pools"):
        monkeypatch.setattr(f"maskov.{module}.sampler_for", lambda *_: kind)
    monkeypatch.setattr("maskov.execution.recorded.play", play)
    monkeypatch.setattr("maskov.execution.recorded._SMALLEST", 64)
    heat = LinearSchedule(1.2, rate=0.1, floor=0.9)
    sample(kernel=kernel, schedule=Schedule(epochs=2, target_temperature=heat), **settings)
    assert {key[0] for key in checked} == {"prepare", "test"}
