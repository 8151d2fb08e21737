"""Help without `<bool>`: an option that takes no value shows none."""

from __future__ import annotations

from typing import Any

from typer.core import TyperCommand, TyperGroup


def _without_values(parameters: list[Any]) -> list[Any]:
    for parameter in parameters:
        if getattr(parameter, "is_flag", False):
            parameter.metavar = ""
    return parameters


class Command(TyperCommand):
    """A command of maskov."""

    def get_params(self, ctx: Any) -> list[Any]:
        """Return the options and arguments."""
        return _without_values(super().get_params(ctx))


class CommandGroup(TyperGroup):
    """A command with subcommands."""

    def get_params(self, ctx: Any) -> list[Any]:
        """Return the options and arguments."""
        return _without_values(super().get_params(ctx))
