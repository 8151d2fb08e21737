"""A replayed epoch is the recorded one: same tokens, same rejections, and sums that add up.

`tests/resume/test_same_bytes.py` replays runs of every kind; here each step is held to its sums.
"""

import math
from dataclasses import dataclass
from itertools import pairwise

import pytest

from maskov import (
    DelayedAcceptance,
    Gibbs,
    LinearSchedule,
    MaskedConditional,
    Metropolis,
    Mixture,
    Norm,
    Raw,
    Schedule,
    Sweep,
    mask_predict,
    parse_energy,
    sample,
)
from maskov.energies.counting import Edit
from maskov.errors import InputError, Interrupted, RunError
from maskov.moves import Resize, Site, Span
from maskov.replay import Replayer
from maskov.runs import Run
from maskov.runs.store import Store
from report_runs import begun
from small import random_table, tiny_bert
from stopped_runs import Heard

MODEL = tiny_bert("red green blue white black")

EXPERTS = parse_energy("norm+2*edit+3*contains('red', 'black')+0.5*repeats")
TEXTS = {"texts": ["red green blue white", "black red"]}
TOP = Site(MaskedConditional(top_k=1, epsilon=0.0))
EARLY = DelayedAcceptance(1)
BOTH = {"accepted", "rejected"}
SOON = {"accepted", "turned down early"}
ANNEALED = Schedule(
    epochs=6,
    target_temperature=LinearSchedule(1.0, 0.1, 0.2),
    block=LinearSchedule(3.0, 1.0, 1.0),
    force_accept=1,
)
# Kernel, other settings, kinds of steps that there must be.
RUNS = {
    "one test": (Metropolis(Raw(), delayed=DelayedAcceptance(0)), {}, BOTH),
    "early tests": (
        Metropolis(Raw() + 0.5 * Norm(), delayed=DelayedAcceptance(2)), {"length": (3, 7)}, SOON,
    ),
    "no way back": (
        Metropolis(Raw(), TOP),
        {"texts": ["black black white green red", "blue red blue red"]},
        {"impossible way back"},
    ),
    "left to right": (Metropolis(Norm(), Site(positions=Sweep("left-to-right"))), {}, set()),
    "blocks": (Metropolis(Raw(), Site(positions=Sweep(block=3))), {}, set()),
    "annealed, forced": (Metropolis(Raw()), {"schedule": ANNEALED}, set()),
    "gibbs": (Gibbs(), {}, None),
    "mask-predict": (mask_predict(5), {}, None),
    "mixture of mixtures": (
        Mixture((
            Metropolis(Norm(), Site(positions=Sweep(block=2)), delayed=EARLY),
            Mixture((Metropolis(Norm(), Span()), Metropolis(Norm(), Site())), (1.0, 2.0)),
        )),
        {}, SOON,
    ),
    "experts": (
        Mixture((Metropolis(EXPERTS, Span()), Metropolis(EXPERTS, delayed=EARLY))), TEXTS, SOON,
    ),
    "no passes": (Metropolis(EXPERTS.parts[2][1] + Edit()), TEXTS, BOTH),
    "resized": (
        Mixture(tuple(
            Metropolis(EXPERTS, move, delayed=EARLY) for move in (Span(sizes=(1, 2)), Resize())
        )),
        TEXTS | {"length_prior": "none"}, SOON,
    ),
}  # fmt: skip


def recorded(kernel, **settings):
    given = {"schedule": Schedule(epochs=5), "chains": 2, "length": 4, "seed": 11} | settings
    if "texts" in given:
        del given["length"]
    return sample(MODEL, kernel, **given)


def check(run, model=MODEL):
    """Replay every epoch of every chain, hold it to the record; return the kinds of steps."""
    replayer = Replayer(run, model)
    tokens, kinds = run.traces["tokens"], set()
    for chain in range(run.manifest.chains):
        for epoch in range(replayer.epochs):
            replay = replayer.epoch(chain, epoch)
            assert replay.agrees
            assert replay.after == tokens[epoch, chain, : len(replay.after)].tolist()
            if epoch:
                assert replay.before == tokens[epoch - 1, chain, : len(replay.before)].tolist()
            assert len(replay.steps) == run.traces["steps"][epoch, chain]
            accepted = sum(step.accepted for step in replay.steps)
            assert accepted == run.traces["accepted"][epoch, chain]
            kinds |= follow(replay)
    return kinds


def follow(replay):
    """Walk through the steps; return what kinds of steps there were."""
    tokens, kinds = replay.before, set()
    for number, step in enumerate(replay.steps):
        assert (step.number, step.before) == (number, tokens)
        assert [tokens[place] for place in step.positions] == step.old
        assert step.repeated == (step.proposed == tokens)
        changed = list(tokens)
        if step.start is None:
            for place, token in zip(step.positions, step.new, strict=True):
                changed[place] = token
        else:
            changed[step.start : step.start + len(step.old)] = step.new
        assert changed == step.proposed
        if step.repeated:
            assert step.accepted
            assert not step.tests
        elif replay.energy is None:
            assert step.accepted
            assert step.log_ratio is None
        else:
            kinds.add(add_up(replay, step))
        tokens = step.proposed if step.accepted else tokens
    assert tokens == replay.after
    return kinds


