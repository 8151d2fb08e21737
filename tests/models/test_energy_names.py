"""An energy's name is read back as the same energy: run folders keep nothing but the name."""

import pytest

import maskov
from maskov import Autoregressive, Norm, Raw, parse_energy

CAUSAL = Autoregressive("some/model")


def parts_of(energy):
    """Return weights and names of the parts, which for built-in energies say everything."""
    return [(weight, str(part)) for weight, part in getattr(energy, "parts", ((1.0, energy),))]


@pytest.mark.parametrize(
    "energy",
    [
        Raw(),
        Norm(),
        CAUSAL,
        0.5 * Raw() + 2 * Norm() + CAUSAL,
        -1 * Norm() + Raw(),
        0.25 * (Raw() + 2 * Norm()),
        1e-7 * CAUSAL + Raw(),
        Raw() * (1 / 3) + 0.123456789 * Norm(),
        1e20 * Raw(),
        Autoregressive("a+b/c.d-e_f") + Raw(),
        Raw() + 0.5 * Autoregressive("folder(1)/model"),
        Raw() + Autoregressive("my models/gpt 2"),
    ],
    ids=str,
)
def test_name_is_read_back_as_the_same_energy(energy):
    again = parse_energy(str(energy))
    assert parts_of(again) == parts_of(energy)
    assert str(again) == str(energy)


@pytest.mark.parametrize(
    ("text", "energy"),
    [
        ("raw", Raw()),
        (" raw + 0.5 * norm ", Raw() + 0.5 * Norm()),
        ("autoregressive(some/model)", CAUSAL),
        ("raw+autoregressive", Raw() + CAUSAL),
        ("2*norm+-1*raw", 2 * Norm() + -1 * Raw()),
    ],
)
def test_text_names_this_energy(text, energy):
    assert parts_of(parse_energy(text, causal="some/model")) == parts_of(energy)


@pytest.mark.parametrize(
    "text",
    [
        *("", " ", "energy", "RAW", "rawnorm", "(raw)"),
        *("raw+", "+raw", "raw++norm", "raw-norm"),
        *("raw*2", "2*", "*raw", "2*3*raw", "2**raw", "x*raw", "nan*raw", "inf*raw"),
        *("raw(", "raw)", "raw(1)", "norm()"),
        *("autoregressive", "autoregressive()", "autoregressive(a"),
    ],
)
def test_malformed_text_is_refused(text):
    with pytest.raises(maskov.InputError):
        parse_energy(text)


@pytest.mark.parametrize("weight", [float("nan"), float("inf"), -float("inf")])
def test_weight_that_is_no_finite_number_is_refused(weight):
    with pytest.raises(maskov.InputError, match="finite"):
        weight * Raw()
