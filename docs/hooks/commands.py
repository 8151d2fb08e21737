"""The command-line reference: a page for each command, from the commands themselves."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import typer
from mkdocs.structure.files import File, Files

INDEX = "reference/commands/index.md"
FOLDER = "reference/commands"
_KINDS = {str: "text", int: "number", float: "number", Path: "path", bool: ""}


def on_config(config: Any) -> Any:
    """Put the pages of the commands below their index in the navigation."""
    pages = [{name: f"{FOLDER}/{_file(name)}.md"} for name, _ in commands()]
    _extend(config.nav, [INDEX, *pages])
    return config


def on_files(files: Files, config: Any) -> Files:
    """Add a page for each command."""
    for name, command in commands():
        files.append(
            File.generated(config, f"{FOLDER}/{_file(name)}.md", content=page(name, command))
        )
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, files: Files) -> str:
    """Write the table of commands into their index."""
    if page.file.src_uri != INDEX:
        return markdown
    rows = "".join(
        f"| [`maskov {name}`]({_file(name)}.md) | {_cell(_first(command.help))} |\n"
        for name, command in commands()
    )
    return f"{markdown}\n| command | what it does |\n|---|---|\n{rows}"


def commands() -> Iterator[tuple[str, Any]]:
    """Yield every command and its name, such as `rate export`."""
    from maskov.cli import app

    yield from _below("", typer.main.get_command(app))


def page(name: str, command: Any) -> str:
    """Return the page of a command."""
    text = [f"# maskov {name}", "", _prose(command.help), "", "```", _usage(name, command), "```"]
    for title, parameters in panels(command).items():
        text += ["", f"## {title}", "", "| option | meaning | default |", "|---|---|---|"]
        text += [_row(parameter) for parameter in parameters]
    return "\n".join(text) + "\n"


def panels(command: Any) -> dict[str, list[Any]]:
    """Return the parameters of a command by their panel, arguments first."""
    found: dict[str, list[Any]] = {}
    for argument in (True, False):
        for parameter in command.params:
            if _is_argument(parameter) != argument or getattr(parameter, "hidden", False):
                continue
            title = getattr(parameter, "rich_help_panel", None)
            title = title or ("Arguments" if argument else "Options")
            found.setdefault(title, []).append(parameter)
    return found


def _below(prefix: str, group: Any) -> Iterator[tuple[str, Any]]:
    for name, command in group.commands.items():
        if getattr(command, "hidden", False):
            continue
        if hasattr(command, "commands"):
            yield from _below(f"{prefix}{name} ", command)
        else:
            yield f"{prefix}{name}", command


def _usage(name: str, command: Any) -> str:
    words = ["maskov", name, "[OPTIONS]"]
    for parameter in command.params:
        if _is_argument(parameter):
            word = parameter.name.upper() + ("..." if parameter.nargs == -1 else "")
            words.append(word if parameter.required else f"[{word}]")
    return " ".join(words)


def _row(parameter: Any) -> str:
    if _is_argument(parameter):
        names = f"`{parameter.name.upper()}`"
    else:
        names = ", ".join(f"`{name}`" for name in (*parameter.opts, *parameter.secondary_opts))
        kind = _kind(parameter)
        names += f" {kind}" if kind else ""
    return f"| {names} | {_cell(parameter.help or '')} | {_cell(_default(parameter))} |"


def _default(parameter: Any) -> str:
    """Return the default, where the help text does not say it."""
    if parameter.required:
        return "required"
    value = parameter.default
    if value is None or value in ((), "") or "(default:" in (parameter.help or ""):
        return ""
    if isinstance(value, bool):
        names = parameter.secondary_opts
        return f"`{parameter.opts[0]}`" if value and names else "on" if value else "off"
    return f"`{value}`"


def _kind(parameter: Any) -> str:
    """Return what an option takes: text, a number, a path, or nothing."""
    described = getattr(parameter, "type_descriptor", None)  # of Typer from 0.2x on
    if getattr(parameter, "is_flag", False):
        return ""
    if described is not None:
        return _KINDS.get(described.annotation, "text")
    return {"integer": "number", "float": "number", "path": "path"}.get(parameter.type.name, "text")


def _is_argument(parameter: Any) -> bool:
    return getattr(parameter, "param_type_name", "option") == "argument"


def _prose(text: str | None) -> str:
    """Return a docstring as paragraphs, without signs that only a terminal knows."""
    return re.sub(r"\n[ \t]+", "\n", (text or "").replace("\b", "").replace("\f", "")).strip()


def _first(text: str | None) -> str:
    return _prose(text).partition("\n\n")[0].replace("\n", " ")


def _cell(text: str) -> str:
    """Return text as a cell of a table: option names as code, no sign that ends the cell."""
    text = " ".join(text.split()).replace("\\[", "[")  # which is how Rich spells a bracket
    parts = re.split(r"(`[^`]*`|(?<![\w-])--[a-z][a-z-]*)", text)
    for place, part in enumerate(parts):
        if place % 2:
            parts[place] = f"`{part.strip('`')}`".replace("|", "\\|")
        else:
            parts[place] = re.sub(r"([|<*\[\]_])", r"\\\1", part)
    return "".join(parts)


def _file(name: str) -> str:
    return name.replace(" ", "-")


def _extend(nav: Any, pages: list[Any]) -> None:
    """Replace the entry of the index by a list that begins with it."""
    for entry in nav if isinstance(nav, list) else []:
        for title, value in entry.items() if isinstance(entry, dict) else ():
            if value == INDEX:
                entry[title] = pages
            else:
                _extend(value, pages)
