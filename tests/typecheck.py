"""Checks arguments and results of the package's functions, as their annotations state them."""

from collections.abc import Callable
from typing import Any

from beartype import BeartypeConf, beartype

# An int is allowed where a float is stated. What is wrong is a TypeError, as it would be later on.
_check = beartype(conf=BeartypeConf(is_pep484_tower=True, violation_type=TypeError))


def checked(function: Callable[..., Any]) -> Callable[..., Any]:
    """Decorate a function; jaxtyping applies this to each function that is imported."""
    return _check(function)
