"""The same on a GPU: random numbers to the bit, energies to rounding, chains step by step."""

import pytest
import torch

import maskov
from maskov import (
    AvoidWords,
    ContainsWords,
    MaskedConditional,
    Metropolis,
    Norm,
    Raw,
    Schedule,
    Sweep,
)
from maskov.models import untrained
from maskov.models.scorer import Scorer
from maskov.moves import Site, Span
from maskov.random import CounterRng, Purpose
from maskov.types import Sequences
from small import tiny_bert
from stopped_runs import Stopper

if not torch.cuda.is_available():
    pytest.skip("there is no GPU here", allow_module_level=True)


def _on(device: str, dtype=torch.float64):
    model = tiny_bert("red green blue white", dtype=dtype)
    moved = maskov.HuggingFaceModel(model.network.to(device), model.tokenizer, "tiny-bert")
    assert moved.head is not None
    return moved


def test_random_numbers_are_the_same_to_the_bit():
    chain, step = torch.arange(10_000), torch.arange(10_000) * 7
    here = CounterRng(5).uniform(chain, step, Purpose.TOKEN, chain)
    there = CounterRng(5).uniform(chain.cuda(), step.cuda(), Purpose.TOKEN, chain.cuda())
    assert torch.equal(here, there.cpu())


WORDS = MaskedConditional(constraints=(ContainsWords(("red",)), AvoidWords(("white green",))))


@pytest.mark.parametrize("energy", [Raw(), Norm(), Norm(groups=3)])
@pytest.mark.parametrize(
    "move",
    [Site(), Site(positions=Sweep(block=2)), Site(WORDS), Span(WORDS)],
    ids=["site", "block", "site with words", "span with words"],
)
def test_chains_make_the_same_decisions(energy, move):
    kernel = Metropolis(energy, move)
    settings = {"schedule": Schedule(epochs=5), "chains": 16, "length": (4, 12), "seed": 2}
    here = maskov.sample(_on("cpu"), kernel, **settings)
    there = maskov.sample(_on("cuda"), kernel, **settings)
    assert [one.ids for one in here.samples] == [one.ids for one in there.samples]
    for mine, other in zip(here.samples, there.samples, strict=True):
        assert mine.energy_raw == pytest.approx(other.energy_raw, abs=1e-8)
        assert mine.energy_norm == pytest.approx(other.energy_norm, abs=1e-8)
    assert (here.traces["accepted"] == there.traces["accepted"]).all()


@pytest.mark.parametrize("energy", [Raw(), Raw(groups=2)])
def test_energies_in_float32_agree_with_the_cpu(energy):
    here, there = untrained("cpu"), untrained("cuda")
    texts = ["the cat sat on the mat .", "no question left", "why"]
    scores = (maskov.score(one, texts, energy) for one in (here, there))
    for mine, other in zip(*scores, strict=True):
        assert mine.energy == pytest.approx(other.energy, abs=1e-2)


def test_a_run_is_stopped_and_resumed_on_the_gpu(tmp_path):
    with pytest.raises(maskov.MaskovError):
        maskov.sample(untrained("cuda"), length=8, chains=4, out=tmp_path / "run", stop=Stopper(40))
    run = maskov.resume(tmp_path / "run", device="cuda")
    assert len(run.samples) == 4
    assert run.summary().epochs_done == run.manifest.config.schedule.epochs


def test_lack_of_memory_halves_the_batch():
    model = untrained("cuda")
    engine = Scorer(model, budget=2**40)
    length, count = model.max_length, 100_000
    tokens = torch.full((1, length), 300, device="cuda").expand(count, -1)
    row = torch.arange(count, device="cuda")
    lengths = torch.full((count,), length, device="cuda")
    torch.cuda.set_per_process_memory_fraction(0.02)
    try:
        _, logit, _ = engine.answers(
            Sequences(tokens, lengths), row, row % length, normaliser=False
        )
    finally:
        torch.cuda.set_per_process_memory_fraction(1.0)
    assert engine.batcher.budget < 2**40
    assert engine.passes == count
    assert logit.isfinite().all()
