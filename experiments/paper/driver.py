"""Run results cell by cell and write their documents, tables, figures and the page of claims."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from experiments.lib.cell import Cell, CellResult, load_cell, run_cell
from experiments.lib.context import Context
from experiments.lib.jobs import run_in_processes
from experiments.lib.markdown import markdown
from experiments.lib.result import Document, Result, build_document, document_json
from experiments.lib.settings import Setting
from experiments.lib.style import STYLE, mpl, save
from experiments.paper.claims_page import render_page
from experiments.paper.registry import RESULTS
from experiments.paper.table6 import condition
from maskov.errors import InputError, Interrupted, ModelError
from maskov.models.conditional import ConditionalModel
from maskov.runs.files import write_atomically

Say = Callable[[str], None]
# What rendering raises on a file that is valid JSON but no result.
_RENDER_ERRORS = (
    LookupError, TypeError, ValueError, AttributeError, ArithmeticError, RecursionError,
)  # fmt: skip


def reproduce(
    results: Iterable[Result],
    context: Context,
    say: Say = print,
    include: Callable[[Cell], bool] = lambda cell: True,
    skip_missing: bool = False,
    jobs: int = 1,
) -> list[Document]:
    """Run the unfinished cells of each result and write its document, table and figure.

    Only cells for which `include` is true are run. With `skip_missing`, cells whose models or data
    are missing are skipped with a message; otherwise they raise. With several `jobs`, cells first
    run in that many processes.
    """
    results = list(results)
    if jobs > 1:
        labels: dict[Cell, str] = {}
        for result in results:
            for label, cell in result.cells(context.setting).items():
                if include(cell):
                    labels.setdefault(cell, f"{result.name}: {label}")
        run_in_processes(labels, context, jobs)
        if context.stop is not None and context.stop():
            # Write what is finished; start nothing new.
            for result in results:
                _reproduce_result(result, context, say, lambda cell: False, skip_missing=True)
            raise Interrupted
    documents = []
    for result in results:
        document = _reproduce_result(result, context, say, include, skip_missing)
        if document is not None:
            documents.append(document)
    return documents


def _reproduce_result(
    result: Result,
    context: Context,
    say: Say,
    include: Callable[[Cell], bool],
    skip_missing: bool,
) -> Document | None:
    declared = result.cells(context.setting)
    finished: dict[str, CellResult] = {}
    extra_cells = result.extra_cells(context)
    reasons: dict[str, None] = {}

    def current_document() -> Document:
        missing = [label for label in declared if label not in finished]
        return build_document(result, context.setting, finished | extra_cells, missing)

    for label, cell in declared.items():
        try:
            stored = load_cell(cell, context)
            if stored is None and not include(cell):
                continue
            finished[label] = stored or run_cell(cell, context)
        except (InputError, ModelError) as error:
            if not skip_missing and include(cell):
                raise
            if include(cell):
                reasons[str(error)] = None
            continue
        if stored is None:
            say(f"{result.name}: {label}: {finished[label]['seconds']:.1f} s")
            _write(result, current_document(), context.out)
    for reason in reasons:
        say(f"{result.name}: {'partly ' if finished else ''}not run: {reason}")
    if not finished:
        return None
    document = current_document()
    _write(result, document, context.out)
    draw(result, document, context.out)
    if result.name == "table6":
        _write_texts(finished, context.out)
    say(f"{result.name}: written to {context.out / result.name}.json, .md and .svg")
    return document


def _write(result: Result, document: Document, out: Path) -> None:
    write_atomically(out / f"{result.name}.json", document_json(document).encode())
    page = markdown(document, result.extra_markdown(document))
    write_atomically(out / f"{result.name}.md", page.encode())


def draw(result: Result, document: Document, out: Path) -> None:
    """Write the figure of a result."""
    with mpl.rc_context(STYLE):
        save(result.draw(document), out / result.name)


def _write_texts(cells: dict[str, CellResult], out: Path) -> None:
    """Write the texts of Table 6 as input files for `maskov rate export`."""
    folder = out / "texts"
    folder.mkdir(exist_ok=True)
    for label, cell in cells.items():
        model, sampler = label.split(", ")
        file = folder / f"{condition(model, sampler)}.txt"
        file.write_text("".join(text + "\n" for text in cell["texts"]), encoding="utf-8")


def read_documents(out: Path) -> dict[str, Document]:
    """Read the results in a folder."""
    documents = {}
    for name in RESULTS:
        file = out / f"{name}.json"
        if file.is_file():
            try:
                documents[name] = json.loads(file.read_text(encoding="utf-8"))
            except (OSError, ValueError, RecursionError) as error:
                raise _damaged(file) from error
    return documents


def _damaged(file: Path) -> InputError:
    return InputError(f"'{file}' is damaged: delete it and run again.")


@contextmanager
def _refuse_damaged(file: Path) -> Iterator[None]:
    """Report a file as damaged when its content cannot be rendered."""
    try:
        yield
    except _RENDER_ERRORS as error:
        raise _damaged(file) from error


def list_results(setting: Setting, say: Say = print) -> None:
    """List results, their cells and a rough number of passes; a shared cell counts once."""
    seen: set[Cell] = set()
    say(f"setting {setting.name}: {setting.summary}")
    for result in RESULTS.values():
        cells = result.cells(setting)
        new = [cell for cell in cells.values() if cell not in seen]
        seen.update(new)
        millions = sum(cell.expected_passes for cell in new) / 1e6
        say(
            f"{result.name:16s} {result.title} ({result.section}): {len(cells)} cells, {len(new)} "
            f"of them new, about {millions:.2g} million passes"
        )


def write_page(out: Path) -> Path | None:
    """Write the page of claims, OUT/README.md; return None if there are no results."""
    documents = read_documents(out)
    if not documents:
        return None
    with _refuse_damaged(out):
        text = render_page(documents)
    write_atomically(out / "README.md", text.encode())
    return out / "README.md"


def write_record(context: Context, title: str, training: Path | None) -> None:
    """Record which translation model the results are of, unless that is recorded already.

    `training` is the log of `recipes.translation.train`. `experiments.findings` uses the title.
    """
    file = context.out / "training.json"
    if file.exists():
        return
    model = context.masked_model("de-en")
    assert isinstance(model, ConditionalModel)
    record = {
        "title": title,
        "parameters": sum(weight.numel() for weight in model.network.parameters()),
        "fingerprint": context.fingerprint("de-en"),
    }
    if context.remove_smoothing:
        record["remove_smoothing"] = context.remove_smoothing
    if training is not None:
        try:
            record |= json.loads(training.read_text(encoding="utf-8"))
        except (OSError, ValueError, TypeError) as error:
            raise InputError(f"cannot read the log of a training, '{training}'.") from error
    write_atomically(file, json.dumps(record, indent=1).encode() + b"\n")


def report(out: Path, say: Say = print) -> None:
    """Render tables, figures and the page of claims from stored results; run nothing."""
    documents = read_documents(out)
    if not documents:
        raise InputError(
            f"'{out}' contains no results: run `python -m experiments NAME --out {out}` first."
        )
    for name, document in documents.items():
        result = RESULTS[name]
        with _refuse_damaged(out / f"{name}.json"):
            text = markdown(document, result.extra_markdown(document))
            draw(result, document, out)
        write_atomically(out / f"{name}.md", text.encode())
    say(f"{len(documents)} results, {write_page(out)}")
