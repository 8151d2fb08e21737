"""A worker: hears of the job once, then takes one task after another until the line is cut.

Run by `maskov.workers.processes` as `python -m maskov.workers.worker LINE DEVICE`.
"""

from __future__ import annotations

import os
import pickle
import signal
import sys
from functools import cache
from multiprocessing.connection import Connection

import torch

from maskov.runs.task_runner import TaskRunner
from maskov.workers.job import Job, carried_out
from maskov.workers.serialization import task_from, to_bytes


def main(line: Connection, device: torch.device) -> None:
    """Work until the coordinator is gone."""
    # A terminal or a scheduler signals all processes at once; the coordinator then says what to do.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    asked = False

    def heard() -> bytes:
        try:
            return line.recv_bytes()
        except (EOFError, OSError):
            # The coordinator is gone; nobody will ask for what was begun.
            os._exit(0)

    def stop() -> bool:
        nonlocal asked
        if not asked and line.poll():
            asked = heard() == b"stop"
        return asked

    job = heard()

    @cache
    def runner() -> TaskRunner:
        described: Job = pickle.loads(job)
        return described.runner(device, stop)

    while True:
        content = heard()
        if content == b"stop":  # it came after the last task had ended
            continue
        asked = False
        answer = to_bytes(carried_out(runner, task_from(content)))
        try:
            line.send_bytes(answer)
        except OSError:
            os._exit(0)


if __name__ == "__main__":
    main(Connection(int(sys.argv[1])), torch.device(sys.argv[2]))
