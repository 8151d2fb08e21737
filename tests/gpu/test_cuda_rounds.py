"""Recorded rounds on a GPU: the chains of lock-step and of a CPU, the same bytes after a stop."""

import numpy as np
import pytest
import torch

import maskov
from maskov import (
    DelayedAcceptance,
    Metropolis,
    Mixture,
    Norm,
    Raw,
    Schedule,
    Span,
    Sweep,
    resume,
)
from maskov.energies.counting import Length
from maskov.errors import Interrupted, ModelError
from maskov.execution.recorded import RecordedSites, RecordedWindows, sampler_for
from maskov.models import untrained
from maskov.moves import Resize, Site
from small import sample, tiny_bert

if not torch.cuda.is_available():
    pytest.skip("there is no GPU here", allow_module_level=True)

COUNTS = ("accepted", "novel", "proposed_novel", "steps", "irreversible", "tokens", "rejected")
WINDOWS = [(2, 3), (1, 2, 3), (20,)]


def _model(device="cuda", dtype=torch.float64):
    model = tiny_bert("red green blue white black", dtype=dtype)
    return maskov.HuggingFaceModel(model.network.to(device), model.tokenizer, "tiny-bert")


def _kernel(energy, sizes, *nearest):
    move = {} if sizes is None else {"move": Span(sizes=sizes)}
    return Metropolis(energy, **move, delayed=DelayedAcceptance(*nearest))


@pytest.mark.parametrize("energy", [Raw(), Norm()], ids=str)
@pytest.mark.parametrize(("sizes", "way"), [
    *((None, way) for way in ({}, {"slots": 3}, {"resident": 7}, {"token_budget": 256})),
    *((sizes, way) for sizes in WINDOWS for way in ({}, {"resident": 7}, {"token_budget": 256})),
], ids=str)  # fmt: skip
def test_the_same_chains_as_in_lock_step(energy, sizes, way):
    kernel, model = _kernel(energy, sizes, 0 if sizes is None else 2), _model()
    assert sampler_for(model, kernel) is (RecordedSites if sizes is None else RecordedWindows)
    lengths = (2, 14) if sizes is None else (1, 14)
    settings = {"schedule": Schedule(epochs=6), "chains": 20, "length": lengths, "thin": 2}
    plain = sample(model, kernel, lock_step=True, **settings)
    rounds = sample(model, kernel, **settings, **way)
    assert [one.ids for one in plain.samples] == [one.ids for one in rounds.samples]
    # Proposals that a second slot began in vain cost passes, too.
    for name in COUNTS if sizes is None else (*COUNTS, "passes"):
        assert (plain.traces[name] == rounds.traces[name]).all(), name
    assert np.abs(plain.traces["energy_norm"] - rounds.traces["energy_norm"]).max() < 1e-8


MOVES = {
    "groups": (Raw(groups=3), [Span(sizes=(1, 2, 3))], 0),
    "sites in groups": (Norm(groups=4), [Site()], 0),
    "blocks": (Norm(), [Site(positions=Sweep(block=2))], 2),
    "mixed": (Raw(), [Site(), Span()], 2),
    "resizing": (Norm() + 0.5 * Length(6), [Span(), Resize(), Resize(pairs=((1, 2),))], 2),
    "mixed in groups": (Raw(groups=2), [Site(positions=Sweep(block=3)), Span(), Resize()], 0),
}


