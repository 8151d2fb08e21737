"""Real runs diagnosed: rates by position, experts, ArviZ's object, and `maskov diagnose`."""

import json

import numpy as np
import pytest
import torch

import maskov
from maskov import DelayedAcceptance, Gibbs, Metropolis, Raw, Schedule, Sweep, parse_energy
from maskov.models.scorer import Scorer
from maskov.moves import Site
from maskov.random import CounterRng
from maskov.starts import Layout, fill
from small import epoch, tiny_bert

MODEL = tiny_bert("red green blue white black")
TEXTS = ["red green blue", "white white", "blue red green red white"]
TEMPLATES = ["red [MASK] blue [MASK]", "[MASK] white [MASK] [MASK] green"]
METROPOLIS = Metropolis(Raw(), delayed=DelayedAcceptance(0))
IN_ORDER = Metropolis(Raw(), Site(positions=Sweep("left-to-right")), delayed=DelayedAcceptance(0))


# Rates by position, against counting every step of the same chains done again one by one.


def counted(kernel, layout, seed: int, epochs: int, first: int) -> np.ndarray:
    """Return visits, acceptances and changes by chain and position, from epoch `first` on."""
    engine, draws = Scorer(MODEL), CounterRng(seed)
    state = layout.chains(MODEL, range(len(layout.starts)), layout.width)
    if (state.tokens == MODEL.mask_id)[state.inside].any():
        state = fill(state, "masked", kernel.conditional, engine, draws)
    state = kernel.init(state, engine)
    counts = torch.zeros((3, *state.tokens.shape), dtype=torch.long)
    for number in range(epochs):
        for before, after, info in epoch(kernel, state, engine, draws):
            rows, masked = info.proposal.rows, info.proposal.masked
            if number >= first:
                counts[0][rows] += masked
                counts[1][rows] += masked & info.accepted[:, None]
                counts[2] += before.tokens != after.tokens
            state = after
    return counts.numpy()


@pytest.mark.parametrize(
    ("kernel", "burn_in", "given", "positions"),
    [
        *((kernel, burn_in, {"texts": TEXTS}, [[0, 1, 2, 3, 4]])
          for kernel, burn_in in ((METROPOLIS, 0), (IN_ORDER, 3), (Gibbs(), 3))),
        (METROPOLIS, 2, {"templates": TEMPLATES}, [[1, 3], [0, 2, 3]]),
    ],
)  # fmt: skip
def test_every_visit_is_counted(kernel, burn_in, given, positions):
    schedule = Schedule(epochs=20, burn_in=burn_in)
    run = maskov.sample(MODEL, kernel, schedule, chains=4, seed=3, **given)
    ((kind, lines),) = given.items()
    layout = getattr(Layout, f"of_{kind}")(MODEL, lines, 4)
    counts = counted(kernel, layout, 3, 20, max(burn_in, 1))
    found, summary = run.diagnose().tokens.positions, run.summary()
    assert [one.positions for one in found] == positions
    for one in found:
        chains = slice(4 * one.template, 4 * one.template + 4) if kind == "templates" else slice(99)
        visits, accepted, novel = counts[:, chains, one.positions].sum(1)
        assert one.visits == visits.tolist()
        assert one.acceptance == pytest.approx(accepted / visits)
        assert one.novel == pytest.approx(novel / visits)
    if burn_in:  # the tokens before the first epoch are unknown
        visits, accepted, novel = counts.sum((1, 2))
        assert summary.acceptance_rate == pytest.approx(accepted / visits)
        assert summary.novel_rate == pytest.approx(novel / visits)


def test_runs_too_large_to_trace_positions_say_so(monkeypatch):
    monkeypatch.setattr("maskov.runs.store._MOST_PLACES", 1)
    found = maskov.sample(MODEL, METROPOLIS, Schedule(epochs=3), chains=2, length=4).diagnose()
    assert found.tokens is None
    assert any("tokens were not traced" in note for note in found.notes)


NAMES = ["edit", "contains('red', 'black')"]


@pytest.fixture(scope="module")
def experts(tmp_path_factory):
    energy = parse_energy("norm+2.5*edit+contains('red', 'black')")
    return maskov.sample(
        MODEL, Metropolis(energy, Site(), delayed=DelayedAcceptance(0)), Schedule(epochs=60),
        chains=4, texts=TEXTS[:2], out=tmp_path_factory.mktemp("runs") / "run",
    )  # fmt: skip


def test_experts_have_weights_means_calls_and_convergence(experts, call):
    diagnosis, traces = experts.diagnose(), experts.traces
    assert [(one.name, one.weight) for one in diagnosis.experts] == [(NAMES[0], 2.5), (NAMES[1], 1)]
    kept = slice(60 - diagnosis.epochs, 60)
    for column, expert in enumerate(diagnosis.experts):
        values, calls = traces["expert_energy"][:, :, column], traces["expert_calls"][:, :, column]
        means = [one.mean for one in expert.energy.groups]
        assert means == pytest.approx([values[kept, :4].mean(), values[kept, 4:].mean()])
        assert expert.calls_per_step == pytest.approx(calls.sum() / traces["steps"].sum())
        assert 0 < expert.calls_per_step < 1
        assert expert.energy.ess_bulk > 1
    assert list(diagnosis.energies) == ["E_raw", "E_norm", "E_target"]
    code, out, _ = call("diagnose", experts.store.path)
    assert code == 0
    rows, first = [line.split() for line in out.splitlines()], diagnosis.experts[0]
    assert ["edit", "2.5", "–", f"{first.calls_per_step:.2f}"] in rows
    assert ["edit", f"{first.energy.r_hat:.3f}"] in [row[:2] for row in rows]


