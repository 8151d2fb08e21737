"""Errors a user can act on: one sentence that says what is wrong and what to do; and the log."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TypeVar

T = TypeVar("T")

# What a service may want to know; nobody sees it unless a handler is added.
LOG = logging.getLogger("maskov")
LOG.addHandler(logging.NullHandler())


class MaskovError(Exception):
    """Something the user can put right; the command line prints it and exits with code 2."""


class InputError(MaskovError):
    """An option, text or template that cannot be used as given."""


class TooLongError(InputError):
    """A text that an energy's model cannot read; `fits` says which of the texts it can."""

    def __init__(self, message: str, fits: Sequence[bool] = ()) -> None:
        super().__init__(message)
        self.fits = list(fits)


class ModelError(MaskovError):
    """A model that cannot be loaded, or that answers with something that is not a number."""


class RunError(MaskovError):
    """A run folder that cannot be written, read or continued."""


class Interrupted(MaskovError):  # noqa: N818 - an interruption is not a fault
    """The user or the system asked the run to stop; the state before the step is intact."""


def refuse(*rules: tuple[object, str], kind: type[Exception] = InputError) -> None:
    """Raise the message of the first rule whose condition holds, as an error of some kind."""
    for wrong, message in rules:
        if wrong:
            raise kind(message)


def required(value: T | None, message: str, kind: Callable[[str], Exception] = InputError) -> T:
    """Return a value; where there is none, raise the message as an error of some kind."""
    if value is None:
        raise kind(message)
    return value


@contextmanager
def refusing(
    message: str, *errors: type[Exception], kind: type[Exception] = InputError
) -> Iterator[None]:
    """Raise the message, as an error of some kind, where any of these errors is raised."""
    try:
        yield
    except errors as error:
        raise kind(message) from error


def reason_of(error: Exception) -> str:
    """Return the system's reason for an error, in lower case."""
    return (getattr(error, "strerror", None) or str(error)).lower()
