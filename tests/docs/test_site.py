"""The site: it builds without a warning, fetches nothing, and its references are complete."""

import os
import re
import subprocess
import sys
from importlib.util import module_from_spec, spec_from_file_location

import pytest
import typer

import maskov
from doc_examples import ROOT
from maskov.cli import app

REFERENCE = ROOT / "docs" / "reference" / "python"


def _hook():
    pytest.importorskip("mkdocs")
    spec = spec_from_file_location("doc_commands", ROOT / "docs" / "hooks" / "commands.py")
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _every(group, prefix=""):
    for name, command in group.commands.items():
        yield f"{prefix}{name}", command
        if hasattr(command, "commands"):
            yield from _every(command, f"{prefix}{name} ")


def test_every_public_name_is_in_the_python_reference():
    text = "".join(page.read_text(encoding="utf-8") for page in REFERENCE.glob("*.md"))
    listed = set(re.findall(r"^::: maskov\.(\w+)$", text, re.MULTILINE))
    assert listed == set(maskov.__all__) - {"__version__"}


def test_every_command_has_a_page_with_all_its_options():
    hook = _hook()
    pages = dict(hook.commands())
    group = typer.main.get_command(app)
    runnable = {name for name, command in _every(group) if not hasattr(command, "commands")}
    assert set(pages) == runnable
    assert {"sample", "models", "rate export"} <= set(pages)
    for name, command in pages.items():
        text = hook.page(name, command)
        for parameter in command.params:
            for option in parameter.opts if parameter.param_type_name == "option" else ():
                assert f"`{option}`" in text, (name, option)


@pytest.mark.parametrize(
    ("text", "cell"),
    [
        ("a | b", r"a \| b"),
        ("with --until: half", "with `--until`: half"),
        (r"\[MASK*]", r"\[MASK\*\]"),
        ("`a|b`", r"`a\|b`"),
    ],
)
def test_cells(text, cell):
    assert _hook()._cell(text) == cell


def _build(folder, *words):
    return subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "-d", str(folder), *words],
        cwd=ROOT,
        env=os.environ | {"PYTHONPATH": str(ROOT / "src"), "NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
    )


@pytest.mark.slow
def test_the_site_builds_and_fetches_nothing(tmp_path):
    pytest.importorskip("mkdocs")
    done = _build(tmp_path / "site")
    assert done.returncode == 0, done.stdout + done.stderr
    pages = list((tmp_path / "site").rglob("*.html"))
    assert len(pages) > 80
    assert (tmp_path / "site" / "search" / "search_index.json").exists()
    for page in pages:
        text = page.read_text(encoding="utf-8")
        assert not re.findall(r'<(?:script|img|iframe)[^>]* src="(?:https?:)?//[^"]*"', text), page
        assert not re.findall(r'<link[^>]*rel="stylesheet"[^>]*href="(?:https?:)?//', text), page