def test_every_value_comes_back_and_burn_in_is_kept_apart():
    run = maskov.sample(
        MODEL, METROPOLIS, Schedule(epochs=14, burn_in=6), chains=5, length=(3, 7), seed=1
    )
    tree, traces = run.to_arviz(warmup=True), run.traces
    posterior, stats = tree["posterior"], tree["sample_stats"]
    assert dict(posterior.sizes) == {"chain": 5, "draw": 8, "position": 7}
    for prefix, kept in (("", slice(6, None)), ("warmup_", slice(6))):
        values = {**tree[f"{prefix}posterior"].data_vars, **tree[f"{prefix}sample_stats"].data_vars}
        expected = {name: traces[name][kept] for name in ("energy_raw", "energy_norm", "passes")}
        expected["energy"] = traces["energy_target"][kept]
        for name, part in (("acceptance_rate", "accepted"), ("novel_rate", "novel")):
            expected[name] = traces[part][kept] / traces["steps"][kept]
        for name, trace in expected.items():
            assert values[name].dims == ("chain", "draw")
            assert (trace == values[name].values.T).all()
    assert set(run.to_arviz().children) == {"posterior", "sample_stats", "constant_data"}
    assert tree.attrs["signature"] == stats.attrs["signature"] == run.signature
    assert tree.attrs["leaves_invariant"] == 1
    last = {one.chain: one.ids for one in run.samples}
    assert len({len(ids) for ids in last.values()}) > 1
    for chain, ids in last.items():
        tokens = posterior["tokens"].sel(chain=chain).values[-1].tolist()
        assert tokens == ids + [-1] * (7 - len(ids))
        assert tree["constant_data"]["length"].sel(chain=chain) == len(ids)


@pytest.fixture
def diagnosed(call, tmp_path):
    """Sample by the command; return the folder, what `diagnose` prints, and its JSON."""

    def run(*words):
        folder = tmp_path / "run"
        given = ["--model", "untrained", "--chains", 3, "--length", 3, "-q", "--out", folder]
        assert call("sample", *given, *words)[0] == 0
        answers = [call("diagnose", folder, *more) for more in ([], ["--json"])]
        assert [(code, err) for code, _, err in answers] == [(0, "")] * 2
        return folder, answers[0][1], json.loads(answers[1][1], parse_constant=pytest.fail)

    return run


def test_the_verdict_comes_first_then_tables_and_the_summary(diagnosed):
    _, out, found = diagnosed("--epochs", 24, "--burn-in", 3, "--energy", "raw")
    verdict, energy = (found["diagnosis"][name] for name in ("verdict", "energies"))
    rows = [line.split() for line in out.splitlines()]
    assert out.startswith(f"{verdict['state']}: {verdict['reason']}\n")
    table = next(row for row in rows if row[:1] == ["E_raw"])
    assert table[1] == f"{energy['E_raw']['r_hat']:.3f}"
    assert table[3] == f"{energy['E_raw']['ess_bulk']:.0f}"
    for name in found.keys() - {"diagnosis"}:
        assert name.replace("_", " ") in out


def test_tokens_are_spelled_also_those_that_no_sample_has(diagnosed):
    folder, _, _ = diagnosed("--epochs", 60, "--energy", "raw")
    run = maskov.Run.open(folder)
    numbers = {int(token) for token in run.traces["tokens"].ravel()}
    assert numbers > {token for one in run.samples for token in one.ids}
    texts = run.store.spellings()
    assert texts.keys() == numbers
    assert all([texts[number] for number in one.ids] == one.tokens for one in run.samples)
    names = [one.name for one in run.diagnose().tokens.statistics]
    assert len(names) > 5
    assert all("'" in name or name == "the choice of tokens" for name in names)
    (folder / "tokens.json").write_text('{"1": ')
    (folder / "samples.jsonl").write_text("{")  # neither stands in the way of traces
    damaged = maskov.Run.open(folder).diagnose()
    assert (damaged.verdict, damaged.groups) == (run.diagnose().verdict, 1)


@pytest.mark.parametrize(
    "words",
    [
        ["--epochs", 1],
        ["--epochs", 21, "--target-temperature", "1:0.01:0.1"],
        ["--epochs", 21, "--target-temperature", "1e-9", "--length", "3:4"],
    ],
)
def test_whatever_was_run_gives_strict_json_and_no_warning(diagnosed, words):
    assert diagnosed(*words)[2]["diagnosis"]["verdict"]["reason"]
