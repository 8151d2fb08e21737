"""Read an energy from text: `raw`, `norm`, experts, custom parts, and sums of these.

raw+0.5*norm
raw(groups=4)
norm + 20*classifier(MODEL, label=positive) + 4*edit
raw + 12*my_module:Contains('river')
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import reduce
from operator import add
from typing import Any

from maskov.energies.base import Energy, Norm, Raw, TextEnergy
from maskov.energies.counting import (
    Avoids,
    Contains,
    Edit,
    Hamming,
    Length,
    LengthPrior,
    Matches,
    PredictedLength,
    Repeats,
)
from maskov.energies.networks import Autoregressive, Classifier, Loading, Similar
from maskov.energies.ordered import Ordered
from maskov.energies.other_models import AutoregressiveTranslation, OtherModel
from maskov.errors import InputError, refuse, required
from maskov.models.checkpoint import translation_folder
from maskov.parts import is_import_path, load_part, parse_call, split_outside

# Far more than anybody adds up by hand; each is a part of every test of every proposal.
MOST_TERMS = 64
_MASKED: dict[str, type[Raw | Norm]] = {"raw": Raw, "norm": Norm}
# Experts that need no model, and those that load one.
_PLAIN: dict[str, Callable[..., Energy]] = {
    "avoids": Avoids,
    "contains": Contains,
    "edit": Edit,
    "hamming": Hamming,
    "length": Length,
    "length_prior": LengthPrior,
    "matches": Matches,
    "ordered": Ordered,
    "predicted_length": PredictedLength,
    "repeats": Repeats,
}
_WITH_MODEL: dict[str, Callable[..., Energy]] = {"classifier": Classifier, "similar": Similar}
NAMES = ("raw", "norm", "autoregressive", *_WITH_MODEL, *_PLAIN)


def parse_energy(
    text: str,
    causal: str | None = None,
    loading: Loading | None = None,
    trust_parts: bool = True,
) -> Energy:
    """Build the energy that `text` names.

    `causal` is the model meant by a bare `autoregressive`; `loading` says how models are loaded.
    Parts named by an import path are imported only if they are trusted.
    """
    terms = weighted_terms(text)
    refuse(
        (
            len(terms) > MOST_TERMS,
            f"an energy has at most {MOST_TERMS} terms, not {len(terms):,}.",
        )
    )
    parts = (
        (weight, _named(name, causal, text, loading or Loading(), trust_parts))
        for weight, name in terms
    )
    return reduce(add, (part if weight == 1 else weight * part for weight, part in parts))


def weighted_terms(text: str) -> list[tuple[float, str]]:
    """Return the weight and the name of each part of an energy, without building any.

    Terms end at each plus sign, but for those inside parentheses or quotes or a number (1e+20).
    """
    terms: list[str] = []
    for piece in split_outside(text, "+"):
        if terms and re.search(r"[\d.][eE]$", terms[-1]):
            terms[-1] += "+" + piece
        else:
            terms.append(piece)
    found = []
    for term in terms:
        first, *rest = split_outside(term, "*")
        try:
            found.append((float(first), "*".join(rest).strip()) if rest else (1.0, first.strip()))
        except ValueError:
            raise _unknown(text) from None
    return found


def _named(term: str, causal: str | None, text: str, loading: Loading, trust_parts: bool) -> Energy:
    # A model's folder may hold any letters, so it is taken as it stands.
    model = re.fullmatch(r"\s*autoregressive\s*(?:\((.*)\))?\s*", term, re.S)
    if model is not None:
        lacking = "'autoregressive' needs a causal LM: write autoregressive(MODEL)."
        name = loading.find(required(model[1] or causal, lacking))
        if translation_folder(name) is not None:
            return AutoregressiveTranslation(name, loading)
        return Autoregressive(
            name,
            loading.device,
            trust_remote_code=loading.trust_remote_code,
            budget=loading.budget,
            allow_download=loading.allow_download,
        )
    try:
        name, arguments, options = parse_call(term)
    except InputError:
        raise _unknown(text) from None
    if is_import_path(name):
        return as_energy(load_part(name, arguments, options, trust_parts))
    if name in _MASKED:
        return _masked(term, name, arguments, options, loading)
    if name not in NAMES:
        raise _unknown(text)
    try:
        if name in _WITH_MODEL:
            # A model whose name looks like a number has a name all the same.
            arguments = [*map(str, arguments[:1]), *arguments[1:]]
            return _WITH_MODEL[name](*arguments, **options, loading=loading)
        return _PLAIN[name](*arguments, **options)
    except (TypeError, ValueError, AttributeError):
        raise InputError(
            f"'{term.strip()}' has arguments that '{name}' does not take; `maskov sample --help` "
            "and docs/how-to/rewrite.md show how it is written."
        ) from None


def _masked(
    term: str, name: str, arguments: list[Any], options: dict[str, Any], loading: Loading
) -> Energy:
    """Return E_raw or E_norm, of the model that proposes or of another one."""
    named = all(isinstance(one, str) for one in arguments) and len(arguments) < 2
    empty = "(" in term and not (arguments or options)
    refuse(
        (
            not named or empty or options.keys() - {"groups"},
            f"'{term.strip()}' is not an energy: write {name}, {name}(groups=4) or {name}(MODEL).",
        ),
        (
            options and type(options["groups"]) is not int,
            f"the groups of '{term.strip()}' must be a whole number.",
        ),
    )
    energy = _MASKED[name](**options)
    return OtherModel(energy, arguments[0], loading) if arguments else energy


def as_energy(part: object) -> Energy:
    """Return an energy as it is, and a function of texts as an energy."""
    if isinstance(part, Energy):
        return part
    if isinstance(part, str):
        return parse_energy(part)
    if callable(part):
        return TextEnergy(part)
    raise InputError(
        f"'{type(part).__qualname__}' is not an energy: it must be an Energy, or take a list of "
        "texts and return a list of numbers."
    )


def _unknown(text: str) -> InputError:
    names = ", ".join(name for name in NAMES if name != "length_prior")
    return InputError(
        f"unknown energy '{text}'; use {names}, 'raw(groups=4)', a custom part such as "
        "my_module:Contains('river'), or a sum of these such as 'raw+0.5*norm'."
    )
