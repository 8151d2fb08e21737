"""A replayed epoch is the recorded one: same tokens, same rejections, and sums that add up."""

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
from maskov.errors import InputError, RunError
from maskov.moves import Resize, Site, Span
from maskov.replay import Replayer
from maskov.runs import Run
from maskov.runs.store import Store
from small import random_table, tiny_bert

MODEL = tiny_bert("red green blue white black")

EXPERTS = parse_energy("norm+2*edit+3*contains('red', 'black')+0.5*repeats")
TEXTS = ["red green blue white", "black red"]
KERNELS = {
    "one test": (Metropolis(Raw(), delayed=DelayedAcceptance(0)), {}),
    "the usual tests": (Metropolis(Norm()), {}),
    "early tests": (Metropolis(Raw() + 0.5 * Norm(), delayed=DelayedAcceptance(2)), {}),
    "truncated": (Metropolis(Raw(), Site(MaskedConditional(top_k=2))), {}),
    "left to right": (Metropolis(Norm(), Site(positions=Sweep("left-to-right"))), {}),
    "blocks": (Metropolis(Raw(), Site(positions=Sweep(block=3))), {}),
    "spans": (Metropolis(Norm(), Span(), delayed=DelayedAcceptance(1)), {}),
    "gibbs": (Gibbs(), {}),
    "mask-predict": (mask_predict(5), {}),
    "greedy start": (Metropolis(Raw()), {"start": "greedy"}),
    "lengths": (Metropolis(Raw()), {"length": (3, 7)}),
    "texts": (Metropolis(Raw()), {"texts": ["red green blue white", "black red"]}),
    "templates": (Metropolis(Raw()), {"templates": ["red [MASK] [MASK] blue [MASK]"]}),
    "groups": (Metropolis(Norm()), {"resident": 1}),
    "mixture": (
        Mixture((Metropolis(Norm(), Span(sizes=(2,))), Metropolis(Norm(), Site())), (1.0, 2.0)),
        {},
    ),
    "mixture of mixtures": (
        Mixture((
            Metropolis(Norm(), Site(positions=Sweep(block=2)), delayed=DelayedAcceptance(1)),
            Mixture((Metropolis(Norm(), Span()), Metropolis(Norm(), Site()))),
        )),
        {},
    ),
    "experts": (Metropolis(EXPERTS, delayed=DelayedAcceptance(1)), {"texts": TEXTS}),
    "mixture of experts": (
        Mixture((Metropolis(EXPERTS, Span()), Metropolis(EXPERTS, Site()))),
        {"texts": TEXTS},
    ),
    "no passes": (Metropolis(EXPERTS.parts[2][1] + Edit()), {"texts": TEXTS}),
}  # fmt: skip
ANNEALED = Schedule(
    epochs=6,
    target_temperature=LinearSchedule(1.0, 0.1, 0.2),
    block=LinearSchedule(3.0, 1.0, 1.0),
    force_accept=1,
)


def recorded(kernel, **settings):
    given = {"schedule": Schedule(epochs=5), "chains": 2, "length": 4, "seed": 11} | settings
    if "texts" in given or "templates" in given:
        del given["length"]
    return sample(MODEL, kernel, **given)


def check(run, model=MODEL):
    """Replay every epoch of every chain and hold it to the record."""
    replayer = Replayer(run, model)
    tokens, kinds = run.traces["tokens"], set()
    for chain in range(run.manifest.chains):
        for epoch in range(replayer.epochs):
            replay = replayer.epoch(chain, epoch)
            width = len(replay.after)
            assert replay.agrees
            assert replay.after == tokens[epoch, chain, :width].tolist()
            if epoch:
                assert replay.before == tokens[epoch - 1, chain, :width].tolist()
            assert [step.number for step in replay.steps] == list(range(len(replay.steps)))
            assert len(replay.steps) == run.traces["steps"][epoch, chain]
            accepted = sum(step.accepted for step in replay.steps)
            assert accepted == run.traces["accepted"][epoch, chain]
            kinds |= follow(replay)
    return kinds


