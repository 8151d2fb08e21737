"""Go through results, cell by cell; what is done is kept, what was stopped goes on."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from experiments.claims import Beside, page
from experiments.jobs import share
from experiments.markdown import markdown
from experiments.registry import RESULTS
from experiments.result import Document, Result, document
from experiments.settings import Setting
from experiments.style import STYLE, mpl, save
from experiments.table6 import condition
from experiments.work import Found, Work, do, done
from experiments.workshop import Workshop
from maskov.errors import InputError, Interrupted, ModelError
from maskov.runs.files import write_atomically

Say = Callable[[str], None]
# How results of another kind fail to be put into tables and figures.
_WRONG = (LookupError, TypeError, ValueError, AttributeError, ArithmeticError, RecursionError)


def reproduce(
    results: Iterable[Result],
    workshop: Workshop,
    say: Say = print,
    wanted: Callable[[Work], bool] = lambda work: True,
    lenient: bool = False,
    jobs: int = 1,
) -> list[Document]:
    """Do the cells of each result that are not there yet, and write what they come to.

    `wanted` leaves out cells that are not to be run now. With `lenient` cells whose models or data
    are missing are left out with a word; otherwise that is an error. With several `jobs` cells are
    done in so many processes first.
    """
    results = list(results)
    if jobs > 1:
        works: dict[Work, str] = {}
        for result in results:
            for label, work in result.cells(workshop.setting).items():
                if wanted(work):
                    works.setdefault(work, f"{result.name}: {label}")
        share(works, workshop, jobs)
        if workshop.stop is not None and workshop.stop():
            # What there is is put together; nothing more is begun.
            for result in results:
                _one(result, workshop, say, lambda work: False, lenient=True)
            raise Interrupted
    documents = []
    for result in results:
        whole = _one(result, workshop, say, wanted, lenient)
        if whole is not None:
            documents.append(whole)
    return documents


def _one(
    result: Result, workshop: Workshop, say: Say, wanted: Callable[[Work], bool], lenient: bool
) -> Document | None:
    works = result.cells(workshop.setting)
    cells: dict[str, Found] = {}
    also = result.also(workshop)
    reasons: dict[str, None] = {}

    def put_together() -> Document:
        missing = [name for name in works if name not in cells]
        return document(result, workshop.setting, cells | also, missing)

    for label, work in works.items():
        try:
            before = done(work, workshop)
            if before is None and not wanted(work):
                continue
            cells[label] = before or do(work, workshop)
        except (InputError, ModelError) as error:
            if not lenient and wanted(work):
                raise
            if wanted(work):
                reasons[str(error)] = None
            continue
        if before is None:
            say(f"{result.name}: {label}: {cells[label]['seconds']:.1f} s")
            _write(result, put_together(), workshop.out)
    for reason in reasons:
        say(f"{result.name}: not run{' in part' if cells else ''}: {reason}")
    if not cells:
        return None
    whole = put_together()
    _write(result, whole, workshop.out)
    draw(result, whole, workshop.out)
    if result.name == "table6":
        _write_texts(whole, workshop.out)
    say(f"{result.name}: written to {workshop.out / result.name}.json, .md, .svg and .png")
    return whole


def _write(result: Result, whole: Document, out: Path) -> None:
    text = json.dumps(whole, ensure_ascii=False, indent=1)
    write_atomically(out / f"{result.name}.json", text.encode() + b"\n")
    page_ = markdown(whole, result.more(whole))
    write_atomically(out / f"{result.name}.md", page_.encode())


def draw(result: Result, whole: Document, out: Path) -> None:
    """Write the figure of a result."""
    with mpl.rc_context(STYLE):
        save(result.draw(whole), out / result.name)


def _write_texts(whole: Document, out: Path) -> None:
    """Write the texts of Table 6 as files that `maskov rate new` takes."""
    folder = out / "texts"
    folder.mkdir(exist_ok=True)
    for label, cell in whole["cells"].items():
        if "texts" in cell:
            model, name = label.split(", ")
            file = folder / f"{condition(model, name)}.txt"
            file.write_text("".join(text + "\n" for text in cell["texts"]), encoding="utf-8")


def documents_of(out: Path) -> dict[str, Document]:
    """Read the results that a folder holds."""
    found = {}
    for name in RESULTS:
        file = out / f"{name}.json"
        if file.is_file():
            try:
                found[name] = json.loads(file.read_text(encoding="utf-8"))
            except (OSError, ValueError, RecursionError) as error:
                raise _damaged(file) from error
    return found


def _damaged(file: Path) -> InputError:
    return InputError(f"'{file}' is damaged: remove it and run again.")


@contextmanager
def _readable(file: Path) -> Iterator[None]:
    """Say that a result is damaged where what it holds cannot be worked with."""
    try:
        yield
    except _WRONG as error:
        raise _damaged(file) from error


def listing(setting: Setting, say: Say = print) -> None:
    """List results, and the cells of each with a guess of its passes; a cell counts once."""
    seen: set[Work] = set()
    say(f"setting {setting.name}: {setting.summary}")
    for result in RESULTS.values():
        works = result.cells(setting)
        fresh = [work for work in works.values() if work not in seen]
        seen.update(fresh)
        millions = sum(work.passes for work in fresh) / 1e6
        say(
            f"{result.name:16s} {result.title} ({result.where}): {len(works)} cells, {len(fresh)} "
            f"of them new, about {millions:.2g} million passes"
        )


def write_page(
    out: Path, file: Path | None = None, beside: Sequence[Path] = (), partly: bool = False
) -> Path | None:
    """Write the page of claims, in the folder of results unless elsewhere; none without results."""
    documents = documents_of(out)
    if not documents:
        return None
    file = file or out / "README.md"
    others = [Beside(_title(one), documents_of(one), _seen_from(file, one)) for one in beside]
    with _readable(out):
        text = page(documents, _seen_from(file, out), others, partly)
    write_atomically(file, text.encode())
    return file


def _seen_from(file: Path, folder: Path) -> str:
    inside = os.path.relpath(folder, file.parent)
    return "" if inside == "." else f"{Path(inside).as_posix()}/"


def _title(folder: Path) -> str:
    """Name the results of another model: as its training is recorded, or else by its size."""
    record = folder / "training.json"
    if not record.is_file():
        return f"with the results of {folder.name}"
    with _readable(record):
        training = json.loads(record.read_text(encoding="utf-8"))
        if "title" in training:
            return str(training["title"])
        return f"with a model of {training['parameters'] / 1e6:.0f} M parameters"


def report(
    out: Path,
    file: Path | None = None,
    say: Say = print,
    beside: Sequence[Path] = (),
    partly: bool = False,
) -> None:
    """Write figures and tables again from their JSON, and the page of claims; nothing is run."""
    documents = documents_of(out)
    if not documents:
        raise InputError(f"'{out}' holds no results: run `maskov reproduce` with this --out first.")
    for other in beside:
        if not documents_of(other):
            raise InputError(f"'{other}' holds no results to put beside those of '{out}'.")
    for name, whole in documents.items():
        result = RESULTS[name]
        with _readable(out / f"{name}.json"):
            text = markdown(whole, result.more(whole))
            draw(result, whole, out)
        write_atomically(out / f"{name}.md", text.encode())
    say(f"{len(documents)} results, {write_page(out, file, beside, partly)}")
