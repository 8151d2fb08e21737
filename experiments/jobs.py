"""Cells in several processes at once, for a GPU that one process does not fill.

Chains of one cell are few, and a process spends much of its time preparing the next batch. Cells
know nothing of one another, so processes only have to agree on who does which: each goes through
all of them and takes those that are neither done nor taken. What a cell comes to is the same.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from multiprocessing import get_context

from experiments.work import Work, do, done
from experiments.workshop import Workshop
from maskov.cli.signals import stop_on_signals
from maskov.errors import InputError, Interrupted, ModelError
from maskov.runs.lock import held

# How often whoever waits for the processes asks whether to stop, in seconds.
_PATIENCE = 0.2


def share(works: dict[Work, str], workshop: Workshop, jobs: int) -> None:
    """Do cells, each with a name to speak of, in so many processes; what fails is left undone.

    A process that fails leaves its cell undone, and the caller, who does it again, learns why.
    """
    spawn = get_context("spawn")
    # Models and the one who says stop belong to this process.
    plain = replace(workshop, stop=None)
    processes = [spawn.Process(target=_work_through, args=(works, plain)) for _ in range(jobs)]
    for process in processes:
        process.start()
    try:
        for process in processes:
            while process.is_alive() and not (workshop.stop and workshop.stop()):
                process.join(_PATIENCE)
    finally:
        for process in processes:
            process.terminate()
        for process in processes:
            process.join()
        shutil.rmtree(workshop.out / "claims", ignore_errors=True)


def _work_through(works: dict[Work, str], workshop: Workshop) -> None:
    with stop_on_signals() as stop:
        workshop = replace(workshop, stop=stop)
        for work, name in works.items():
            if stop():
                return
            try:
                with _claimed(work, workshop) as mine:
                    if mine and done(work, workshop) is None:
                        seconds = do(work, workshop)["seconds"]
                        print(f"{name}: {seconds:.1f} s", flush=True)
            except (InputError, ModelError):
                # Said once, by the caller.
                continue
            except Interrupted:
                return


@contextmanager
def _claimed(work: Work, workshop: Workshop) -> Iterator[bool]:
    """Take a cell unless another process has it; the system frees it when its process dies."""
    folder = workshop.out / "claims"
    folder.mkdir(parents=True, exist_ok=True)
    with held(folder / work.key(workshop)) as mine:
        yield mine