@pytest.mark.parametrize("way", [{}, {"resident": 7}, {"token_budget": 256}], ids=str)
@pytest.mark.parametrize("name", MOVES)
def test_every_window_as_in_lock_step(name, way):
    energy, moves, nearest = MOVES[name]
    delayed, model = DelayedAcceptance(nearest), _model()
    parts = tuple(Metropolis(energy, move, delayed=delayed) for move in moves)
    kernel = parts[0] if len(parts) == 1 else Mixture(parts)
    assert sampler_for(model, kernel) is RecordedWindows
    settings = {"schedule": Schedule(epochs=6), "chains": 20, "length": (4, 14), "thin": 2}
    if Resize in map(type, moves):
        settings |= {"length_prior": "none"}
    plain = sample(model, kernel, lock_step=True, **settings)
    rounds = sample(model, kernel, **settings, **way)
    assert [one.ids for one in plain.samples] == [one.ids for one in rounds.samples]
    for trace in (*COUNTS, "passes", "lengths"):
        assert (plain.traces[trace] == rounds.traces[trace]).all(), trace
    for trace in ("energy_norm", "energy_target"):
        same = np.isclose(plain.traces[trace], rounds.traces[trace], 0, 1e-8, equal_nan=True)
        assert same.all(), trace


@pytest.mark.parametrize(("sizes", "nearest"), [
    (None, 0), (None, 2), (None, (1, 3)), ((1, 2, 3), (1, 4)),
], ids=str)  # fmt: skip
def test_the_same_chains_as_on_a_cpu(sizes, nearest):
    settings = {"schedule": Schedule(epochs=8), "chains": 20, "length": (3, 14), "slots": 1}
    here, there = (
        sample(_model(device), _kernel(Raw(), sizes, nearest), **settings)
        for device in ("cpu", "cuda")
    )
    assert [one.ids for one in here.samples] == [one.ids for one in there.samples]
    assert (here.traces["passes"] == there.traces["passes"]).all()


@pytest.mark.parametrize("sizes", [None, (2, 3)], ids=str)
@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_a_stopped_run_goes_on_to_the_same_bytes(tmp_path, precision, sizes):
    model, kernel = untrained("cuda"), _kernel(Raw(), sizes, 2)
    if precision == "bfloat16":
        model = model.in_precision("bfloat16")
        model.precision = precision
    settings = {"schedule": Schedule(epochs=8), "chains": 30, "length": (4, 20), "seed": 3}
    whole = sample(model, kernel, out=tmp_path / "whole", **settings)
    asked = iter(range(1, 10**9))

    def stop() -> bool:
        return next(asked) % 60 == 0

    with pytest.raises(Interrupted):
        sample(model, kernel, out=tmp_path / "cut", stop=stop, **settings)
    for _ in range(100):
        try:
            run = resume(tmp_path / "cut", model, stop=stop)
            break
        except Interrupted:
            continue
    assert [one.to_json() for one in run.samples] == [one.to_json() for one in whole.samples]
    for name, trace in whole.traces.items():
        assert trace.tobytes() == run.traces[name].tobytes()


def test_no_memory_while_a_round_is_recorded_is_one_sentence(monkeypatch):
    """The recording is ended, so that another run works afterwards."""

    class Full(RecordedWindows):
        def _decide(self):
            if torch.cuda.is_current_stream_capturing():
                raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 GiB")
            super()._decide()

    model, kernel = _model(), _kernel(Raw(), (2, 3), 2)
    settings = {"schedule": Schedule(epochs=3), "chains": 9, "length": (4, 9)}
    with monkeypatch.context() as patch:
        patch.setattr("maskov.runs.task_runner.sampler_for", lambda *_: Full)
        with pytest.raises(ModelError, match="ran out of memory in the middle of a round"):
            sample(model, kernel, **settings)
    assert sample(model, kernel, **settings).samples


@pytest.mark.parametrize("given", [(Metropolis(Norm()), Schedule(epochs=30)), ()], ids=str)
def test_cached_passes_stay_those_of_the_tokens(given):
    """Kept energies are those of a fresh computation, also after a burn-in of groups."""
    run = sample(untrained("cuda"), *given, chains=64 if given else 12, length=(5, 30), thin=4)
    again = maskov.score(untrained("cuda"), [one.text for one in run.samples], Norm())
    for kept, fresh in zip(run.samples, again, strict=True):
        assert not given or kept.tokens == fresh.tokens
        if kept.tokens == fresh.tokens:
            assert kept.energy_norm == pytest.approx(fresh.energy, abs=2e-3)
