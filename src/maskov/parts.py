"""Custom parts, named by their import path: `package.module:Class('argument', key=1)`.

A name is all that a run folder, a worker or another process needs to build the part again. Nothing
is imported unless the user named it: `load_part` refuses where `trust` is false, as it is for names
that come out of a file.
"""

from __future__ import annotations

import ast
import inspect
import json
import os
import re
import sys
from dataclasses import MISSING, fields, is_dataclass
from pkgutil import resolve_name
from typing import Any

from maskov.errors import InputError, RunError, refuse, required

_CALL = re.compile(
    r"\s*(?P<name>[\w.-]+(?::[A-Za-z_][\w.]*)?)\s*(?:\((?P<arguments>.*)\))?\s*", re.S
)
# Where a part remembers how it was made.
_MADE = "_maskov_part"
Recipe = tuple[str, list[Any], dict[str, Any]]
# How parts that cannot remember were made, by their `id`, which is theirs while they are kept.
_SLOTTED: dict[int, tuple[Any, Recipe]] = {}


def is_import_path(name: str) -> bool:
    """Tell `module:Class` from the name of a built-in part."""
    return ":" in name


def parse_call(text: str) -> Recipe:
    """Read `name` or `name(1, 'two', key=three)`; words without quotes are strings."""
    match = required(
        _CALL.fullmatch(text), f"'{text}' is not a part: write a name, or name(arguments)."
    )
    positional: list[Any] = []
    keywords: dict[str, Any] = {}
    for argument in filter(str.strip, split_outside(match["arguments"] or "", ",")):
        key = re.fullmatch(r"\s*([A-Za-z_]\w*)\s*=(?!=)(.*)", argument, re.S)
        if key is not None:
            keywords[key[1]] = _literal(key[2])
        else:
            positional.append(_literal(argument))
    return match["name"], positional, keywords


def split_outside(text: str, sign: str) -> list[str]:
    """Cut a text at a sign, but not inside parentheses or quotes."""
    pieces, depth, quote = [""], 0, ""
    for letter in text:
        if quote:
            quote = "" if letter == quote else quote
        elif letter in "'\"":
            quote = letter
        else:
            depth += (letter in "([{") - (letter in ")]}")
        if letter == sign and not depth and not quote:
            pieces.append("")
        else:
            pieces[-1] += letter
    return pieces


def quoted(value: Any) -> str:
    """Write an argument as `parse_call` reads it: plain words without quotes."""
    plain = isinstance(value, str) and re.fullmatch(r"[\w./-]+", value) is not None
    return str(value) if plain and _literal(value) == value else written(value)


def written(value: Any) -> str:
    """Write an argument as `parse_call` reads it, strings in quotes."""
    if not isinstance(value, str):
        return repr(value)
    if "'" in value and '"' in value:
        # Several strings, each in the quotes that it has not; Python joins neighbours.
        return " ".join(map(repr, re.findall("'+|[^']+", value)))
    quote = '"' if "'" in value else "'"
    return f"{quote}{value}{quote}"


def _literal(text: str) -> Any:
    # What is in quotes is taken as it stands, so that regular expressions keep their backslashes.
    string = re.fullmatch(r"""\s*(['"])((?:(?!\1).)*)\1\s*""", text, re.S)
    if string is not None:
        return string[2]
    try:
        return ast.literal_eval(text.strip())
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return text.strip()


def load_part(name: str, arguments: list[Any], options: dict[str, Any], trust: bool) -> Any:
    """Import a class and make an instance of it, which remembers its name; or import a function."""
    refuse(
        (
            not trust,
            f"this run uses '{name}', which is not part of maskov; if you trust it, say so "
            "with --trust-parts.",
        ),
        kind=RunError,
    )
    module_name, _, path = name.partition(":")
    # As for scripts, modules of the current folder can be named.
    if os.getcwd() not in sys.path and "" not in sys.path:
        sys.path.insert(0, os.getcwd())
    try:
        part: Any = resolve_name(name)
    except AttributeError as error:
        raise InputError(f"the module '{module_name}' has no '{path}' ({error}).") from error
    except (ImportError, ValueError) as error:
        raise InputError(
            f"cannot import '{module_name}' for the part '{name}' ({error}); install it, or run "
            "from the folder it is in."
        ) from error
    refuse((not callable(part), f"'{name}' is not a class or function that makes a part."))
    if inspect.isfunction(part) and not arguments and not options:
        return part  # the function itself is the part
    try:
        made = part(*arguments, **options)
    except TypeError as error:
        raise InputError(f"'{name}' cannot be made with these arguments: {error}.") from error
    recipe = (name, list(arguments), dict(options))
    try:
        object.__setattr__(made, _MADE, recipe)
    except AttributeError:  # it has slots
        _SLOTTED[id(made)] = (made, recipe)
    return made


def recipe_of(part: Any) -> Recipe | None:
    """Return the name and the arguments that make this part again; None if nobody can tell."""
    known: Recipe | None = getattr(part, _MADE, None) or _SLOTTED.get(id(part), (None, None))[1]
    if known is not None or not importable(part):
        return known
    kind, options = _kind(part), dict[str, Any]()
    if is_dataclass(part):
        options = {field.name: getattr(part, field.name) for field in fields(part) if field.init}
    elif not inspect.isfunction(part) and (
        kind.__init__ is not object.__init__ or getattr(part, "__dict__", None)
    ):
        return None
    return (f"{kind.__module__}:{kind.__qualname__}", [], options) if is_plain(options) else None


def _kind(part: Any) -> Any:
    """Return what is imported: a class, or a function that is a part itself."""
    return part if inspect.isfunction(part) else type(part)


def importable(part: Any) -> bool:
    """Whether another process could import the part's class."""
    kind = _kind(part)
    return kind.__module__ != "__main__" and "<" not in kind.__qualname__


def is_plain(data: Any) -> bool:
    """Whether data is the same after it was written as JSON and read back."""
    try:
        return bool(json.loads(json.dumps(data)) == data)
    except (TypeError, ValueError):
        return False


def part_text(part: Any) -> str:
    """Write a part as `parse_call` reads it; one that cannot be made again is only named.

    A built-in dataclass has its own name, and the arguments that are not the usual ones.
    """
    if is_built_in(part) and is_dataclass(part):
        name, inner = re.sub(r"\B([A-Z])", r"_\1", type(part).__name__).lower(), []
        for one in fields(part):
            value = getattr(part, one.name)
            if one.default is MISSING:
                inner.append(quoted(value))
            elif value != one.default:
                inner.append(f"{one.name}={quoted(value)}")
    else:
        recipe = recipe_of(part)
        if recipe is None:
            return _short_name(part)
        name, arguments, options = recipe
        inner = [written(value) for value in arguments]
        inner += [f"{key}={written(value)}" for key, value in options.items()]
    return f"{name}({', '.join(inner)})" if inner else name


def is_built_in(part: Any) -> bool:
    """Whether the part's class is one of maskov's own."""
    return type(part).__module__.partition(".")[0] == "maskov"


def _short_name(part: Any) -> str:
    return str(_kind(part).__qualname__.rpartition(".")[2])


def not_reproducible(part: Any) -> str:
    """Return why a part is refused that a folder or another process could not build again."""
    name = _short_name(part)
    return (
        f"'{name}' cannot be written to a run folder or sent to workers, since it is unknown how "
        f"to make it again: give it by name ('module:{name}(arguments)') or make it a dataclass in "
        "a module, or run without `out` and `workers`."
    )
