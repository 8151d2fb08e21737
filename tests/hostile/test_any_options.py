"""Whatever options are given: it works, or is refused with code 2 and without a traceback."""

from __future__ import annotations

import json
import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import maskov
from maskov import (
    DelayedAcceptance,
    LinearSchedule,
    MaskedConditional,
    MaskovError,
    Metropolis,
    Raw,
    Schedule,
    Sweep,
)
from maskov.cli import main
from maskov.moves import Site
from maskov.translation.methods import METHODS, TranslationMethod
from maskov.workers import Workers
from mutations import examples, or_refused
from small import tiny_bert

NUMBERS = st.sampled_from(
    ["-1", "0", "1", "2", "3", "0.5", "-0.5", "nan", "inf", "-inf", "1e308", "1e-320", "", " ",
     "99999999999999999999", "-99999999999999999999", "0x10", "1_0", "٣", "one", "2:3", "3:2"]
)  # fmt: skip
WORDS = st.sampled_from(["raw", "norm", "raw+norm", "raw-norm", "0*raw", "mh", "gibbs", "auto",
                         "off", "random", "masked", "greedy", "bfloat16", "cpu", "cuda:99", "tpu",
                         "", "../..", "\x00", "naïve", "local", "every", "converged"])  # fmt: skip
OPTIONS = {
    "--epochs", "--burn-in", "--chains", "--length", "--seed", "--thin", "--temperature", "--top-p",
    "--top-k", "--epsilon", "--block", "--delayed", "--target-temperature", "--anneal",
    "--target-floor", "--block-anneal", "--force-accept", "--token-budget",
    "--resident", "--threads", "--checkpoint-every", "--energy", "--kernel",
    "--order", "--moves", "--start", "--precision", "--device", "--address", "--engine",
    "--gpus-per-worker", "--until", "--effective", "--replicas", "--ladder",
}  # fmt: skip


@st.composite
def command(draw) -> list[str]:
    chosen = draw(st.lists(st.sampled_from(sorted(OPTIONS)), min_size=1, max_size=2, unique=True))
    words = []
    for option in chosen:
        words += [option, draw(st.one_of(NUMBERS, NUMBERS, WORDS))]
    return words


@examples(40)
@given(words=command())
def test_any_options_of_sample(words, capfd):
    small = ["--epochs", "2", "--chains", "2", "--length", "3"]
    kept = [
        word
        for name, value in zip(small[::2], small[1::2], strict=True)
        for word in (() if name in words else (name, value))
    ]
    with pytest.raises(SystemExit) as ended:
        main(["sample", "--model", "untrained", "--quiet", "--json", *kept, *words])
    out, err = capfd.readouterr()
    if ended.value.code == 2:
        assert out == ""
        # By the name of an option, in words or as it is written, or by the value.
        names = {word.lstrip("-").partition("-")[0] for word in words[::2]}
        assert any(name in err.lower() for name in names | set(words[1::2]) if name.strip()), err
        assert "Traceback" not in err
    else:
        assert not ended.value.code, words
        samples = [json.loads(line) for line in out.splitlines()]
        chains = int(dict(zip(words[::2], words[1::2], strict=True)).get("--chains", 2))
        assert {sample["chain"] for sample in samples} == set(range(chains))
        assert all(math.isfinite(sample["energy_norm"]) for sample in samples)


@pytest.mark.parametrize(
    "words",
    ["--chains 99999999", "--epochs 99999999 --chains 99", "--length 99999999", "--seed -1",
     "--block 99999999", "--top-k 0", "--resident 0", "--token-budget 0", "--threads 99999"],
)  # fmt: skip
def test_huge_and_impossible_numbers_are_refused_at_once(words, capfd):
    with pytest.raises(SystemExit) as ended:
        main(["sample", "--model", "untrained", *words.split()])
    out, err = capfd.readouterr()
    assert ended.value.code == 2
    assert out == ""
    assert err.startswith("maskov: ")


MODEL = tiny_bert("red green", torch.float32)
REAL = st.floats(allow_nan=True) | st.sampled_from([0.0, 1.0, 0.5, -1.0])
WHOLE = st.integers(-2, 4)


def _made(make, valid: bool):
    """Return what is made if it is valid; otherwise it must be refused in one line."""
    if valid:
        return make()
    with pytest.raises(MaskovError, match=r"\A.+\Z"):
        make()
    return None


