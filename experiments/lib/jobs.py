"""Run cells in several processes, for a GPU that one process does not fill.

A cell has few chains, and a process spends much of its time preparing the next batch. Cells are
independent: each process goes through all cells and computes those that are neither finished nor
locked by another process. The results do not depend on the number of processes.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from multiprocessing import get_context

from experiments.lib.cell import Cell, load_cell, run_cell
from experiments.lib.context import Context
from maskov.cli.commands import stop_on_signals
from maskov.errors import InputError, Interrupted, ModelError
from maskov.runs.files import held

# Seconds between two checks of whether to stop.
_POLL_SECONDS = 0.2


def run_in_processes(cells: dict[Cell, str], context: Context, jobs: int) -> None:
    """Run cells (with their labels) in `jobs` processes; cells that fail are left unfinished.

    The caller runs unfinished cells again and so gets their errors.
    """
    spawn = get_context("spawn")
    # Loaded models and the stop callback belong to this process.
    shared = replace(context, stop=None)
    processes = [spawn.Process(target=_run_all, args=(cells, shared)) for _ in range(jobs)]
    for process in processes:
        process.start()
    try:
        for process in processes:
            while process.is_alive() and not (context.stop and context.stop()):
                process.join(_POLL_SECONDS)
    finally:
        for process in processes:
            process.terminate()
        for process in processes:
            process.join()
        shutil.rmtree(context.out / "locks", ignore_errors=True)


def _run_all(cells: dict[Cell, str], context: Context) -> None:
    with stop_on_signals(lambda: "stopped; the same command continues") as stop:
        context = replace(context, stop=stop)
        for cell, label in cells.items():
            if stop():
                return
            try:
                with _lock(cell, context) as locked:
                    if locked and load_cell(cell, context) is None:
                        seconds = run_cell(cell, context)["seconds"]
                        print(f"{label}: {seconds:.1f} s", flush=True)
            except (InputError, ModelError):
                # Reported once, by the caller.
                continue
            except Interrupted:
                return


@contextmanager
def _lock(cell: Cell, context: Context) -> Iterator[bool]:
    """Lock a cell; yield False if another process has it. The lock ends with its process."""
    folder = context.out / "locks"
    folder.mkdir(parents=True, exist_ok=True)
    with held(folder / cell.key(context)) as locked:
        yield locked
