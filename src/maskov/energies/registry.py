"""Read an energy from text: `raw`, `norm`, `autoregressive`, and sums such as `raw+0.5*norm`."""

from __future__ import annotations

import re
from collections.abc import Callable

from maskov.energies.base import Energy
from maskov.energies.causal import Autoregressive
from maskov.energies.masked import Norm, Raw
from maskov.errors import InputError

_TERM = re.compile(
    r"\s*(?:(?P<weight>[^*()]+)\*)?\s*(?P<name>[a-z]+)\s*(?:\((?P<argument>.*)\))?\s*"
)


def parse_energy(
    text: str, causal: str | None = None, load: Callable[[str], Autoregressive] = Autoregressive
) -> Energy:
    """Build the energy that `text` names.

    `causal` is the model meant by a bare `autoregressive`; `load` makes that energy.
    """
    total: Energy | None = None
    for term in _terms(text):
        match = _TERM.fullmatch(term)
        if match is None:
            raise _unknown(text)
        if match["argument"] is not None and match["name"] != "autoregressive":
            raise _unknown(text)
        energy = _named(match["name"], match["argument"] or causal, text, load)
        if match["weight"] is not None:
            try:
                energy = float(match["weight"]) * energy
            except ValueError:
                raise _unknown(text) from None
        total = energy if total is None else total + energy
    if total is None:
        raise _unknown(text)
    return total


def _terms(text: str) -> list[str]:
    """Cut at each plus sign, but for those inside parentheses (a name) or a number (1e+20)."""
    terms, depth = [""], 0
    for sign in text:
        depth += (sign == "(") - (sign == ")")
        if sign == "+" and depth == 0 and not re.search(r"[\d.][eE]$", terms[-1]):
            terms.append("")
        else:
            terms[-1] += sign
    return terms


def _named(
    name: str, causal: str | None, text: str, load: Callable[[str], Autoregressive]
) -> Energy:
    if name == "raw":
        return Raw()
    if name == "norm":
        return Norm()
    if name == "autoregressive":
        if causal is None:
            raise InputError("the energy 'autoregressive' needs --causal-model, a causal LM.")
        return load(causal)
    raise _unknown(text)


def _unknown(text: str) -> InputError:
    return InputError(
        f"unknown energy '{text}'; use raw, norm or autoregressive, or a sum of these such as "
        "'raw+0.5*norm'."
    )