@examples(80)
@given(data=st.data())
def test_any_numbers_in_python(data):
    """Every part is made exactly if its numbers are within bounds."""

    def draw(strategy):
        return data.draw(strategy)

    heat, top_k, top_p, epsilon = draw(REAL), draw(st.none() | WHOLE), draw(REAL), draw(REAL)
    proposal = _made(
        lambda: MaskedConditional(heat, top_k, top_p, epsilon),
        0 <= heat < math.inf and top_k not in (-2, -1, 0) and 0 < top_p <= 1 and 0 <= epsilon <= 1,
    )
    start, rate, floor = draw(REAL), draw(REAL), draw(REAL)
    linear = _made(
        lambda: LinearSchedule(start, rate, floor),
        all(map(math.isfinite, (start, rate, floor))) and rate >= 0 and floor <= start,
    )
    order, block = draw(st.sampled_from(["random", "left-to-right", "x"])), draw(WHOLE)
    positions = _made(lambda: Sweep(order, block), order != "x" and block >= 1)
    nearest = draw(st.none() | WHOLE)
    delayed = _made(lambda: DelayedAcceptance(nearest), nearest is None or nearest >= 0)
    epochs, burn_in, forced = draw(WHOLE), draw(WHOLE), draw(WHOLE)
    _made(
        lambda: Schedule(epochs, burn_in, linear, None, force_accept=forced),
        0 <= burn_in < epochs
        and 0 <= forced <= epochs
        and (linear is None or max(floor, start - rate * (epochs - 1)) > 0),
    )
    threads = draw(st.none() | st.integers(-1, 1))
    _made(lambda: Workers(threads=threads), threads in (None, 1))
    if None in (proposal, positions, delayed):
        return
    target = draw(REAL)
    _made(
        lambda: Metropolis(
            Raw(), Site(proposal, positions), target_temperature=target, delayed=delayed
        ),
        heat > 0 and target > 0,
    )


SETTINGS = {
    "chains": st.integers(1, 4), "length": st.tuples(st.just(3), st.integers(3, 5)),
    "seed": st.integers(0, 4), "thin": st.integers(0, 1),
    "token_budget": st.none() | st.integers(1, 4),
    "resident": st.none() | st.integers(1, 4),
}  # fmt: skip
IMPOSSIBLE = [
    ("chains", 0), ("chains", -1), ("length", (0, 3)), ("length", (4, 3)), ("seed", -1),
    ("thin", -1), ("thin", 9), ("resident", 0),
]  # fmt: skip


@examples(25)
@given(
    settings=st.fixed_dictionaries(SETTINGS),
    spoilt=st.none() | st.sampled_from(IMPOSSIBLE),
    block=st.integers(1, 3),
    data=st.data(),
)
def test_any_settings_of_a_run(settings, spoilt, block, data):
    """Valid parts run together; a single setting that cannot be is named."""
    delayed = DelayedAcceptance(data.draw(st.none() | st.integers(0, 4)))
    target = data.draw(st.sampled_from([1e-300, 0.1, 1.0, 1e300, math.inf]))
    kernel = Metropolis(
        Raw(), Site(positions=Sweep("random", block)), target_temperature=target, delayed=delayed
    )
    schedule = Schedule(data.draw(st.integers(1, 4)), force_accept=data.draw(st.integers(0, 1)))
    if spoilt is not None:
        name, value = spoilt
        named = name.removesuffix("s")
        with pytest.raises(MaskovError, match=rf"\A.*{named}.*\Z"):
            maskov.sample(MODEL, kernel, schedule, **settings | {name: value})
        return
    run = maskov.sample(MODEL, kernel, schedule, **settings)
    shortest, longest = settings["length"]
    assert {kept.chain for kept in run.samples} == set(range(settings["chains"]))
    assert all(shortest <= len(kept.ids) <= longest for kept in run.samples)
    assert all(math.isfinite(kept.energy_norm) for kept in run.samples)


@examples(80)
@given(name=st.sampled_from(sorted(METHODS)), data=st.data())
def test_any_method_of_translation_is_made_or_refused(name, data):
    numbers = {"iterations", "length_beam", "epochs", "temperature", "anneal", "target_floor",
               "force_accept", "block", "block_anneal", "chains", "beam", "length_power",
               "target_temperature"}  # fmt: skip
    known = sorted(numbers & METHODS[name])
    chosen = data.draw(st.lists(st.sampled_from(known), max_size=3, unique=True)) if known else []
    whole = {"iterations", "length_beam", "epochs", "force_accept", "block", "chains", "beam"}
    values = {key: data.draw(WHOLE if key in whole else REAL) for key in chosen}
    names = [key.replace("_", mark) for key in [*chosen, "epochs"] for mark in "- "]
    with or_refused(MaskovError, naming=[*names, "schedule", "forced"] if chosen else ()):
        method = TranslationMethod(name, **values)
        assert {key: getattr(method, key) for key in chosen} == values
        assert all(values[key] >= (key != "force_accept") for key in whole & values.keys())
        assert name == "ar" or method.schedule().epochs == method.sweeps
