"""The example notebooks: read, run, and stripped of what belongs to one machine.

The tag `varies` of a cell says that its output is sampled: rounding, which differs between
processors, decides near ties, so that its text is not compared.

`python tests/notebook_files.py NOTEBOOK...` runs notebooks and writes the outputs of today into
them.
"""

import asyncio
import os
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from unittest import mock

import nbformat
from nbclient import NotebookClient
from nbformat import NotebookNode

ROOT = Path(__file__).resolve().parents[1]
EXAMPLES = ROOT / "examples"
VARIES = "varies"
_KERNEL = {"display_name": "Python 3", "language": "python", "name": "python3"}
_SECONDS = 1800  # of one cell; a busy machine takes several times as long as a quiet one


def notebooks() -> list[Path]:
    """Return the example notebooks."""
    return sorted(EXAMPLES.glob("*.ipynb"))


def read(path: Path) -> NotebookNode:
    """Read a notebook as it is, without upgrading it."""
    return nbformat.read(path, as_version=nbformat.NO_CONVERT)


def code_cells(notebook: NotebookNode) -> list[NotebookNode]:
    """Return the cells of code."""
    return [cell for cell in notebook.cells if cell.cell_type == "code"]


def executed(path: Path, folder: Path) -> NotebookNode:
    """Run a notebook in a folder, and return it with its new outputs; an error raises."""
    notebook = read(path)
    work, own = folder / "work", folder / "jupyter"
    work.mkdir()
    own.mkdir()
    with _environment(own):
        client = NotebookClient(
            notebook,
            timeout=_SECONDS,
            kernel_name=_KERNEL["name"],
            resources={"metadata": {"path": str(work)}},
            record_timing=False,
        )
        asyncio.run(client.async_execute())
    return normalised(notebook)


def normalised(notebook: NotebookNode) -> NotebookNode:
    """Return a notebook without versions, times and what a run need not have in common."""
    notebook.metadata = NotebookNode(kernelspec=_KERNEL, language_info={"name": "python"})
    for number, cell in enumerate(notebook.cells, 1):
        cell.id = f"cell-{number}"
        tags = cell.metadata.get("tags")
        cell.metadata = NotebookNode(tags=tags) if tags else NotebookNode()
    for number, cell in enumerate(code_cells(notebook), 1):
        cell.execution_count = number
        cell.outputs = _joined(cell.outputs)
        for output in cell.outputs:
            output.pop("transient", None)
            if "metadata" in output:
                output.metadata = NotebookNode()
            if output.output_type == "execute_result":
                output.execution_count = number
    return notebook


def _joined(outputs: list[NotebookNode]) -> list[NotebookNode]:
    """Join what was printed in several pieces; where it is cut depends on the time it took."""
    found: list[NotebookNode] = []
    for output in outputs:
        if found and output.get("name") and output.name == found[-1].get("name"):
            found[-1].text += output.text
        else:
            found.append(output)
    return found


def texts(cell: NotebookNode) -> list[str]:
    """Return what a cell prints and returns as text."""
    found = []
    for output in cell.outputs:
        if output.output_type == "stream":
            found.append(output.text)
        else:
            data = output.get("data", {})
            found += [data[kind] for kind in ("text/plain", "text/html") if kind in data]
    return found


@contextmanager
def _environment(folder: Path) -> Iterator[None]:
    """Keep the kernel away from the user's settings; it imports maskov from this checkout."""
    names = ("IPYTHONDIR", "JUPYTER_CONFIG_DIR", "JUPYTER_DATA_DIR", "JUPYTER_RUNTIME_DIR")
    changed = {name: str(folder / name.lower()) for name in names}
    paths = [str(ROOT / "src"), os.environ.get("PYTHONPATH", "")]
    changed["PYTHONPATH"] = os.pathsep.join(path for path in paths if path)
    changed["HF_HUB_OFFLINE"] = "1"
    with mock.patch.dict(os.environ, changed):
        # The backend of a test run, if one is set, would leave the notebook without pictures.
        os.environ.pop("MPLBACKEND", None)
        yield


def refresh(path: Path) -> None:
    """Run a notebook, and write it with its outputs of today."""
    with tempfile.TemporaryDirectory() as folder:
        notebook = executed(path, Path(folder))
    nbformat.validate(notebook)
    nbformat.write(notebook, path)


if __name__ == "__main__":
    for name in sys.argv[1:]:
        refresh(Path(name).resolve())
