"""Recorded rounds on a GPU: the chains of lock-step and of a CPU, the same bytes after a stop."""

import numpy as np
import pytest
import torch

import maskov
from maskov import (
    DelayedAcceptance,
    Metropolis,
    Norm,
    Population,
    Raw,
    Schedule,
    Span,
    Sweep,
    resume,
)
from maskov.energies.counting import Length
from maskov.energies.ordered import Ordered
from maskov.errors import Interrupted, ModelError
from maskov.execution.recorded import RecordedSites, RecordedWindows, sampler_for
from maskov.models import untrained
from maskov.moves import Resize, Site
from small import mixed, sample, tiny_bert

if not torch.cuda.is_available():
    pytest.skip("there is no GPU here", allow_module_level=True)

COUNTS = ("accepted", "novel", "proposed_novel", "steps", "irreversible", "tokens", "rejected")


def _model(device="cuda", dtype=torch.float64):
    model = tiny_bert("red green blue white black", dtype=dtype)
    return maskov.HuggingFaceModel(model.network.to(device), model.tokenizer, "tiny-bert")


def _kernel(energy, sizes, *nearest):
    move = {} if sizes is None else {"move": Span(sizes=sizes)}
    return Metropolis(energy, **move, delayed=DelayedAcceptance(*nearest))


KERNELS = {
    **{f"sites, {energy}": mixed(energy, Site(), 0) for energy in (Raw(), Norm())},
    **{
        f"spans of {sizes}, {energy}": mixed(energy, Span(sizes=sizes), 2)
        for energy in (Raw(), Norm())
        for sizes in ((2, 3), (1, 2, 3), (20,))
    },
    "groups": mixed(Raw(groups=3), Span(sizes=(1, 2, 3)), 0),
    "grouped sites": mixed(Norm(groups=4), Site(), 0),
    "blocks": mixed(Norm(), Site(positions=Sweep(block=2)), 2),
    "mixed": mixed(Raw(), (Site(), Span()), 2),
    "ordered": mixed(Norm() + Ordered() + 0.2 * Ordered(temperature=0.7), (Site(), Span()), 2),
    "resized": mixed(Norm() + 0.5 * Length(6), (Span(), Resize(), Resize(pairs=((1, 2),))), 2),
    "resized in groups": mixed(
        Raw(groups=2), (Site(positions=Sweep(block=3)), Span(), Resize()), 0
    ),
}
WAYS = ({}, {"resident": 7}, {"token_budget": 256})


@pytest.mark.parametrize(("name", "way"), [
    *((name, way) for name in KERNELS for way in WAYS),
    *((name, {"slots": 3}) for name in KERNELS if name.startswith("sites")),
], ids=str)  # fmt: skip
def test_the_same_chains_as_in_lock_step(name, way):
    kernel, model, sites = KERNELS[name], _model(), name.startswith("sites")
    assert sampler_for(model, kernel) is (RecordedSites if sites else RecordedWindows)
    shortest = 2 if sites else 1 if name.startswith("spans") else 4
    settings = {"schedule": Schedule(epochs=6), "chains": 20, "length": (shortest, 14), "thin": 2}
    if name.startswith("resized"):
        settings |= {"length_prior": "none"}
    plain = sample(model, kernel, lock_step=True, **settings)
    rounds = sample(model, kernel, **settings, **way)
    assert [one.ids for one in plain.samples] == [one.ids for one in rounds.samples]
    # Proposals that a second slot began in vain cost passes, too.
    for trace in COUNTS if sites else (*COUNTS, "passes", "lengths"):
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


def test_the_same_populations_as_on_a_cpu():
    moved = Metropolis(Norm() + 0.5 * Ordered(), Site(), 0.8, DelayedAcceptance(2))
    kernel = Population(moved, Ordered(temperature=0.8), 4, (0.2, 0.5, 1.0), moves=9)
    settings = {"schedule": Schedule(epochs=3), "chains": 16, "length": (9, 9)}
    here = sample(_model("cpu"), kernel, **settings)
    there = sample(_model("cuda"), kernel, **settings)
    assert [one.ids for one in here.samples] == [one.ids for one in there.samples]
    for trace in (*COUNTS, "ancestor", "passes"):
        assert (here.traces[trace] == there.traces[trace]).all(), trace
    assert np.allclose(here.traces["log_weight"], there.traces["log_weight"], 0, 1e-8)


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
