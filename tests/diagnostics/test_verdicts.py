"""The verdict: each state where it belongs, with its reason; numbers only where there are any."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from arviz_stats.base import array_stats
from made_up_runs import manifest, traces

import maskov
from ar_chains import autoregressive
from maskov import Gibbs, LinearSchedule, Metropolis, Norm, Raw, Schedule, Sweep
from maskov.config import Inputs
from maskov.diagnostics import diagnose
from maskov.diagnostics.chains import chain_groups
from maskov.diagnostics.thresholds import times_longer
from maskov.diagnostics.verdict import judge
from maskov.moves import Site
from small import random_table, tiny_bert

MODEL = tiny_bert("red green blue white", dtype=torch.float32)
TABLE = random_table(length=2, scale=0.5)


def verdict_of(raw: np.ndarray, **changes) -> str:
    return str(diagnose(manifest(*raw.shape, **changes), traces(raw)).verdict)


def test_chains_that_agree_have_converged():
    found = diagnose(manifest(1000, 4), traces(autoregressive(0.3, 1000, 4))).verdict
    assert found.state == "converged"
    assert found.times_longer == 1


def test_chains_that_disagree_have_not_and_the_energy_is_named():
    agreed, apart = autoregressive(0.0, 200, 4), autoregressive(0.0, 200, 4, seed=1)
    apart[:, 3] += 0.9
    found = diagnose(manifest(200, 4), traces(agreed, apart))
    r_hat = found.energies["E_norm"].r_hat
    assert 1.05 < r_hat < 1.3
    assert str(found.verdict).startswith(f"not converged: R-hat {r_hat:.3f} of E_norm; run about ")
    size = found.energies["E_norm"].ess_bulk
    assert found.verdict.times_longer == max(400 / size, (r_hat**2 - 1) / (1.01**2 - 1))
    assert found.energies["E_raw"].r_hat < 1.02


def test_too_few_effective_draws_are_borderline():
    found = diagnose(manifest(60, 4), traces(autoregressive(0.0, 60, 4)))
    assert found.energies["E_raw"].r_hat < 1.05
    assert found.verdict.state == "borderline"
    assert 1 < found.verdict.times_longer < 10


def test_the_tails_count_as_well_as_the_bulk():
    energy = diagnose(manifest(1000, 4), traces(autoregressive(0.0, 1000, 4))).energies["E_raw"]
    thin = replace(energy, ess_tail=100.0)
    found = judge(manifest(1000, 4), {"E_raw": energy, "E_norm": thin})
    assert str(found).startswith("borderline: 100 effective draws of E_norm (at least 400 are")
    assert found.times_longer == 4
    assert judge(manifest(1000, 4), {"E_raw": energy, "E_norm": energy}).state == "converged"


def test_hopeless_runs_are_not_told_to_go_on():
    apart = autoregressive(0.0, 100, 4) + 50 * np.arange(4)
    assert verdict_of(apart).endswith("of E_raw; more epochs of this kind may not help")


def test_the_rule_for_how_much_longer():
    assert times_longer(1.0, 400) == 1
    assert times_longer(1.0, 100) == 4
    assert times_longer(1.05, 400) == pytest.approx((1.05**2 - 1) / (1.01**2 - 1))
    assert times_longer(1.001, 5000) == 1


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"kernel": "gibbs"}, "no target: degenerate Gibbs leaves no target invariant"),
        ({"kernel": "mask-predict"}, "no target: mask-predict leaves no target"),
        ({"kernel": "Mine"}, "no target: Mine leaves no target"),
        (
            {"schedule": {"target_temperature": LinearSchedule(1.0, rate=1e-3, floor=0.1)}},
            "annealed: the temperature changes after burn-in, so there is no fixed target",
        ),
        ({"schedule": {"force_accept": 9}}, "forced: acceptance is forced after burn-in"),
    ],
)
@pytest.mark.parametrize("epochs", [10, 400])
def test_without_a_target_there_is_no_convergence(changes, said, epochs):
    raw = autoregressive(0.0, epochs, 4)
    assert verdict_of(raw, **changes, leaves_invariant=False).startswith(said)


def test_an_annealing_that_is_over_is_none():
    settled = {"target_temperature": LinearSchedule(1.0, rate=0.1, floor=0.5), "burn_in": 10}
    assert verdict_of(autoregressive(0.0, 1010, 4), schedule=settled).startswith("converged")


@pytest.mark.parametrize("epochs", [1, 4, 19])
def test_short_runs_have_a_mean_and_nothing_else(epochs):
    raw = autoregressive(0.0, epochs, 4)
    found = diagnose(manifest(epochs, 4), traces(raw))
    assert str(found.verdict) == (
        f"too short to tell: {epochs} traced epochs after burn-in (at least 20 are needed)"
    )
    energy = found.energies["E_raw"]
    assert energy.mean == pytest.approx(raw.mean())
    for name in (
        "r_hat",
        "r_hat_median",
        "ess_bulk",
        "ess_tail",
        "mcse",
        "autocorrelation",
        "time",
    ):
        assert getattr(energy, name) is None


def test_burn_in_and_epochs_not_yet_done_do_not_count():
    raw = autoregressive(0.0, 400, 4)
    whole = traces(raw.copy())
    whole["energy_raw"][:50] += 1000
    for name in ("energy_raw", "energy_norm"):
        whole[name][350:] = np.nan
    whole["steps"][350:] = 0
    found = diagnose(manifest(400, 4, schedule={"burn_in": 50}), whole)
    alone = diagnose(manifest(300, 4), traces(raw[50:350]))
    assert found.epochs == 300
    assert found.energies == alone.energies
    begun = diagnose(manifest(400, 4, schedule={"burn_in": 360}), whole)
    assert begun.verdict.reason.startswith("0 traced epochs")
    assert begun.energies["E_raw"].mean is None


def test_an_energy_that_never_moved_is_named():
    moving, still = autoregressive(0.0, 50, 4), np.full((50, 4), 3.0)
    found = diagnose(manifest(50, 4), traces(moving, still))
    assert str(found.verdict) == "constant: E_norm never moved"
    assert found.energies["E_norm"].r_hat is found.energies["E_norm"].time is None
    assert found.energies["E_norm"].mean == 3
    # One chain among others is not a run that stands still, but one of its own length is a group.
    half = moving.copy()
    half[:, 3] = 3.0
    assert not verdict_of(half).startswith("constant")
    steps = np.array([5, 5, 5, 6])
    found = diagnose(manifest(50, 4, inputs=Inputs(length=(5, 6))), traces(half, steps=steps))
    assert str(found.verdict) == "constant: E_raw never moved in 1 of 2 groups of chains"
    # The other group has numbers; the run, of which a part is missing, has none.
    energy = found.energies["E_raw"]
    assert [one.r_hat is None for one in energy.groups] == [False, True]
    assert energy.r_hat is energy.ess_bulk is energy.mcse is None


def test_epochs_that_were_not_traced_are_passed_over():
    raw = autoregressive(0.0, 300, 4)
    sparse = np.full_like(raw, np.nan)
    sparse[2::3] = raw[2::3]
    sparse[0] = 1e6  # an odd one, at no even distance from the others
    found = diagnose(manifest(300, 4), traces(sparse))
    energy, alone = found.energies["E_raw"], diagnose(manifest(100, 4), traces(raw[2::3]))
    assert (energy.draws, energy.spacing) == (100, 3)
    assert energy.r_hat == alone.energies["E_raw"].r_hat
    assert energy.time == pytest.approx(3 * alone.energies["E_raw"].time)
    assert any("not traced in every epoch" in note for note in found.notes)
    none = diagnose(manifest(300, 4), traces(np.full_like(raw, np.nan)))
    assert str(none.verdict).startswith("too short to tell: 0 traced epochs")
    assert none.energies["E_raw"].mean is None


def test_one_chain_can_only_be_compared_with_itself():
    found = diagnose(manifest(400, 1), traces(autoregressive(0.0, 400, 1)))
    r_hat = found.energies["E_raw"].r_hat
    assert str(found.verdict) == (
        f"one chain: R-hat compares chains; run several (R-hat of its halves: {r_hat:.4f} of E_raw)"
    )
    assert found.energies["E_raw"].groups[0].compares == "halves"


def test_chains_of_different_lengths_are_not_pooled():
    steps = np.array([5, 5, 7, 7, 7, 7])
    raw = autoregressive(0.0, 400, 6) + 100 * steps
    mixed = {"inputs": Inputs(length=(5, 7))}
    found = diagnose(manifest(400, 6, **mixed), traces(raw, steps=steps))
    assert found.verdict.state == "converged"
    assert [(one.length, one.chains) for one in found.energies["E_raw"].groups] == [(5, 2), (7, 4)]
    parts = raw[:, :2].T, raw[:, 2:].T  # chains × draws, for ArviZ itself
    r_hats, sizes, errors = (
        [float(function(part)) for part in parts]
        for function in (array_stats.rhat, array_stats.ess, array_stats.mcse)
    )
    energy = found.energies["E_raw"]
    assert energy.r_hat == pytest.approx(max(r_hats))
    assert energy.r_hat_median == pytest.approx(np.mean(r_hats))
    assert energy.ess_bulk == pytest.approx(sum(sizes))
    # The mean is 1/3 of the first and 2/3 of the second.
    assert energy.mcse == pytest.approx(np.hypot(errors[0] / 3, 2 * errors[1] / 3))
    # As one group they would be as far apart as their lengths.
    assert diagnose(manifest(400, 6), traces(raw)).verdict.state == "not converged"


def test_lengths_that_are_all_different_leave_single_chains():
    steps = np.array([5, 6, 7])
    raw = autoregressive(0.0, 400, 3) + 100 * steps
    found = diagnose(manifest(400, 3, inputs=Inputs(length=(5, 7))), traces(raw, steps=steps))
    assert found.verdict.state == "single chains"
    assert (found.groups, found.single_groups) == (3, 3)
    assert found.energies["E_raw"].r_hat < 1.02
    assert any("3 of 3 groups" in note for note in found.notes)


@pytest.mark.parametrize(
    "inputs",
    [
        Inputs(templates=("a", "b")),
        Inputs(sources=("a", "b"), chosen=((5, 5), (5, 5))),
    ],
    ids=["templates", "sources"],
)
def test_chains_of_different_lines_are_not_pooled(inputs):
    raw = autoregressive(0.0, 400, 4) + np.array([0, 0, 9, 9])
    found = diagnose(manifest(400, 4, inputs=inputs, chains_each=2), traces(raw))
    assert [one.template for one in found.energies["E_raw"].groups] == [0, 1]
    assert found.verdict.state == "converged"
    # Texts are only where chains set out; that they do not meet is what R-hat is for.
    texts = diagnose(manifest(400, 4, inputs=Inputs(texts=("a", "b")), chains_each=2), traces(raw))
    assert texts.groups == 1
    assert texts.verdict.state == "not converged"


def test_lengths_are_found_wherever_they_can_be():
    raw = autoregressive(0.0, 2, 4)
    free = {"inputs": Inputs(length=(3, 9))}

    def lengths(sampled=dict, steps=(4, 6, 6, 8), **changes):
        about = manifest(2, 4, **changes)
        groups = chain_groups(about, traces(raw, steps=np.array(steps)), sampled)
        return {group.length: group.chains.tolist() for group in groups}

    assert lengths() == {5: [0, 1, 2, 3]}
    assert lengths(**free) == {4: [0], 6: [1, 2], 8: [3]}
    kept = {0: 8, 1: 8, 2: 3, 3: 8}
    assert lengths(lambda: kept, **free, block=2) == {3: [2], 8: [0, 1, 3]}
    chosen = Inputs(sources=("a", "b"), chosen=((4, 5), (5, 5)))
    about = manifest(2, 4, inputs=chosen, chains_each=2)
    groups = chain_groups(about, traces(raw), dict)
    assert [(one.template, one.length, one.chains.tolist()) for one in groups] == [
        (0, 4, [0]), (0, 5, [1]), (1, 5, [2, 3]),
    ]  # fmt: skip
    unknown = manifest(2, 4, **free, block=2)
    groups = chain_groups(unknown, traces(raw, steps=2), dict)
    assert [one.chains.tolist() for one in groups] == [[3], [2], [1], [0]]
    assert {one.length for one in groups} == {None}
    said = diagnose(unknown, traces(raw, steps=2)).notes
    assert any("lengths of the chains are unknown until" in note for note in said)


@pytest.mark.parametrize("kernel", [Metropolis(Raw() + 0.5 * Norm()), Metropolis(Norm())])
def test_a_target_of_its_own_is_looked_at_too(kernel):
    found = maskov.sample(TABLE, kernel, Schedule(epochs=3), chains=4, length=2).diagnose()
    assert ("E_target" in found.energies) == (kernel.energy != Norm())


def test_a_small_table_converges_and_says_so():
    schedule = Schedule(epochs=120, burn_in=10)
    run = maskov.sample(TABLE, Metropolis(Raw()), schedule, chains=24, length=2)
    found = run.diagnose()
    assert found.verdict.state == "converged"
    assert found.energies["E_raw"].ess_bulk > 800
    assert found.tokens.time < 10
    (part,) = found.energies["E_raw"].groups
    chains = np.ascontiguousarray(run.traces["energy_raw"][10:].T)  # chains × draws
    assert part.r_hat == pytest.approx(float(array_stats.rhat(chains)), abs=1e-12)
    assert part.ess_bulk == pytest.approx(float(array_stats.ess(chains)))


@pytest.mark.parametrize(
    ("kernel", "trace"),
    [
        (Gibbs(), "kept"),
        (Metropolis(Raw()), "every"),
        (Metropolis(Raw(), Site(positions=Sweep(block=2))), "every"),
        (maskov.mask_predict(25), "every"),
        (maskov.mask_predict(25), "kept"),
    ],
)
def test_real_runs_of_every_kind_are_diagnosed(kernel, trace, tmp_path):
    maskov.sample(
        MODEL, kernel, Schedule(epochs=25, burn_in=3), chains=4, length=(3, 4), trace=trace,
        out=tmp_path / "run",
    )  # fmt: skip
    run = maskov.Run.open(tmp_path / "run")
    found = run.diagnose()
    assert found.epochs == 22
    lengths = {one.chain: len(one.ids) for one in run.samples}
    groups = {one.length: one.chains for one in found.energies["E_raw"].groups}
    assert groups == {n: list(lengths.values()).count(n) for n in set(lengths.values())}
    traced = trace == "every" or isinstance(kernel, Metropolis)
    assert (found.energies["E_raw"].draws == 22) == traced
    assert (found.verdict.state == "no target") == isinstance(kernel, Gibbs)
    assert len(found.tokens.autocorrelation) == 10
