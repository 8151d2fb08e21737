"""A worker: hears of the job once, then takes one task after another until the line is cut.

Run by `maskov.workers.processes` as `python -m maskov.workers.worker LINE DEVICE`.
"""

from __future__ import annotations

import os
import pickle
import signal
import sys
from multiprocessing.connection import Connection

import torch

from maskov.workers.job import Job
from maskov.workers.serialization import task_from, to_bytes


def main(line: Connection, device: torch.device) -> None:
    """Work until the coordinator is gone."""
    # A terminal or a scheduler signals all processes at once; the coordinator then says what to do.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    asked = False

    def stop() -> bool:
        nonlocal asked
        if not asked and line.poll():
            asked = line.recv_bytes() == b"stop"
        return asked

    try:
        job: Job = pickle.loads(line.recv_bytes())
        runner = job.runner(device, stop)
        while True:
            content = line.recv_bytes()
            if content == b"stop":  # it came after the last task had ended
                continue
            asked = False
            line.send_bytes(to_bytes(runner.carry_out(task_from(content))))
    except (EOFError, BrokenPipeError, ConnectionResetError):
        # The coordinator is gone; nobody will ask for what was begun.
        os._exit(0)


if __name__ == "__main__":
    main(Connection(int(sys.argv[1])), torch.device(sys.argv[2]))
