"""Read an energy from text: `raw`, `norm`, `autoregressive`, parts of one's own, and sums of these.

raw+0.5*norm
raw(groups=4)
raw + 12*my_module:Contains('river')
"""

from __future__ import annotations

import re
from collections.abc import Callable

from maskov.energies.base import Energy
from maskov.energies.causal import Autoregressive
from maskov.energies.lengths import LengthPrior
from maskov.energies.masked import Norm, Raw
from maskov.energies.text import TextEnergy
from maskov.errors import InputError
from maskov.parts import is_import_path, load_part, parse_call, split_outside

# Far more than anybody adds up by hand; each is a part of every test of every proposal.
MOST_TERMS = 64
_BUILT_IN: dict[str, type[Raw | Norm]] = {"raw": Raw, "norm": Norm}


def parse_energy(
    text: str,
    causal: str | None = None,
    load: Callable[[str], Autoregressive] = Autoregressive,
    trust_parts: bool = True,
) -> Energy:
    """Build the energy that `text` names.

    `causal` is the model meant by a bare `autoregressive`; `load` makes that energy. Parts named by
    an import path are imported only if they are trusted.
    """
    total: Energy | None = None
    terms = _terms(text)
    if len(terms) > MOST_TERMS:
        raise InputError(f"an energy has at most {MOST_TERMS} terms, not {len(terms):,}.")
    for term in terms:
        weight, name = _weighted(term, text)
        energy = _named(name, causal, text, load, trust_parts)
        if weight is not None:
            energy = weight * energy
        total = energy if total is None else total + energy
    assert total is not None
    return total


def _terms(text: str) -> list[str]:
    """Cut at each plus sign, but for those inside parentheses or quotes or a number (1e+20)."""
    terms: list[str] = []
    for piece in split_outside(text, "+"):
        if terms and re.search(r"[\d.][eE]$", terms[-1]):
            terms[-1] += "+" + piece
        else:
            terms.append(piece)
    return terms


def _weighted(term: str, text: str) -> tuple[float | None, str]:
    pieces = split_outside(term, "*")
    if len(pieces) == 1:
        return None, pieces[0]
    try:
        return float(pieces[0]), "*".join(pieces[1:])
    except ValueError:
        raise _unknown(text) from None


def _named(
    term: str,
    causal: str | None,
    text: str,
    load: Callable[[str], Autoregressive],
    trust_parts: bool,
) -> Energy:
    # A model's folder may hold any letters, so it is taken as it stands.
    model = re.fullmatch(r"\s*autoregressive\s*(?:\((.*)\))?\s*", term, re.S)
    if model is not None:
        name = model[1] or causal
        if name is None:
            raise InputError("the energy 'autoregressive' needs --causal-model, a causal LM.")
        return load(name)
    try:
        name, arguments, options = parse_call(term)
    except InputError:
        raise _unknown(text) from None
    if is_import_path(name):
        return as_energy(load_part(name, arguments, options, trust_parts))
    if name == "length_prior":
        try:
            return LengthPrior(*arguments, **options)
        except (TypeError, ValueError):
            raise _unknown(text) from None
    if name not in _BUILT_IN or arguments or ("(" in term) != (options.keys() == {"groups"}):
        raise _unknown(text)
    if options and type(options["groups"]) is not int:
        raise InputError(f"the groups of '{term.strip()}' must be a whole number.")
    return _BUILT_IN[name](**options)


def as_energy(part: object) -> Energy:
    """Return an energy as it is, and a function of texts as an energy."""
    if isinstance(part, Energy):
        return part
    if isinstance(part, str):
        return parse_energy(part)
    if callable(part):
        return TextEnergy(part)
    raise InputError(
        f"'{type(part).__qualname__}' is no energy: it must be an Energy, or take a list of texts "
        "and return a list of numbers."
    )


def _unknown(text: str) -> InputError:
    return InputError(
        f"unknown energy '{text}'; use raw, norm or autoregressive, 'raw(groups=4)', a part of "
        "your own such as my_module:Contains('river'), or a sum of these such as 'raw+0.5*norm'."
    )
