"""Whatever options and numbers are given: they work, or are refused in one sentence."""

import json
import math

import pytest
from hypothesis import given, strategies as st

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
from maskov.workers import Workers
from mutations import examples

VALUES = st.sampled_from(
    ["-1", "0", "1", "2", "3", "0.5", "-0.5", "nan", "inf", "-inf", "1e308", "1e-320", "", " ",
     "99999999999999999999", "-99999999999999999999", "0x10", "1_0", "٣", "one", "2:3", "3:2"]
) | st.sampled_from(
    ["raw", "norm", "raw+norm", "raw-norm", "0*raw", "mh", "gibbs", "auto", "off", "random",
     "masked", "greedy", "bfloat16", "cpu", "cuda:99", "", "../..", "\x00", "naïve", "converged"]
)  # fmt: skip
OPTIONS = [
    "epochs", "burn-in", "chains", "length", "seed", "thin", "proposal", "delayed",
    "target-temperature", "force-accept", "token-budget", "resident", "threads", "workers",
    "energy", "kernel", "moves", "start", "precision", "device", "until",
]  # fmt: skip


@examples(60)
@given(given=st.dictionaries(st.sampled_from(OPTIONS), VALUES, min_size=1, max_size=2))
def test_any_options_of_sample(given, capfd):
    small = {"epochs": "2", "chains": "2", "length": "3"} | given
    words = [word for name, value in small.items() for word in (f"--{name}", value)]
    with pytest.raises(SystemExit) as ended:
        main(["sample", "--model", "untrained", "--quiet", "--json", *words])
    out, err = capfd.readouterr()
    if ended.value.code == 2:
        assert out == ""
        # By the name of an option, in words or as it is written, or by the value.
        names = {name.partition("-")[0] for name in given} | set(given.values())
        assert any(name in err.lower() for name in names if name.strip()), err
        assert "Traceback" not in err
    else:
        assert not ended.value.code, words
        samples = [json.loads(line) for line in out.splitlines()]
        assert {one["chain"] for one in samples} == set(range(int(small["chains"])))
        assert all(math.isfinite(one["energy_norm"]) for one in samples)


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
    draw = data.draw
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
    nearest, threads = draw(st.none() | WHOLE), draw(st.none() | st.integers(-1, 1))
    delayed = _made(lambda: DelayedAcceptance(nearest), nearest is None or nearest >= 0)
    _made(lambda: Workers(threads=threads), threads in (None, 1))
    epochs, burn_in, forced = draw(WHOLE), draw(WHOLE), draw(WHOLE)
    _made(
        lambda: Schedule(epochs, burn_in, linear, None, force_accept=forced),
        0 <= burn_in < epochs
        and 0 <= forced <= epochs
        and (linear is None or max(floor, start - rate * (epochs - 1)) > 0),
    )
    if None not in (proposal, positions, delayed):
        target = draw(REAL)
        site = Site(proposal, positions)
        _made(
            lambda: Metropolis(Raw(), site, target_temperature=target, delayed=delayed),
            heat > 0 and target > 0,
        )
