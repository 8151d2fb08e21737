"""Run the examples of a page of the documentation (`doc_examples` reads them)."""

import ast
import contextlib
import io
import itertools
import os
import re
import shlex
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any
from unittest import mock

import typer

from doc_examples import ROOT, Block, Command, alike, blocks, matches
from maskov.cli import app, main

WIDTH = "120"  # of the terminal in which tables are printed
_SHELL = set("|<>&;`")


class MismatchError(AssertionError):
    """An output that is not the one shown."""


class PageRunner:
    """Runs the blocks of one page, in its own folder and namespace."""

    def __init__(self, page: Path, folder: Path) -> None:
        self._page, self._folder = page, folder
        self._names: dict[str, Any] = {"__name__": "documentation"}
        self.outputs: list[tuple[int, int, list[str]]] = []  # first line, how many, what is right

    def run(self, slow: bool) -> int:
        """Run the page, without its slow blocks unless asked; return how many blocks ran."""
        count = 0
        every = blocks(self._page)
        with self._environment():
            for block in every:
                if "file" in block.marks:
                    with (self._folder / block.marks["file"]).open("a") as file:
                        file.write(block.code + "\n\n")
            for block in every:
                if "not run" in block.marks:
                    self._parse(block)
                elif slow or "slow" not in block.marks:
                    self._run(block)
                    count += 1
        return count

    def _run(self, block: Block) -> None:
        if block.language == "python":
            if "file" not in block.marks:
                self._python(block)
        else:
            for command in block.commands():
                self._command(command, block)

    def _python(self, block: Block) -> None:
        printed = io.StringIO()
        name = f"{self._page.relative_to(ROOT)}, line {block.line}"
        # Padded, so that a traceback names the line of the page.
        tree = ast.parse("\n" * block.line + block.code)
        with contextlib.redirect_stdout(printed):
            if "raises" not in block.marks:
                exec(compile(tree, name, "exec"), self._names)
            for statement in tree.body if "raises" in block.marks else ():
                part = ast.Module([statement], [])
                try:
                    exec(compile(part, name, "exec"), self._names)
                except Exception as error:
                    print(f"{type(error).__name__}: {error}")
        if block.output is not None:
            self._compare(block.output, printed.getvalue(), block, block.output_line)

    def _command(self, command: Command, block: Block) -> None:
        variables, text = _variables(command.text)
        if text.startswith("maskov ") and not _SHELL & set(text.split("#")[0]):
            with mock.patch.dict(os.environ, variables):
                code, output = self._maskov(_words(text))
        else:
            own = f'maskov() {{ {shlex.quote(sys.executable)} -m maskov "$@"; }}'
            done = subprocess.run(
                ["bash", "-c", f"{own}\n{command.text}"],
                capture_output=True,
                text=True,
                env=os.environ | {"PYTHONPATH": f"{ROOT / 'src'}:{ROOT}:{self._folder}"},
            )
            code, output = done.returncode, done.stdout + done.stderr
        refused = any(line.startswith("maskov: ") for line in command.output)
        if code != (2 if refused else 0):
            raise MismatchError(f"{self._page}, `{command.text}` ended with code {code}:\n{output}")
        if "shortened" not in block.marks:
            self._compare(command.output, output, block, command.line)

    def _maskov(self, words: list[str]) -> tuple[int, str]:
        """Run a command here: starting Python for each would take most of the time."""
        out = io.TextIOWrapper(io.BytesIO(), encoding="utf-8")
        code = 0
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(out):
            try:
                main(words)
            except SystemExit as end:
                code = int(end.code or 0)
        out.seek(0)
        return code, out.read()

    def _compare(self, expected: list[str], output: str, block: Block, line: int) -> None:
        actual = [row.rstrip() for row in output.splitlines()]
        shown = [row.rstrip() for row in expected]
        if "varies" in block.marks:
            same = alike(shown, actual)
            refreshed = actual if not any("..." in row for row in shown) else shown
        else:
            same = matches(shown, actual)
            refreshed = shown if same else actual
        if not same or refreshed != shown:
            self.outputs.append((line, len(expected), refreshed if same else actual))
        if not same:
            text = "\n".join(actual)
            self.mismatch(f"{self._page}, line {line + 1}: the output shown is not\n{text}")

    def mismatch(self, text: str) -> None:
        """Report an output that is not the one shown."""
        raise MismatchError(text)

    def _parse(self, block: Block) -> None:
        """Check that the commands of a block that cannot be run have known options."""
        for command in block.commands() if block.language == "console" else ():
            if command.text.startswith("maskov "):
                parse(_words(command.text))

    @contextlib.contextmanager
    def _environment(self) -> Any:
        """Set folder, path and width of the terminal; undo it at the end."""
        modules, path = set(sys.modules), list(sys.path)
        before, width = Path.cwd(), os.environ.get("COLUMNS")
        os.chdir(self._folder)
        os.environ["COLUMNS"] = WIDTH
        sys.path.insert(0, str(self._folder))
        try:
            yield
        finally:
            os.chdir(before)
            sys.path[:] = path
            if width is None:
                del os.environ["COLUMNS"]
            else:
                os.environ["COLUMNS"] = width
            for name in set(sys.modules) - modules:
                if (self._folder / f"{name}.py").exists():
                    del sys.modules[name]


def parse(words: list[str]) -> None:
    """Parse a command of maskov without running it; unknown options raise."""
    command: Any = typer.main.get_command(app)
    while hasattr(command, "commands"):
        command, words = command.commands[words[0]], words[1:]
    command.make_context("maskov", list(words))


def _variables(text: str) -> tuple[dict[str, str], str]:
    """Return the variables that are set before a command, and the command."""
    head, name, rest = re.fullmatch(r"((?:\w+=\w+ )*)(\w*)(.*)", text, re.DOTALL).groups()
    return dict(word.split("=") for word in head.split()), name + rest


def _words(text: str) -> list[str]:
    """Return the words of a command after `maskov`, up to a pipe or a redirection."""
    lexer = shlex.shlex(text.replace("\\\n", " "), posix=True, punctuation_chars="|<>")
    lexer.whitespace_split = True
    return list(itertools.takewhile(lambda word: not set(word) <= set("|<>"), lexer))[1:]


def refresh(page: Path) -> None:
    """Run a page, slow blocks too, and write the outputs of today into it."""
    with tempfile.TemporaryDirectory() as folder:
        runner = PageRunner(page, Path(folder))
        runner.mismatch = print  # type: ignore[method-assign]
        runner.run(slow=True)
    lines = page.read_text(encoding="utf-8").splitlines()
    for line, count, output in reversed(runner.outputs):
        lines[line : line + count] = output
    page.write_text("\n".join(lines) + "\n", encoding="utf-8")