def add_up(replay, step):
    """Hold a step to the arithmetic of Metropolis-Hastings; return what became of it."""
    fall = (step.energy_old - step.energy_new) / replay.temperature
    expected = fall + step.log_q_reverse - step.log_q_forward
    assert step.log_ratio == pytest.approx(expected, abs=1e-8)
    before = 0.0
    for number, test in enumerate(step.tests):
        assert test.passed == (math.log(test.uniform) < test.log_threshold)
        if math.isfinite(test.log_ratio):
            assert test.log_threshold == pytest.approx(test.log_ratio - before, abs=1e-9)
        before = test.log_ratio
        assert test.passed or number == len(step.tests) - 1
    assert step.tests
    assert step.accepted == all(test.passed for test in step.tests)
    if step.shares:
        whole = sum(share.fall for share in step.shares)
        assert whole == pytest.approx(step.energy_old - step.energy_new, abs=1e-9)
        # A part is known from the test on that was the first to have it.
        known = [set(test.experts) for test in step.tests]
        assert all(one <= later for one, later in pairwise(known))
        names = {share.name for share in step.shares if share.tested}
        assert names - {"norm"} == known[-1]
        assert ("norm" in names) == (not step.computed_later and "norm" in replay.energy)
    if step.log_q_reverse == -math.inf:
        assert not step.accepted
        return "impossible way back"
    if step.computed_later:
        assert not step.accepted
        return "turned down early"
    assert step.tests[-1].log_ratio == pytest.approx(step.log_ratio, abs=1e-8)
    return "accepted" if step.accepted else "rejected"


@pytest.mark.parametrize("name", RUNS)
def test_every_epoch_ends_where_the_record_says_and_its_steps_add_up(name):
    kernel, settings, expected = RUNS[name]
    run = recorded(kernel, **settings)
    kinds = check(run)
    assert kinds >= expected if expected is not None else not kinds
    if name == "annealed, forced":
        temperatures = [Replayer(run, MODEL).epoch(0, epoch).temperature for epoch in range(6)]
        assert temperatures == [None, *(pytest.approx(1 - 0.1 * epoch) for epoch in range(1, 6))]


def test_tables_are_replayed_too():
    model, kernel = random_table(), RUNS["one test"][0]
    assert check(sample(model, kernel, Schedule(epochs=5), chains=3, length=3), model) >= BOTH


def test_shares_are_what_the_parts_say_of_both_texts():
    replay = Replayer(recorded(RUNS["experts"][0], **TEXTS), MODEL).epoch(0, 2)
    start, seen = MODEL.encode(TEXTS["texts"][0]), set()
    for step in replay.steps:
        if step.repeated:
            continue
        assert [share.name for share in step.shares] == [str(part) for _, part in EXPERTS.parts]
        norm, edit, contains, _ = step.shares
        assert (norm.weight, edit.weight, contains.weight) == (1.0, 2.0, 3.0)
        both = (step.before, step.proposed)
        changes = [sum(a != b for a, b in zip(one, start, strict=True)) for one in both]
        assert abs(edit.fall) <= 2 * max(changes)
        words = [MODEL.decode(one).split() for one in both]
        lacking = [sum(word not in one for word in ("red", "black")) for one in words]
        assert contains.fall == 3 * (lacking[0] - lacking[1])
        seen |= {share.tested for share in step.shares}
    assert seen == {True, False}


def test_a_stopped_run_is_played_as_far_as_it_went(tmp_path):
    heard = Heard()
    with pytest.raises(Interrupted):
        sample(
            MODEL, Metropolis(Raw()), Schedule(epochs=40), chains=2, length=6, listener=heard,
            out=tmp_path / "run", stop=lambda: len(heard.told["epoch_ended"]) >= 3,
        )  # fmt: skip
    run = Run.open(tmp_path / "run")
    replayer = Replayer(run, MODEL)
    assert 3 <= replayer.epochs < 40
    check(run)
    for chain, epoch, said in ((0, 40, "no epoch 41"), (2, 0, "no chain 2"), (-1, 0, "chain -1")):
        with pytest.raises(InputError, match=said):
            replayer.epoch(chain, epoch)


def test_another_record_is_noticed():
    run = recorded(Metropolis(Raw()))
    for name in ("tokens", "rejected"):
        copy = begun(run, 5)
        trace = copy.store.traced()[name].read()[name]
        trace[4, 1, 2] = not trace[4, 1, 2] if name == "rejected" else (trace[4, 1, 2] + 1) % 5 + 6
        changed = Replayer(copy, MODEL)
        assert not changed.epoch(1, 4).agrees
        assert changed.epoch(0, 4).agrees


def test_what_cannot_be_replayed_says_why(monkeypatch):
    @dataclass(frozen=True)
    class Local(Metropolis):
        """A kernel that no other process can import."""

    run = recorded(Metropolis(Raw()))
    with monkeypatch.context() as patch:
        patch.setattr("maskov.runs.store._MOST_PLACES", 1)
        with pytest.raises(RunError, match="tokens were not traced"):
            Replayer(Run(Store(run.manifest)), MODEL)
    with pytest.raises(RunError, match="is not the one"):
        Replayer(run, tiny_bert("red green blue white brown"))
    with pytest.raises(RunError, match="how to make its kernel again"):
        Replayer(recorded(Local(Raw())), MODEL)