def follow(replay):
    """Walk through the steps; return what kinds of steps there were."""
    tokens, kinds = list(replay.before), set()
    for step in replay.steps:
        assert [tokens[place] for place in step.positions] == step.old
        assert step.repeated == (step.old == step.new)
        if step.repeated:
            assert step.accepted
            assert not step.tests
        elif replay.energy is None:
            assert step.accepted
            assert step.log_ratio is None
        else:
            kinds.add(add_up(replay, step))
        if step.accepted:
            for place, token in zip(step.positions, step.new, strict=True):
                tokens[place] = token
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


@pytest.mark.parametrize("name", KERNELS)
def test_every_epoch_ends_where_the_record_says(name):
    kernel, settings = KERNELS[name]
    kinds = check(recorded(kernel, **settings))
    expected = {
        "one test": {"accepted", "rejected"},
        "early tests": {"accepted", "turned down early"},
        "mixture": {"accepted", "rejected"},
        "mixture of mixtures": {"accepted", "turned down early"},
        "experts": {"accepted", "turned down early"},
        "mixture of experts": {"accepted", "turned down early"},
        "no passes": {"accepted", "rejected"},
        "gibbs": set(),
        "mask-predict": set(),
    }
    if name in expected:
        assert kinds >= expected[name]
        assert bool(kinds) == bool(expected[name])


def test_shares_are_what_the_parts_say_of_both_texts():
    kernel, settings = KERNELS["mixture of experts"]
    replay = Replayer(recorded(kernel, **settings), MODEL).epoch(0, 2)
    tokens, edited, seen = list(replay.before), MODEL.encode(TEXTS[0]), set()
    for step in replay.steps:
        proposed = step.proposed(tokens)
        if not step.repeated:
            assert [share.name for share in step.shares] == [str(p) for _, p in EXPERTS.parts]
            norm, edit, contains, _ = step.shares
            changes = [sum(a != b for a, b in zip(one, edited, strict=True))
                       for one in (tokens, proposed)]  # fmt: skip
            assert abs(edit.fall) <= 2 * max(changes)
            assert (edit.weight, contains.weight, norm.weight) == (2.0, 3.0, 1.0)
            lacking = [
                sum(word not in MODEL.decode(one).split() for word in ("red", "black"))
                for one in (tokens, proposed)
            ]
            assert contains.fall == 3 * (lacking[0] - lacking[1])
            seen |= {share.tested for share in step.shares}
        tokens = proposed if step.accepted else tokens
    assert seen == {True, False}


def test_resized_chains_tell_their_shares_and_tests():
    moves = (Span(sizes=(1, 2)), Resize())
    kernel = Mixture(
        tuple(Metropolis(EXPERTS, move, delayed=DelayedAcceptance(1)) for move in moves)
    )
    run = recorded(kernel, texts=TEXTS, length_prior="none")
    kinds, sizes = set(), set()
    for chain in range(4):
        for epoch in range(5):
            replay = Replayer(run, MODEL).epoch(chain, epoch)
            assert replay.agrees
            assert replay.temperature == 1.0
            for step in replay.steps:
                sizes.add(len(step.new) - len(step.old))
                if not step.repeated:
                    assert step.shares
                    kinds.add(add_up(replay, step))
    assert sizes == {-1, 0, 1}
    assert kinds >= {"accepted", "turned down early"}


def test_annealing_blocks_and_forced_epochs_are_replayed_as_they_were():
    run = recorded(Metropolis(Raw()), schedule=ANNEALED)
    check(run)
    temperatures = [Replayer(run, MODEL).epoch(0, epoch).temperature for epoch in range(6)]
    assert temperatures == [None, *(pytest.approx(1 - 0.1 * epoch) for epoch in range(1, 6))]


