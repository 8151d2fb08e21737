"""The notebooks of examples/: valid, with outputs of one whole run, without traces of a machine."""

import ast
import base64
import copy
import re
from importlib.util import find_spec

import pytest

from doc_examples import ROOT

pytest.importorskip("nbclient")
pytest.importorskip("ipykernel")

import nbformat

from notebook_files import VARIES, code_cells, executed, normalised, notebooks, read, texts

PAGE = ROOT / "docs" / "how-to" / "examples.md"
MOST_BYTES = 400_000
# A path from the root of a file system: of two names at least, so that `1/2` and `</td>` are none.
_ABSOLUTE = re.compile(r"(?:^|[\s'\"(=:,>])(?:/[\w.+-]+){2,}|\b[A-Za-z]:\\\\|file://|site-packages")
_LINK = re.compile(r"\]\(([^)#:\s]+)(?:#[^)]*)?\)")
NEEDS = {"protein-library": "sapiens"}
every_notebook = pytest.mark.parametrize("path", notebooks(), ids=lambda path: path.stem)


def _shows(source):
    """Whether a cell prints, shows a picture or ends in an expression."""
    tree = ast.parse(source)
    calls = [node.func for node in ast.walk(tree) if isinstance(node, ast.Call)]
    printed = any(isinstance(one, ast.Name) and one.id == "print" for one in calls)
    drawn = any(isinstance(one, ast.Attribute) and one.attr == "show" for one in calls)
    return printed or drawn or (bool(tree.body) and isinstance(tree.body[-1], ast.Expr))


def _pictures(notebook):
    outputs = (output for cell in code_cells(notebook) for output in cell.outputs)
    return [one.data["image/png"] for one in outputs if "image/png" in one.get("data", {})]


def _faults(notebook):
    """Return what is wrong with a notebook."""
    faults = []
    if notebook.nbformat != 4 or notebook.metadata.get("kernelspec", {}).get("name") != "python3":
        faults.append("format or kernel")
    if normalised(copy.deepcopy(notebook)) != notebook:
        faults.append("metadata of one run")
    for number, cell in enumerate(code_cells(notebook), 1):
        shown = texts(cell)
        if cell.execution_count != number:
            faults.append(f"cell {number} was not run in its turn")
        if _shows(cell.source) and not cell.outputs:
            faults.append(f"cell {number} has no output")
        if any(one.output_type == "error" or one.get("name") == "stderr" for one in cell.outputs):
            faults.append(f"cell {number} has an error or a warning")
        if any(_ABSOLUTE.search(text) for text in (cell.source, *shown)):
            faults.append(f"cell {number} has an absolute path")
    if not _pictures(notebook):
        faults.append("no picture")
    return faults


def test_there_are_notebooks():
    assert {path.stem for path in notebooks()} == {
        "blanks", "evidence", "first-samples", "own-energy", "protein-library", "rewriting",
    }  # fmt: skip


@every_notebook
def test_a_notebook_is_whole(path):
    notebook = read(path)
    nbformat.validate(notebook)
    assert _faults(notebook) == []
    assert path.stat().st_size < MOST_BYTES
    for picture in _pictures(notebook):
        assert base64.b64decode(picture).startswith(b"\x89PNG")


@every_notebook
def test_links_of_a_notebook_lead_somewhere(path):
    links = [
        link
        for cell in read(path).cells
        if cell.cell_type == "markdown"
        for link in _LINK.findall(cell.source)
    ]
    assert links
    assert [link for link in links if not (path.parent / link).exists()] == []


def test_every_notebook_is_linked_from_the_documentation():
    linked = set(_LINK.findall(PAGE.read_text(encoding="utf-8")))
    assert linked == {f"../../examples/{path.name}" for path in notebooks()}
    assert "how-to/examples.md" in (ROOT / "mkdocs.yml").read_text(encoding="utf-8")


@pytest.mark.slow
@every_notebook
def test_a_notebook_runs(path, tmp_path):
    needed = NEEDS.get(path.stem)
    if needed is not None and find_spec(needed) is None:
        pytest.skip(f"the package {needed} is not installed")
    shown = read(path)
    found = executed(path, tmp_path)
    assert _faults(found) == []
    for old, new in zip(code_cells(shown), code_cells(found), strict=True):
        kinds = [[one.output_type for one in cell.outputs] for cell in (old, new)]
        assert kinds[0] == kinds[1], old.source
        if VARIES not in old.metadata.get("tags", ()):
            assert texts(old) == texts(new), old.source
