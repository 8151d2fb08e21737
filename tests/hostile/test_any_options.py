"""Whatever options and numbers are given: they work, or are refused in one sentence."""

import json
import math

import pytest
from hypothesis import given, strategies as st

from maskov.cli import main
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
