"""Help shows a newcomer's options first, and names no internal types."""

from __future__ import annotations

import re

import pytest
from typer.testing import CliRunner

from maskov.cli import app

COMMANDS = [
    "", "sample", "infill", "rewrite", "translate", "score", "evaluate", "resume", "diagnose",
    "report", "serve", "verify", "models", "rate", "rate export", "rate import",
]  # fmt: skip


def help_of(command: str) -> str:
    result = CliRunner().invoke(
        app, [*command.split(), "--help"], env={"COLUMNS": "100", "TERMINAL_WIDTH": "100"}
    )
    assert result.exit_code == 0
    return result.output


def panels(text: str) -> dict[str, list[str]]:
    """Return the options of each panel by its title."""
    found: dict[str, list[str]] = {}
    for line in text.splitlines():
        if title := re.match(r"╭─ (.+?) ─", line):
            found[title[1]] = []
        elif name := re.match(r"│ [ *]*(--[\w-]+)", line):
            found[list(found)[-1]].append(name[1])
    return found


@pytest.mark.parametrize("command", COMMANDS)
def test_no_help_speaks_of_types_of_flags_or_of_itself(command):
    text = " ".join(help_of(command).replace("│", " ").split())
    assert "bool" not in text.lower()
    assert "by itself" not in text


def test_sample_shows_few_options_first():
    found = panels(help_of("sample"))
    assert found.pop("Options") == [
        "--model", "--energy", "--length", "--start-text", "--chains", "--epochs", "--until",
        "--out", "--json", "--help",
    ]  # fmt: skip
    parts = ("kernel", "constraints", "model", "schedule", "run", "workers")
    assert list(found) == [f"Advanced: {part}" for part in parts]
    assert "--trust-remote-code" in found["Advanced: model"]
    assert sum(map(len, found.values())) + 10 <= 40


@pytest.mark.parametrize("command", ["infill", "rewrite", "translate"])
def test_other_panels_are_advanced(command):
    found = panels(help_of(command))
    assert 7 <= len(found.pop("Options")) <= 11
    found.pop("Arguments")
    assert all(title.startswith("Advanced: ") for title in found)
