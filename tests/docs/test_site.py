"""The site builds without a warning and fetches nothing; its lists of names are complete."""

import inspect
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
from maskov.energies import parse_energy
from maskov.energies.registry import NAMES

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


@pytest.mark.slow
def test_the_site_builds_and_fetches_nothing(tmp_path):
    pytest.importorskip("mkdocs")
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "-d", str(tmp_path / "site")],
        cwd=ROOT,
        env=os.environ | {"PYTHONPATH": str(ROOT / "src"), "NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    pages = list((tmp_path / "site").rglob("*.html"))
    assert len(pages) > 80
    assert (tmp_path / "site" / "search" / "search_index.json").exists()
    for page in pages:
        text = page.read_text(encoding="utf-8")
        assert not re.findall(r'<(?:script|img|iframe)[^>]* src="(?:https?:)?//[^"]*"', text), page
        assert not re.findall(r'<link[^>]*rel="stylesheet"[^>]*href="(?:https?:)?//', text), page


DOCS = ROOT / "docs" / "how-to"
PAGE = (DOCS / "python.md").read_text(encoding="utf-8")


def test_every_option_is_in_the_table():
    table = PAGE.partition("## Arguments and options")[2].partition("What Python writes")[0]
    named = set(re.findall(r"`([a-z_]+)`", table)) - {"sample", "infill"}
    taken = set(inspect.signature(maskov.sample).parameters)
    assert named <= taken
    # What the page says in its own words, and what other parts of the package set.
    others = {"kernel", "schedule", "texts", "templates", "listener", "progress", "stop", "source"}
    assert taken - named <= others | {"lengths", "trace"}


def test_every_method_of_a_run_is_in_the_table():
    table = PAGE.partition("## What a run offers")[2].partition("A notebook shows")[0]
    public = {name for name in vars(maskov.Run) if not name.startswith("_")} - {"of"}
    inherited = {"traces", "manifest", "signature", "summary", "diagnose", "to_arviz", "open"}
    for name in (public | inherited) - {"damaged", "recovered"}:
        assert name in table, name


def _experts() -> list[list[str]]:
    page = (DOCS / "rewrite.md").read_text(encoding="utf-8")
    table = page.partition("| expert | its energy |")[2].partition("\n\n")[0]
    return [re.split(r"(?<!\\)\|", line)[1:4] for line in table.splitlines()[2:]]


def test_every_expert_is_listed_and_its_example_is_an_energy():
    listed = {name for row in _experts() for name in re.findall(r"`([a-z_]+)", row[0])}
    assert set(NAMES) - {"length_prior"} <= listed
    for row in _experts():
        example = row[2].strip().strip("`")
        if "my_module" not in example:
            assert parse_energy(str(parse_energy(example))) is not None
