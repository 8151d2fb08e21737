"""Whatever options are given: it works, or is refused with code 2 and without a traceback."""

from __future__ import annotations

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
                         "", "../..", "\x00", "naïve", "local", "every"])  # fmt: skip
OPTIONS = {
    "--epochs", "--burn-in", "--chains", "--length", "--seed", "--thin", "--temperature", "--top-p",
    "--top-k", "--epsilon", "--block", "--delayed", "--target-temperature", "--anneal",
    "--target-floor", "--block-anneal", "--block-floor", "--force-accept", "--token-budget",
    "--resident", "--prefetch", "--threads", "--checkpoint-every", "--energy", "--kernel",
    "--order", "--first-stage", "--start", "--precision", "--device", "--address", "--engine",
    "--gpus-per-worker",
}  # fmt: skip


@st.composite
def command(draw) -> list[str]:
    chosen = draw(st.lists(st.sampled_from(sorted(OPTIONS)), min_size=1, max_size=4, unique=True))
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
        main(["sample", "--model", "untrained", "--quiet", *kept, *words])
    out, err = capfd.readouterr()
    assert ended.value.code in (None, 0, 2), words
    assert "Traceback" not in err
    if ended.value.code == 2:
        assert out == ""
        assert err


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


def _or_refused(make):
    """Return what is made, or nothing where it was refused in one sentence."""
    with or_refused(MaskovError):
        return make()


@examples(80)
@given(data=st.data())
def test_any_numbers_in_python(data):
    """Every part is refused or works; together they run, or are refused."""

    def draw(strategy):
        return data.draw(strategy)

    proposal = _or_refused(
        lambda: MaskedConditional(draw(REAL), draw(st.none() | WHOLE), draw(REAL), draw(REAL))
    )
    linear = _or_refused(lambda: LinearSchedule(draw(REAL), draw(REAL), draw(REAL)))
    positions = _or_refused(
        lambda: Sweep(draw(st.sampled_from(["random", "left-to-right", "x"])), draw(WHOLE))
    )
    delayed = _or_refused(lambda: DelayedAcceptance(draw(st.none() | WHOLE)))
    schedule = _or_refused(
        lambda: Schedule(draw(WHOLE), draw(WHOLE), linear, None, forced_epochs=draw(WHOLE))
    )
    workers = _or_refused(lambda: Workers(threads=draw(st.none() | st.integers(-1, 1))))
    if None in (proposal, positions, delayed, schedule, workers):
        return
    kernel = _or_refused(
        lambda: Metropolis(
            Raw(), Site(proposal, positions), target_temperature=draw(REAL), delayed=delayed
        )
    )
    if kernel is None:
        return
    run = _or_refused(
        lambda: maskov.sample(
            MODEL, kernel, schedule, chains=draw(WHOLE), length=(draw(WHOLE), draw(WHOLE)),
            seed=draw(WHOLE), thin=draw(WHOLE), budget=draw(st.none() | st.integers(1, 4)),
            resident=draw(st.none() | WHOLE), prefetch=draw(WHOLE), workers=workers,
        )
    )  # fmt: skip
    if run is not None:
        assert all(math.isfinite(one.energy_norm) for one in run.samples)


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
    _or_refused(lambda: TranslationMethod(name, **values))
