"""Fifty kills -9 at random moments, of drivers and of workers: the same bytes in the end."""

import random
import signal
import subprocess
import sys
import time
from contextlib import suppress
from os import kill
from pathlib import Path

import pytest

from odd_workers import files

COMMAND = [sys.executable, "-m", "maskov"]
ASK = (
    "sample --model untrained --epochs 60 --chains 8 --length 5:9 --resident 2 --thin 10 --seed 9 "
    "--quiet"
)
QUIET = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}


def _children(pid: int) -> list[int]:
    with suppress(OSError):
        return [int(one) for one in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    return []


def _killed_again_and_again(folder: Path, moments: random.Random, most: int) -> int:
    """Take a run to its end, killing its driver or one of its workers now and then."""
    kills = 0
    for _ in range(200):
        begun = (folder / "manifest.json").exists()
        words = f"resume {folder} --quiet" if begun else f"{ASK} --out {folder}"
        process = subprocess.Popen([*COMMAND, *f"{words} --workers 2 --checkpoint-every 1".split()],
                                   **QUIET)  # fmt: skip
        while process.poll() is None:
            with suppress(subprocess.TimeoutExpired):
                process.wait(moments.uniform(0.5, 6))
            if process.poll() is None and kills < most:
                targets = [process.pid, *_children(process.pid)]
                with suppress(ProcessLookupError):
                    kill(moments.choice(targets), signal.SIGKILL)
                    kills += 1
        if process.returncode == 0:
            return kills
        time.sleep(0.1)
    raise AssertionError("the run never came to its end")


@pytest.mark.slow
def test_fifty_random_kills_of_drivers_and_workers(tmp_path):
    whole = tmp_path / "whole"
    subprocess.run([*COMMAND, *f"{ASK} --threads 1 --out {whole}".split()], check=True, **QUIET)
    moments, kills, runs = random.Random(0), 0, 0
    while kills < 50:
        folder = tmp_path / f"killed {runs}".replace(" ", "-")
        kills += _killed_again_and_again(folder, moments, 50 - kills)
        runs += 1
        assert files(folder) == files(whole)
        assert runs < 100
