"""One table of runs: stopped, given to workers, replayed and read again, each is the same run."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import maskov
import tiny_models
from maskov import (
    AllowedTokens,
    AvoidWords,
    ContainsWords,
    DelayedAcceptance,
    Draws,
    Gibbs,
    LinearSchedule,
    MaskedConditional,
    MaxChanges,
    MaxEdits,
    Metropolis,
    Mixture,
    Norm,
    Ordered,
    Population,
    Raw,
    Redraw,
    Run,
    Schedule,
    Site,
    Span,
    Sweep,
    TranslationMethod,
    Workers,
    mask_predict,
    parse_energy,
    translate,
)
from maskov.config import ModelSource
from maskov.errors import Interrupted, RunError
from maskov.kernels.registry import kernel_from_data, to_data
from maskov.models.scorer import Scorer
from maskov.moves import Resize
from maskov.replay import Replayer
from maskov.translation import translations_of
from odd_workers import files, oddly
from small import few_discarded_chains, mixed, tiny_bert
from stopped_runs import Stopper
from tiny_translation import SOURCES, shelf

WORDS = "red green blue black white ##s"
MODEL = tiny_bert(WORDS, torch.float32, initializer_range=0.2)
COMMON = {"schedule": Schedule(3), "chains": 3, "resident": 2, "thin": 1, "seed": 4}
TEXTS = ["red green blue black", "white white red blue"]
ROOT = "ROOT"  # the folder of networks in the name of an energy


@dataclass(frozen=True)
class Case:
    """A run: its kernel, or the energy of one, its settings and what must be true of it."""

    kernel: Any
    settings: dict[str, Any] = field(default_factory=dict)
    holds: Callable[[Run], bool] = lambda run: bool(run.samples)
    slots: int = 0


def words_of(sample: maskov.Sample) -> list[str]:
    return sample.text.split()


def under(*constraints, moves=()):
    """Return a kernel whose moves keep constraints."""
    moves = moves or (Site(), Span(sizes=(2, 3)))
    proposal = MaskedConditional(0.9, constraints=constraints)
    return mixed(Norm(), tuple(replace(move, conditional=proposal) for move in moves))


def rewriting(energy):
    return mixed(energy, (Span(sizes=(1, 2)), Resize()), 1)


def all_samples(met: Callable[[list[str]], bool]) -> Callable[[Run], bool]:
    return lambda run: all(met(words_of(sample)) for sample in run.samples)


def stays(run: Run) -> bool:
    """Frozen tokens stay, are never rejected, and others move."""
    tokens, rejected = run.traces["tokens"], run.traces["rejected"]
    for chain in range(6):
        held = list(run.manifest.inputs.frozen[chain // 3])
        given = np.array(MODEL.encode(TEXTS[chain // 3]))[held]
        assert (tokens[:, chain, held] == given).all()
        assert not rejected[:, chain, held].any()
    return "|frozen:#" in run.signature and (tokens != tokens[:1]).any()


def within(*bounds):
    """Regions keep to their bounds, and lengths change."""

    def holds(run: Run) -> bool:
        sizes, lengths, limits = run.traces["sizes"], run.traces["lengths"], np.array(bounds)
        assert ((sizes >= limits[:, 0]) & (sizes <= limits[:, 1])).all()
        return bool((lengths != lengths[:1]).any())

    return holds


def changes_at_most_two(run: Run) -> bool:
    pairs = [(one.ids, MODEL.encode(TEXTS[one.chain // 3])) for one in run.samples]
    return {sum(a != b for a, b in zip(*pair, strict=True)) for pair in pairs} <= {0, 1, 2}


def experts_add_up(run: Run) -> bool:
    """The target is the sum of its parts, in the traces and in every sample."""
    traces, names = run.traces, run.manifest.experts
    values, weights = traces["expert_energy"], np.array(run.manifest.expert_weights)
    whole = traces["energy_norm"] + values @ weights
    for one in run.samples:
        experts = dict(zip(names, values[one.epoch, one.chain].tolist(), strict=True))
        assert one.energies == {
            "target": float(traces["energy_target"][one.epoch, one.chain]),
            **experts,
        }
    # Cheap experts see every novel proposal, the classifier only those that pass them.
    calls, novel = traces["expert_calls"], traces["proposed_novel"]
    assert calls[..., 0].sum() < novel.sum() == np.maximum(calls[..., 1], calls[..., 2]).sum()
    return np.allclose(whole, traces["energy_target"])


def numbered_by_population(run: Run) -> bool:
    """Samples say their population, and which of its first particles they descend from."""
    for one in run.samples:
        assert one.population == one.chain // 3
        assert one.ancestor == run.traces["ancestor"][one.epoch, one.chain] < 3
    return np.isfinite(run.traces["log_weight"]).all()


MOVING = Schedule(6, 1, LinearSchedule(1.0, 0.2, 0.3), LinearSchedule(3, 1.0, 1.0), force_accept=1)
RESIZING = mixed(Norm(), (Site(), Span(), Resize()))
EXPERTS = f"norm+3*classifier({ROOT}/classifier, label=positive)+2*edit+4*contains('reds', 'blue')"
FIXED = {"length_prior": "none"}
CASES = {
    "sites": Case(Metropolis(Norm())),
    "three at once": Case(Metropolis(Raw(), delayed=DelayedAcceptance(2)), slots=3),
    "truncated": Case(Metropolis(Norm(), Site(MaskedConditional(top_p=0.6)))),
    "blocks": Case(Metropolis(Norm(), Site(positions=Sweep("random", 2)))),
    "spans and sites": Case(
        Mixture((Metropolis(Raw()), Metropolis(Raw(), Span(), delayed=DelayedAcceptance(2))))
    ),
    "gibbs": Case(Gibbs()),
    "mask-predict": Case(mask_predict(6)),
    "a schedule that moves": Case(Metropolis(Raw()), {"schedule": MOVING}),
    "groups, spans and sites": Case(
        Mixture((Metropolis(Raw(groups=2)), Metropolis(Raw(groups=2), Span())))
    ),
    "burn-in of groups": Case(
        Metropolis(Raw()), {"schedule": Schedule(5, 1, burn_in_energy="raw(groups=2)")}
    ),
    "frozen sites": Case(Metropolis(Norm()), {"texts": TEXTS, "freeze": "red, blue"}, stays),
    "frozen spans": Case(
        Metropolis(Norm(), Span()), {"texts": TEXTS, "freeze": "red, blue"}, stays
    ),
    "a range of lengths": Case(RESIZING, {"length": (3, 8), **FIXED}, within((3, 8))),
    # With "flat" weights a run finds them first, by chains that a stop may fall into, too.
    "blanks": Case(
        RESIZING,
        {"templates": ["red [MASK*] blue [MASK{2,3}]"], "length_prior": "flat"},
        within((1, 8), (2, 3)),
    ),
    "contains": Case(
        under(ContainsWords(("red", "blues", "red"))),
        {"length": (5, 7)},
        all_samples(lambda words: words.count("red") >= 2 and "blues" in words),
    ),
    "avoids": Case(
        under(AvoidWords(("red", "green blue")), ContainsWords(("green",))),
        {"length": 5, "start": "greedy"},
        all_samples(lambda words: "red" not in words and "green blue" not in " ".join(words)),
    ),
    "allowed": Case(
        under(
            AllowedTokens(((1, 2, "red green"), (4, 4, "blue"))), moves=(Span(sizes=(1, 2)),)
        ),
        {"length": 4},
        all_samples(lambda words: {*words[:2]} <= {"red", "green"} and "blue" in words[3]),
    ),
    "changes": Case(under(MaxChanges(2)), {"texts": TEXTS}, changes_at_most_two),
    "edits": Case(
        under(MaxEdits(2), ContainsWords(("red",)), moves=(Span(), Resize())),
        {"texts": TEXTS, **FIXED},
        all_samples(lambda words: "red" in words),
    ),
    "blanks that contain": Case(
        under(ContainsWords(("red", "green")), moves=(Span(), Resize())),
        {"templates": ["blue [MASK*] black"], "length_prior": "flat"},
        all_samples(lambda words: "blue" in words[0] and {"red", "green"} <= {*words}),
    ),
    # Each text is a target of its own where chains are compared with it.
    "experts": Case(EXPERTS, {"texts": TEXTS}, lambda run: run.diagnose().groups == 2),
    "experts, rewriting": Case((rewriting, EXPERTS), {"texts": TEXTS, **FIXED}, experts_add_up),
    "other words": Case(
        (rewriting, f"raw+2*classifier({ROOT}/other, label=0)+similar({ROOT}/encoder)+repeats"),
        {"texts": TEXTS, **FIXED},
    ),
    "product": Case(
        (rewriting, f"norm+0.5*norm({ROOT}/masked)+edit(unit=words)"), {"texts": TEXTS, **FIXED}
    ),
    "draws": Case(Draws(Ordered())),
    "redraws": Case(
        Metropolis(Ordered(seed=1) + 0.3 * Norm(groups=4), Redraw(Ordered(seed=1)))
    ),
    "chains of an ordered energy": Case(
        Metropolis(Ordered(rule="confident") + Norm(), Span(sizes=(1, 2)))
    ),
    "populations": Case(
        Population(
            Metropolis(Norm() + 0.5 * Ordered(), Site(), 0.8), Ordered(temperature=0.7), 3,
            (0.2, 0.6, 1.0), 3,
        ),
        {"chains": 6, "length": (2, 4), "resident": None},
        numbered_by_population,
    ),
    "populations of a template": Case(
        Population(Metropolis(Raw(), Span(sizes=(1, 2))), Ordered(groups=2), 2, (0.5, 0.8, 1.0)),
        {"chains": 4, "templates": ["red [MASK] blue [MASK]"], "resident": None},
        all_samples(lambda words: words[0] == "red" and words[2].startswith("blue")),
    ),
    "no passes": Case(f"classifier({ROOT}/classifier, label=1)+hamming", {"texts": TEXTS}),
}  # fmt: skip
# Each has a like one beside it.
SLOW = {
    "other words", "product", "avoids", "blanks that contain", "truncated", "frozen sites",
    "allowed", "populations of a template",
}  # fmt: skip
NAMES = [pytest.param(name, marks=[pytest.mark.slow] * (name in SLOW)) for name in CASES]


@pytest.fixture(scope="module", autouse=True)
def _few_discarded_chains():
    """Weights of lengths need not be good here."""
    with pytest.MonkeyPatch.context() as patch:
        few_discarded_chains(patch)
        yield


@pytest.fixture(scope="module")
def networks(tmp_path_factory) -> Path:
    root = tmp_path_factory.mktemp("networks")
    tiny_models.build_classifier(root / "classifier", WORDS)
    tiny_models.build_classifier(root / "other", "red green blue black white reds blues")
    tiny_models.build_encoder(root / "encoder", WORDS)
    tiny_models.build_masked(root / "masked", WORDS)
    return root


def kernel_of(case: Case, networks: Path):
    make, energy = case.kernel if isinstance(case.kernel, tuple) else (Metropolis, case.kernel)
    if not isinstance(energy, str):
        return energy
    return make(parse_energy(energy.replace(ROOT, str(networks))))


@pytest.fixture(scope="module", params=NAMES)
def whole(request, networks, tmp_path_factory):
    """A run from its beginning to its end; how to run it again, and how often it asked to stop."""
    case, stop = CASES[request.param], Stopper()
    inputs = {} if {"texts", "templates"} & case.settings.keys() else {"length": (3, 6)}
    settings = COMMON | inputs | case.settings

    def run(folder: Path, **more) -> Run:
        return maskov.sample(MODEL, kernel_of(case, networks), out=folder, **settings | more)

    with pytest.MonkeyPatch.context() as patch:
        if case.slots:
            patch.setattr(Scorer, "slots_for", lambda *_: case.slots)
        yield case, run, run(tmp_path_factory.mktemp("whole") / "run", stop=stop), stop.asked


def test_what_a_run_holds_after_a_reload(whole):
    case, _, run, _ = whole
    assert case.holds(run)
    opened = Run.open(run.store.path)
    assert opened.finished
    assert opened.manifest == run.manifest
    assert opened.samples == run.samples
    kernel = kernel_from_data(run.manifest.config.kernel)
    assert to_data(kernel) == run.manifest.config.kernel
    for constraint in kernel.conditional.constraints:
        assert str(constraint) in run.signature


def stop_and_resume(run, folder: Path, at: int) -> Run:
    """Stop a run when it asks for the `at`-th time, and soon after it was resumed."""
    with pytest.raises(Interrupted):
        run(folder, stop=Stopper(at), checkpoint_every=0)
    try:
        return maskov.resume(folder, MODEL, stop=Stopper(2))
    except Interrupted:
        return maskov.resume(folder, MODEL)


@pytest.mark.parametrize(
    "share", [0.6, *(pytest.param(one, marks=pytest.mark.slow) for one in (0.02, 0.2, 0.4, 0.97))]
)
def test_stopped_and_resumed_is_the_same_to_the_byte(share, whole, tmp_path):
    _, run, once, looks = whole
    resumed = stop_and_resume(run, tmp_path / "run", int(share * looks))
    assert not resumed.recovered
    assert files(tmp_path / "run") == files(once.store.path)
    assert resumed.manifest.tuning == once.manifest.tuning


def test_workers_that_lose_tasks_come_to_the_same_bytes(whole, tmp_path, monkeypatch):
    _, run, once, _ = whole
    made = oddly(monkeypatch, count=2, seed=1)
    run(tmp_path / "run", workers=Workers(2))
    assert made[0].losses > 0
    assert files(tmp_path / "run") == files(once.store.path)


def test_every_epoch_is_replayed(whole):
    _, _, run, _ = whole
    if run.manifest.particles:
        with pytest.raises(RunError, match="population"):
            Replayer(run, MODEL)
        return
    replayer, schedule = Replayer(run, MODEL), run.manifest.schedule
    for chain in (0, run.manifest.chains - 1):
        for epoch in range(replayer.epochs):
            replay = replayer.epoch(chain, epoch)
            assert replay.agrees
            assert len(replay.after) == run.traces["lengths"][epoch, chain]
            if schedule.burn_in_energy and epoch < schedule.burn_in:
                assert replay.energy == schedule.burn_in_energy


@pytest.mark.parametrize("kind", ["stop", "whole"])
def test_groups_in_threads_that_share_a_device(kind, tmp_path, monkeypatch):
    def run(folder: Path, **more) -> Run:
        settings = COMMON | {"chains": 9, "length": (3, 8)} | more
        return maskov.sample(MODEL, CASES["frozen spans"].kernel, out=folder, **settings)

    run(tmp_path / "alone")
    monkeypatch.setattr("maskov.workers.pools._shares_gpu", lambda *_: True)
    if kind == "stop":
        stop_and_resume(run, tmp_path / "run", 120)
    else:
        run(tmp_path / "run")
    assert files(tmp_path / "run") == files(tmp_path / "alone")


@pytest.mark.slow
def test_processes_load_the_experts_themselves(networks, tmp_path):
    case = CASES["experts, rewriting"]
    for name, workers in (("here", Workers(0)), ("there", Workers(2))):
        settings = COMMON | case.settings | {"workers": workers}
        maskov.sample(MODEL, kernel_of(case, networks), out=tmp_path / name, **settings)
    assert files(tmp_path / "there") == files(tmp_path / "here")


TWIN = f"norm+0.7*autoregressive({ROOT}/tiny-twin)+0.5*predicted_length"
SAMPLED = {"lengths": "sampled", "epochs": 3, "chains": 2, "pick": "lowest"}
METHODS = {
    "mh": ("mh", {"epochs": 3, "chains": 2, "lengths": "drawn"}),
    "every epoch kept": ("mh", {"energy": "norm", "epochs": 3, "pick": "lowest"}),
    "block-mh": ("block-mh", {"epochs": 3, "moves": "site(block=2, block_anneal=0.5)"}),
    "gibbs": ("gibbs", {"epochs": 3}),
    "lengths sampled": ("mh", SAMPLED),
    "several lengths": ("mh", {
        "energy": "norm+2*predicted_length", "moves": "site,resize", "lengths": "top", "chains": 3,
        "epochs": 3, "force_accept": 1, "start": "mask-predict", "pick": "mbr",
    }),
    "mask-predict": ("mask-predict", {"iterations": 5, "length_beam": 2}),
    "twin": ("mh", {"energy": TWIN, **SAMPLED}),
    "drafts": ("mh", SAMPLED | {"energy": TWIN, "start": "drafts", "chains": 1}),
}  # fmt: skip


@pytest.fixture(scope="module")
def models(tmp_path_factory) -> Path:
    return shelf(tmp_path_factory.mktemp("models") / "shelf")


# Each of the slow ones has a like one beside it.
SLOWER = {"twin", "several lengths", "block-mh"}


@pytest.mark.parametrize("name", [
    pytest.param(name, marks=[pytest.mark.slow] * (name in SLOWER)) for name in METHODS
])  # fmt: skip
def test_translations_are_the_same_to_the_byte(name, models, tmp_path, monkeypatch):
    (kind, options), folder = METHODS[name], models / "tiny-translation"
    energy = {"energy": options["energy"].replace(ROOT, str(models))} if "energy" in options else {}
    method, model = TranslationMethod(kind, **options | energy), maskov.load(folder, "cpu")
    settings: dict[str, Any] = {"seed": 4, "resident": 3, "source": ModelSource(str(folder))}
    sources = SOURCES
    if name == "drafts":
        sources, settings["drafts"] = SOURCES[:2], ["blue", "red red"]

    def run(where: str, **more):
        return translate(model, sources, method, out=tmp_path / where, **settings | more)

    stop = Stopper()
    whole = run("whole", stop=stop)
    expected = files(tmp_path / "whole")
    with pytest.raises(Interrupted):
        run("stopped", stop=Stopper(stop.asked * 4 // 5))
    # The model is found and given its sources again by the folder alone.
    resumed = maskov.resume(tmp_path / "stopped")
    assert translations_of(resumed, method) == whole
    assert files(tmp_path / "stopped") == expected
    oddly(monkeypatch, count=2, seed=8)
    assert run("there", workers=Workers(2)) == whole
    assert files(tmp_path / "there") == expected
    for one in resumed.samples if name in ("twin", "drafts") else ():
        energies = one.energies
        twin, lengths = energies[f"autoregressive({models / 'tiny-twin'})"], "predicted_length"
        parts = one.energy_norm + 0.7 * twin + 0.5 * energies[lengths]
        assert energies["target"] == pytest.approx(parts, abs=1e-4)