def test_texts_that_the_proposal_would_not_write_have_no_way_back():
    kernel = Metropolis(Raw(), Site(MaskedConditional(top_k=1, epsilon=0.0)))
    texts = ["black black white green red", "blue red blue red"]
    kinds = check(recorded(kernel, texts=texts))
    assert "impossible way back" in kinds


def test_a_stopped_run_is_played_as_far_as_it_went(tmp_path):
    from maskov.errors import Interrupted

    class Listener:
        ended = 0

        def begun(self, model): ...
        def noted(self, text): ...
        def moved(self, state, epoch, passes): ...
        def epoch_ended(self, epoch, values, passes):
            self.ended = epoch + 1

    listener = Listener()
    with pytest.raises(Interrupted):
        sample(
            MODEL, Metropolis(Raw()), Schedule(epochs=40), chains=2, length=6, listener=listener,
            out=tmp_path / "run", stop=lambda: listener.ended >= 3,
        )  # fmt: skip
    run = Run.open(tmp_path / "run")
    replayer = Replayer(run, MODEL)
    assert 3 <= replayer.epochs < 40
    check(run)
    with pytest.raises(InputError, match="no epoch 41"):
        replayer.epoch(0, 40)
    with pytest.raises(InputError, match="no chain 2"):
        replayer.epoch(2, 0)
    with pytest.raises(InputError, match="no chain -1"):
        replayer.epoch(-1, 0)


def test_another_record_is_noticed():
    """Tokens, and rejections, that the replay does not come to."""
    run = recorded(Metropolis(Raw()))
    for name in ("tokens", "rejected"):
        store = Store(run.manifest)
        for epoch in range(5):
            store.write_rows(0, epoch, {key: rows[epoch] for key, rows in run.traces.items()})
        trace = store.traces()[name]
        trace[4, 1, 2] = not trace[4, 1, 2] if name == "rejected" else (trace[4, 1, 2] + 1) % 5 + 6
        changed = Replayer(Run(store), MODEL)
        assert not changed.epoch(1, 4).agrees
        assert changed.epoch(0, 4).agrees


def test_what_cannot_be_replayed_says_why(monkeypatch):
    run = recorded(Metropolis(Raw()))
    store = Store(run.manifest)
    with monkeypatch.context() as patch:
        patch.setattr("maskov.runs.store._MOST_PLACES", 1)
        with pytest.raises(RunError, match="tokens were not traced"):
            Replayer(Run(store), MODEL)
    with pytest.raises(RunError, match="is not the one"):
        Replayer(run, tiny_bert("red green blue white brown"))


def test_a_kernel_that_nobody_can_make_again_is_not_replayed():
    @dataclass(frozen=True)
    class Local(Metropolis):
        """A kernel that no other process can import."""

    with pytest.raises(RunError, match="how to make its kernel again"):
        Replayer(recorded(Local(Raw())), MODEL)


def test_tables_are_replayed_too():
    model = random_table()
    kernel = Metropolis(Norm(), delayed=DelayedAcceptance(0))
    run = sample(model, kernel, Schedule(epochs=5), chains=3, length=3)
    assert check(run, model) >= {"accepted", "rejected"}


def test_steps_that_change_the_length_lead_to_what_was_recorded():
    kernel = Metropolis(Norm(), Resize(pairs=((0, 1), (1, 2))), delayed=DelayedAcceptance(1))
    run = sample(
        MODEL, kernel, Schedule(epochs=6), chains=2, length=(2, 6), length_prior="none", seed=2
    )
    replayer, sizes = Replayer(run, MODEL), set()
    for chain in range(2):
        for epoch in range(6):
            replay = replayer.epoch(chain, epoch)
            tokens = replay.before
            for step in replay.steps:
                sizes.add(len(step.new) - len(step.old))
                assert step.repeated or step.energy_new is not None
                tokens = step.proposed(tokens) if step.accepted else tokens
            assert replay.agrees
            assert tokens == replay.after
    assert sizes >= {-1, 0, 1}
