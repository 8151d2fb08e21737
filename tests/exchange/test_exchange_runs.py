"""Runs of replicas: one chain to the outside. resume/test_same_bytes.py stops and sends them."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import maskov
from engines import sample
from maskov import Exchange, Gibbs, InputError, Metropolis, Raw, RunError, Schedule
from maskov.errors import Interrupted
from maskov.replay import Replayer
from maskov.runs import Run
from maskov.runs.state import GroupShape, GroupState
from maskov.ui.report.data import build
from maskov.ui.report.formats import to_html, to_markdown
from odd_workers import files
from small import random_state, tiny_bert

MODEL = tiny_bert("red green blue white", dtype=maskov.models.scorer.torch.float32)
LADDER = (1.0, 0.8, 0.6)
SETTINGS = {
    "schedule": Schedule(epochs=8, burn_in=1),
    "chains": 5,
    "length": (4, 6),
    "thin": 2,
    "seed": 4,
    "replicas": LADDER,
}
KERNEL = Metropolis(Raw())


class Breaker:
    """Asks to stop when the engine looks for the n-th time."""

    def __init__(self, at: int) -> None:
        self.left = at

    def __call__(self) -> bool:
        self.left -= 1
        return self.left < 0


@pytest.fixture(scope="module")
def run() -> Run:
    return maskov.sample(MODEL, KERNEL, **SETTINGS | {"length": 6, "chains": 4})


def test_only_the_coldest_replica_is_sampled(run):
    assert [sample.chain for sample in run.samples[:4]] == [0, 1, 2, 3]
    assert len(run.samples) == 3 * 4
    traces = run.traces
    assert traces["energy_raw"].shape == (8, 4)
    assert traces["rung_energy"].shape == traces["rung_replica"].shape == (8, 4, 3)
    assert np.array_equal(traces["rung_energy"][:, :, 0], traces["energy_target"])
    np.testing.assert_allclose(traces["energy_raw"], traces["energy_target"], rtol=1e-5)
    for one in run.samples:
        assert one.energy_raw == traces["energy_raw"][one.epoch, one.chain]
        assert one.ids == traces["tokens"][one.epoch, one.chain].tolist()
    # Colder rows have lower energies.
    means = traces["rung_energy"].mean((0, 1))
    assert means[0] < means[2]


def test_swaps_and_replicas_are_traced(run):
    traces = run.traces
    tested, accepted, replica = (
        traces[name] for name in ("swap_tested", "swap_accepted", "rung_replica")
    )
    assert tested[::2].tolist() == [[[True, False]] * 4] * 4
    assert tested[1::2].tolist() == [[[False, True]] * 4] * 4
    assert accepted.any()
    assert not (accepted & ~tested).any()
    before = np.broadcast_to(np.arange(3), (1, 4, 3))
    moved = np.concatenate([before, replica])
    assert np.array_equal((moved[1:] != moved[:-1])[:, :, 0], accepted[:, :, 0])
    assert np.array_equal((moved[1:] != moved[:-1])[:, :, 2], accepted[:, :, 1])


def test_passes_are_those_of_all_replicas(run):
    alone = sample(
        MODEL, KERNEL, lock_step=True,
        **{name: value for name, value in SETTINGS.items() if name != "replicas"}
        | {"length": 6, "chains": 4},
    )  # fmt: skip
    assert np.array_equal(run.traces["steps"], alone.traces["steps"])
    assert run.traces["passes"].sum() > 2 * alone.traces["passes"].sum()
    # A chain has the random numbers, and so the start, of one without replicas.
    quiet = ~run.traces["swap_accepted"][0, :, 0]
    assert np.array_equal(run.traces["tokens"][0][quiet], alone.traces["tokens"][0][quiet])


def test_a_run_stopped_before_it_has_a_ladder_finds_the_same(tmp_path, monkeypatch):
    monkeypatch.setattr("maskov.tuning.tune._WARM_UP", 0)
    monkeypatch.setattr("maskov.tuning.tune._ROUNDS", 1)
    settings = SETTINGS | {"replicas": 2, "chains": 2, "length": 4}
    whole = maskov.sample(MODEL, KERNEL, out=tmp_path / "whole", **settings)
    with pytest.raises(Interrupted):
        maskov.sample(MODEL, KERNEL, out=tmp_path / "cut", stop=Breaker(5), **settings)
    assert Run.open(tmp_path / "cut").manifest.ladder is None
    # Once more after the ladder is found, so that checkpoints are of the manifest with it.
    with pytest.raises(Interrupted):
        maskov.resume(tmp_path / "cut", MODEL, stop=_Later(tmp_path / "cut"))
    maskov.resume(tmp_path / "cut", MODEL)
    assert Run.open(tmp_path / "cut").manifest.ladder == whole.manifest.ladder
    assert files(tmp_path / "cut") == files(tmp_path / "whole")


class _Later:
    """Asks to stop when a run has had its ladder for a while."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.left = folder, 30

    def __call__(self) -> bool:
        manifest = json.loads((self.folder / "manifest.json").read_text())
        self.left -= manifest["ladder"] is not None
        return self.left < 0


