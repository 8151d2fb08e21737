"""Coarser passes: near the exact ones, scores in float32, whichever forward serves the family."""

import threading

import pytest
import torch

from maskov import Metropolis, Norm, Schedule, load, sample
from maskov.errors import InputError
from maskov.models import base
from maskov.models.base import Queries, coarse
from maskov.types import inside
from patience import PATIENCE
from small import random_state, tiny_bert
from stopped_runs import Heard


@pytest.mark.parametrize("served", ["our encoder", "its own encoder", "its own forward"])
def test_bfloat16_is_near_and_its_scores_are_single(served):
    model = tiny_bert("red green blue white black", torch.float32)
    if served != "our encoder":
        model.encoder = None
    if served == "its own forward":
        model.head = None
    coarse = model.in_precision("bfloat16")
    assert coarse.exact is model
    assert coarse.precision == "bfloat16"
    assert coarse.fingerprint() == model.fingerprint()
    state = random_state(model, 6, 7)
    place = torch.arange(6)
    exact, rounded = (
        one.logits(one.hidden_at(state.tokens, state.lengths, place)) for one in (model, coarse)
    )
    assert rounded.dtype == torch.float32
    difference = (exact - rounded).abs().max()
    assert 0 < difference < 0.15 * exact.abs().max()
    # The model itself is as it was.
    again = model.logits(model.hidden_at(state.tokens, state.lengths, place))
    assert torch.equal(exact, again)


def test_passes_that_mask_several_positions_are_as_coarse_as_the_others():
    """Energies of groups add passes of both kinds up: they must be of one network."""
    model = tiny_bert("red green blue white black", torch.float32)
    coarse, state = model.in_precision("bfloat16"), random_state(model, 6, 7)
    lengths = torch.tensor([7, 3, 5, 7, 1, 2])
    masked = inside(lengths, 7) & (torch.arange(7) % 3 == torch.arange(6)[:, None] % 3)
    masked[:, 0] |= ~masked.any(1)
    queries = Queries(state.tokens, lengths, masked)
    exact, rounded = (one.logits(one.hidden(queries)) for one in (model, coarse))
    assert rounded.dtype == torch.float32
    assert 0 < (exact - rounded).abs().max() < 0.15 * exact.abs().max()
    alone = inside(lengths, 7) & (torch.arange(7) == 0)
    one = coarse.hidden(Queries(state.tokens, lengths, alone))
    other = coarse.hidden_at(state.tokens, lengths, torch.zeros_like(lengths))
    assert torch.allclose(one, other, atol=0.05)
    assert (one - other).abs().mean() < (one - model.hidden_at(
        state.tokens, lengths, torch.zeros_like(lengths)
    )).abs().mean()  # fmt: skip


def test_the_shift_in_energy_is_measured_and_said():
    heard = Heard()
    model = load("untrained", "cpu", "bfloat16")
    run = sample(model, Metropolis(Norm()), Schedule(epochs=2), chains=3, length=6, listener=heard)
    shift = vars(run.manifest.precision_check)
    assert shift["precision"] == "bfloat16"
    assert 0 < shift["norm_mean"] <= shift["norm_most"] < 1
    assert "bfloat16 shifts E_raw" in heard.told["noted"][0][0]
    assert "precision:bfloat16" in run.signature
    exact = sample(load("untrained", "cpu"), length=4, chains=1)
    assert exact.manifest.precision_check is None


def test_tf32_is_refused_where_there_is_none():
    with pytest.raises(InputError, match="NVIDIA"):
        load("untrained", "cpu", "tf32")
    with pytest.raises(InputError, match="unknown precision"):
        load("untrained", "cpu", "int4")


def test_exact_products_wait_until_no_thread_has_coarse_ones(monkeypatch):
    """Coarse ones last as long as any thread has them, and those asked for later wait, too."""
    flag, before = torch.get_float32_matmul_precision, torch.get_float32_matmul_precision()
    may_end, entered, seen = threading.Event(), threading.Barrier(3), []
    waits = threading.Semaphore(0)

    class Condition(threading.Condition):
        def wait_for(self, *arguments):
            waits.release()
            return super().wait_for(*arguments)

    monkeypatch.setattr(base, "_ENDED", Condition())

    def one(allowed, meet):
        with coarse(allowed), coarse(allowed):
            if meet:
                entered.wait(PATIENCE)
                may_end.wait(PATIENCE)
            seen.append(flag())

    threads = [threading.Thread(target=one, args=(True, True)) for _ in range(2)]
    for thread in threads:
        thread.start()
    entered.wait(PATIENCE)
    threads += [threading.Thread(target=one, args=(allowed, False)) for allowed in (False, True)]
    threads[2].start()
    assert [waits.acquire(timeout=PATIENCE) for _ in range(3)] == [True] * 3
    threads[3].start()
    threads[3].join(0.05)
    assert not seen
    may_end.set()
    for thread in threads:
        thread.join(PATIENCE)
    assert seen == ["high", "high", "highest", "high"]
    assert flag() == before == "highest"