def test_a_ladder_changed_later_is_noticed(tmp_path):
    with pytest.raises(Interrupted):
        maskov.sample(MODEL, KERNEL, out=tmp_path, stop=Breaker(40), **SETTINGS)
    path = tmp_path / "manifest.json"
    manifest = json.loads(path.read_text())
    for ladder, message in (([1.0, 0.7, 0.6], "'ladder' is not"), ([1.0, 0.7], "damaged")):
        path.write_text(json.dumps(manifest | {"ladder": ladder}))
        with pytest.raises(RunError, match=message):
            maskov.resume(tmp_path, MODEL)


def test_a_checkpoint_has_every_replica_of_a_chain_once():
    chains = Exchange(KERNEL, LADDER).replicated(random_state(MODEL, 2, 4))
    state = GroupState.fresh(chains, budget=10)
    shape = GroupShape(state, 5, 1, lambda: MODEL.forbidden, replicas=3)
    for replica, fits in (([2, 0, 1, 0, 2, 1], True), ([0, 0, 1, 0, 1, 2], False)):
        moved = replace(chains, replica=chains.replica.new_tensor(replica))
        assert shape.fits(state.with_chains(moved)) is fits


def test_every_epoch_is_replayed(run):
    replayer, swapped = Replayer(run, MODEL), 0
    for chain in range(4):
        for epoch in range(replayer.epochs):
            replay = replayer.epoch(chain, epoch)
            assert replay.agrees
            assert len(replay.steps) == 6
            swapped += replay.swapped
    assert swapped == run.traces["swap_accepted"][:, :, 0].sum() > 0


def test_diagnostics_and_reports_have_the_rates(run):
    figures = run.diagnose().exchange
    traces = {name: values[1:] for name, values in run.traces.items()}
    expected = traces["swap_accepted"].sum((0, 1)) / traces["swap_tested"].sum((0, 1))
    assert figures.swap_rates == pytest.approx(expected.tolist())
    assert figures.ladder == list(LADDER)
    page, text = (make(build([run])) for make in (to_html, to_markdown))
    for shown in (page, text):
        assert "round trips per 1,000 epochs" in shown
        assert f"{figures.swap_rates[0]:.3f}" in shown
        assert "3 of each chain, at β = 1, 0.8, 0.6" in shown
    assert "ladder:1,0.8,0.6" in run.signature
    assert run.manifest.leaves_invariant
    assert run.manifest.kernel == "mh"


def test_forced_epochs_swap_nothing():
    run = maskov.sample(
        MODEL, KERNEL, Schedule(epochs=4, burn_in=2, force_accept=2), replicas=(1.0, 0.9),
        chains=2, length=5,
    )  # fmt: skip
    assert run.traces["swap_tested"].sum(1).flatten().tolist() == [0, 0, 2, 0]


@pytest.mark.parametrize(
    "settings",
    [
        {"kernel": Gibbs(), "replicas": 2},
        {"kernel": maskov.mask_predict(4), "replicas": 2},
        {"kernel": Exchange(Metropolis(Raw()), LADDER), "replicas": 2},
        {"kernel": Metropolis(Raw()), "replicas": 0},
        {"kernel": Metropolis(Raw()), "replicas": 40},
        {"kernel": Metropolis(Raw()), "replicas": (1.0, 1.2)},
        {"kernel": Metropolis(Raw()), "replicas": LADDER, "chains": 10**8},
    ],
    ids=str,
)
def test_what_replicas_cannot_do_is_refused(settings):
    with pytest.raises(InputError):
        maskov.sample(MODEL, **{"schedule": Schedule(2), "length": 5} | settings)


def test_a_kernel_with_a_ladder_is_the_same_as_the_option(run):
    kernel = Exchange(KERNEL, LADDER)
    again = maskov.sample(MODEL, kernel, **SETTINGS | {"length": 6, "chains": 4, "replicas": ()})
    assert again.samples == run.samples
    assert replace(again.manifest, created="") == replace(run.manifest, created="")
